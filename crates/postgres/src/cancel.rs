//! Only here: cancellation of a statement in the server when its caller gives up. SQLite runs statements in this
//! process.
//!
//! Without it the statement would keep running, or keep its place in the queue of a lock, until the server notices that
//! the connection is gone.

use std::time::Duration;

use tokio_postgres::{CancelToken, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect;

/// The time limit of a cancellation.
const LIMIT: Duration = Duration::from_secs(10);

/// A guard that cancels the statement of a connection when it is dropped before [`disarm`](Self::disarm).
pub(crate) struct CancelOnDrop {
    armed: bool,
    token: CancelToken,
    connector: MakeRustlsConnect,
}

impl CancelOnDrop {
    /// Guards the statements of a connection from now on.
    pub(crate) fn new(client: &Client, connector: MakeRustlsConnect) -> Self {
        Self { armed: true, token: client.cancel_token(), connector }
    }

    /// Disarms the guard: the server replied, and there is nothing to cancel.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (token, connector) = (self.token.clone(), self.connector.clone());
        let cancelling = connect::spawn(async move {
            // A late cancellation may hit the next statement of this connection, which is then sent again.
            match tokio::time::timeout(LIMIT, token.cancel_query(connector)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "statement cancellation failed"),
                Err(_) => tracing::debug!("statement cancellation timed out"),
            }
        });
        if let Err(error) = cancelling {
            tracing::debug!(%error, "statement cancellation failed");
        }
    }
}

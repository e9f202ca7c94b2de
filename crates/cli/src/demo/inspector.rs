//! The HTTP server that shows the store while the demo runs, on this machine only.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock_server::{Conflicts, Server, ServerError, ServerOptions, Token, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::notice;
use super::shop::Shop;
use super::shutdown::ShutdownSignals;
use crate::args::Demo;

/// A handle of the running server.
#[derive(Debug)]
pub(crate) struct Inspector {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Inspector {
    /// Starts the server and prints its address.
    pub(crate) async fn open(
        store: &SharedStore,
        shop: &Shop,
        locks: &Locks,
        conflicts: &Arc<Conflicts>,
        options: &Demo,
    ) -> Result<Self> {
        // The server would reject it as well, but only after its address is printed.
        if !options.listen.ip().is_loopback() {
            let (address, missing) = (options.listen.to_string(), "nothing is encrypted");
            return Err(ServerError::Beyond { address, missing }.into());
        }
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
        let address = listener.local_addr()?;
        let token = Token::generate()?;
        let allowed = ServerOptions::new(Tokens::none().read(&token));
        let server = Server::new(store.clone(), allowed).locks(locks).conflicts(conflicts);
        let (end, ended) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            if let Err(error) = server.serve(listener, async { drop(ended.await) }).await {
                notice(format_args!("warning: the server ended: {error}"));
            }
        });
        // The link is on a separate line, so that a narrow terminal does not break it.
        notice(format_args!("look at it while it runs:\n{}", token.link(&format!("http://{address}"))));
        let run = shop.run();
        notice(format_args!("kills: the stream chaos(\"{run}\"); numbers: the record demo(\"{run}\")"));
        Ok(Self { address, end, serving })
    }

    /// Keeps the server running until a shutdown is requested.
    pub(crate) async fn stay(&self, ending: &ShutdownSignals) {
        notice(format_args!("the server stays at http://{}/; Ctrl-C ends it", self.address));
        ending.asked().await;
    }

    /// Stops the server.
    pub(crate) async fn close(self) {
        drop(self.end);
        // The task either succeeds or has already reported its error.
        drop(self.serving.await);
    }
}

//! The server that shows the store while the demo plays, on this machine only.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tidelock::prelude::*;
use tidelock_server::{Options, Server, ServerError, Token, Tokens};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::Demo;

/// The server while it runs.
#[derive(Debug)]
pub(crate) struct Inspector {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Inspector {
    /// Listens, and says where.
    pub(crate) async fn open(store: &SharedStore, locks: &Locks, options: &Demo) -> Result<Self> {
        // The server would say so as well, but by then its address is told.
        if !options.listen.ip().is_loopback() {
            let (address, missing) = (options.listen.to_string(), "nothing is encrypted");
            return Err(ServerError::Beyond { address, missing }.into());
        }
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", options.listen))?;
        let address = listener.local_addr()?;
        let token = Token::generate()?;
        let server = Server::new(store.clone(), Options::new(Tokens::none().read(&token))).locks(locks);
        let (end, ended) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            if let Err(error) = server.serve(listener, async { drop(ended.await) }).await {
                eprintln!("warning: the server ended: {error}");
            }
        });
        eprintln!("look at it while it runs: {}", token.link(&format!("http://{address}")));
        Ok(Self { address, end, serving })
    }

    /// Goes on until Ctrl-C.
    pub(crate) async fn stay(&self) -> Result<()> {
        eprintln!("the server stays at http://{}/; Ctrl-C ends it", self.address);
        Ok(tokio::signal::ctrl_c().await?)
    }

    /// Ends the server.
    pub(crate) async fn close(self) {
        drop(self.end);
        // It ends well, or has said why not.
        drop(self.serving.await);
    }
}

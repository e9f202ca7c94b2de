//! An HTTP server for a [Tidelock](tidelock) store: a JSON API for streams, documents, leases, runs, work and schedules, events as
//! they come, health and metrics. It stands alone, or is mounted in an application of your own.
//!
//! It is safe without configuration: it wants a token for everything but `/healthz`, only shows and changes nothing, listens on
//! this machine only, takes requests for its own names only, and has a limit for everything. Each loosening is a call of
//! [`Options`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidelock::prelude::*;
//! use tidelock_server::{Options, Server, Token, Tokens};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let token = Token::generate()?;
//! let server = Server::new(store, Options::new(Tokens::none().read(&token)));
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let shutdown = async {}; // a signal, in a program
//! server.serve(listener, shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # In an application of your own
//!
//! [`router`] gives the routes, for axum's `Router::nest`. If your application has a layer that knows its callers, put it outside,
//! and leave the tokens to it:
//!
//! ```
//! # use std::sync::Arc;
//! # use tidelock::prelude::*;
//! # use tidelock_server::{Options, router};
//! # let store: SharedStore = Arc::new(MemoryStore::new());
//! let ours = router(store, Options::behind_own_auth().host("admin.example.com"));
//! let app: axum::Router = axum::Router::new().nest("/tidelock", ours); // .layer(your own)
//! ```
//!
//! # What is left behind
//!
//! Every write leaves an event in the stream `tidelock.audit`, in the same batch: both happen, or neither. Only when a lease is taken it
//! comes under the new fence, before the caller hears of it.

mod api;
mod audit;
mod delivery;
mod error;
mod gate;
mod guard;
mod guesses;
mod hushed;
mod inspected;
mod loosened;
mod openapi;
mod options;
mod patient;
mod problem;
mod rate;
mod request;
mod request_id;
mod routes;
mod seats;
mod serve;
mod shared;
mod shown;
mod tls;
mod token;
mod ui;

use std::sync::Arc;

use axum::Router;
use tidelock::lock::Locks;
use tidelock::store::SharedStore;
use tokio::net::TcpListener;

pub use error::ServerError;
pub use inspected::Conflicts;
pub use options::Options;
pub use tls::Tls;
pub use token::{Caller, Role, Token, Tokens};

use crate::shared::{App, Shared};

/// A server of one store.
#[derive(Clone, Debug)]
pub struct Server {
    app: App,
}

impl Server {
    /// A server that is not reached yet.
    #[must_use]
    pub fn new(store: SharedStore, options: Options) -> Self {
        Self { app: Shared::new(store, options) }
    }

    /// Also shows the locks of this table: they live in the memory of the program, so only the program itself can show them.
    #[must_use]
    pub fn locks(self, locks: &Locks) -> Self {
        // The first table stays.
        let _ = self.app.inspected.locks.set(locks.clone());
        self
    }

    /// Also shows how often changes of state met others that were faster.
    #[must_use]
    pub fn conflicts(self, conflicts: &Arc<Conflicts>) -> Self {
        let _ = self.app.inspected.conflicts.set(Arc::clone(conflicts));
        self
    }

    /// Also tells the metrics of this program at `/metrics`, after those of the store: `render` gives what its recorder has, as Prometheus
    /// reads it.
    #[must_use]
    pub fn metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        // The first one stays.
        let _ = self.app.inspected.metrics.set(Box::new(render));
        self
    }

    /// Also asks the program at `/readyz` whether a part of it is of use, such as a loop that should have come round a moment ago. The first
    /// one that says why not makes the answer 503, with the name and the reason. It is called for each request and must not wait.
    #[must_use]
    pub fn probe(
        self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.app.inspected.probe(name.into(), Box::new(probe));
        self
    }

    /// The routes, for an application of your own.
    pub fn router(&self) -> Router {
        self.warn();
        routes::router(&self.app)
    }

    /// Tells the log what is looser than without a word.
    fn warn(&self) {
        for what in self.app.options.loosened() {
            tracing::warn!(target: "tidelock::server", loosened = %what, "the server allows more than without a word");
        }
    }

    /// Ends the answers that have no end by themselves, such as those to clients that follow the log: for an application of your
    /// own that ends and waits for its requests.
    pub fn end(&self) {
        self.app.end();
    }

    /// Serves until `shutdown` is done. Then no connection is taken any more, those who follow the log are let go, and other
    /// requests may end in [a stated time](Options::end_time).
    ///
    /// # Errors
    /// [`ServerError::Beyond`] when other machines can reach the listener, and [that was not allowed](Options::beyond_this_machine)
    /// or there is no TLS or no token; [`ServerError::Tls`] when the files of TLS cannot be used.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServerError> {
        let router = self.router();
        serve::serve(self.app, router, listener, shutdown).await
    }
}

/// The routes of a [`Server`], for an application of your own.
pub fn router(store: SharedStore, options: Options) -> Router {
    Server::new(store, options).router()
}

/// Every route: its method, its path and who may call it.
#[must_use]
pub fn routes() -> Vec<(&'static str, &'static str, Role)> {
    routes::ROUTES.iter().map(|route| (route.verb.word(), route.path, route.role)).collect()
}

/// The page of the book, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/server.md")]
struct Guide;

/// The page about the inspector, likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/inspector.md")]
struct Inspector;

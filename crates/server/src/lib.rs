//! An HTTP server for a [Tidelock](https://docs.rs/tidelock) store: a JSON API for streams, documents, leases, runs, work and schedules, events as
//! they come, health and metrics. It stands alone, or is mounted in an application of your own.
//!
//! It is safe without configuration: it wants a token for everything but `/healthz`, only shows and changes nothing, listens on
//! this machine only, takes requests for its own names only, and has a limit for everything. Each loosening is a call of
//! [`ServerOptions`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidelock_core::store::{MemoryStore, SharedStore};
//! use tidelock_server::{ServerOptions, Server, Token, Tokens};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let token = Token::generate()?;
//! let server = Server::new(store, ServerOptions::new(Tokens::none().read(&token)));
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
//! # use tidelock_core::store::{MemoryStore, SharedStore};
//! # use tidelock_server::{ServerOptions, router};
//! # let store: SharedStore = Arc::new(MemoryStore::new());
//! let ours = router(store, ServerOptions::behind_own_auth().host("admin.example.com"));
//! let app: axum::Router = axum::Router::new().nest("/tidelock", ours); // .layer(your own)
//! ```
//!
//! # What is left behind
//!
//! Every write appends an event to the stream `tidelock.audit` in the same batch: both commit, or neither. The one exception is the
//! acquisition of a lease: its event is committed under the new fence, before the response is sent.

mod access_control;
mod api;
mod app_state;
mod audit;
mod auth_backoff;
mod concurrency_limit;
mod delivery;
mod error;
mod host;
mod log_throttle;
mod openapi;
mod option_warnings;
mod options;
mod problem;
mod rate_limit;
mod request;
mod request_id;
mod route_policy;
mod routes;
mod sanitize;
mod serve;
mod tls;
mod token;
mod ui;
mod write_timeout;

use std::sync::Arc;

use axum::Router;
use tidelock_core::lock::Locks;
use tidelock_core::store::SharedStore;
use tokio::net::TcpListener;

pub use error::ServerError;
pub use host::Conflicts;
pub use options::ServerOptions;
pub use tls::Tls;
pub use token::{Caller, Role, Token, Tokens};

use crate::app_state::{App, AppState};

/// A server of one store.
#[derive(Clone, Debug)]
pub struct Server {
    app: App,
}

impl Server {
    /// A server that is not reached yet.
    #[must_use]
    pub fn new(store: SharedStore, options: ServerOptions) -> Self {
        Self { app: AppState::new(store, options) }
    }

    /// Also shows the locks of this table: they live in the memory of the program, so only the program itself can show them.
    #[must_use]
    pub fn locks(self, locks: &Locks) -> Self {
        // The first table stays.
        let _ = self.app.inspected.locks.set(locks.clone());
        self
    }

    /// Also shows how often state mutations lost a conflict.
    #[must_use]
    pub fn conflicts(self, conflicts: &Arc<Conflicts>) -> Self {
        let _ = self.app.inspected.conflicts.set(Arc::clone(conflicts));
        self
    }

    /// Also serves the metrics of this program at `/metrics`, after those of the store. `render` returns them in the text format of
    /// Prometheus.
    #[must_use]
    pub fn metrics(self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        // The first one stays.
        let _ = self.app.inspected.metrics.set(Box::new(render));
        self
    }

    /// Adds a readiness check to `/readyz`, for example whether a poll loop has run recently. The first check that fails makes the
    /// response 503, with its name and reason. Each request calls the check, which must not block.
    #[must_use]
    pub fn probe(
        self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.app.inspected.probe(name.into(), Box::new(probe));
        self
    }

    /// Returns the routes, to be mounted in another application.
    pub fn router(&self) -> Router {
        self.warn();
        routes::router(&self.app)
    }

    /// Logs a warning for every option that permits more than the default.
    fn warn(&self) {
        for what in self.app.options.loosened() {
            tracing::warn!(target: "tidelock::server", loosened = %what, "server option weakens a default");
        }
    }

    /// Ends endless responses, such as those of clients that follow the log. An application that mounts the routes calls this when
    /// it shuts down and waits for its requests.
    pub fn end(&self) {
        self.app.end();
    }

    /// Serves until `shutdown` completes. Then the server accepts no connection, ends the responses that follow the log, and gives
    /// other requests [a limited time](ServerOptions::end_time) to complete.
    ///
    /// # Errors
    /// [`ServerError::Beyond`] when other machines can reach the listener, and [that was not allowed](ServerOptions::beyond_this_machine)
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
pub fn router(store: SharedStore, options: ServerOptions) -> Router {
    Server::new(store, options).router()
}

/// Every route: its method, its path and who may call it.
#[must_use]
pub fn routes() -> Vec<(&'static str, &'static str, Role)> {
    routes::ROUTES.iter().map(|route| (route.verb.word(), route.path, route.role)).collect()
}

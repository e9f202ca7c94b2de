//! The conformance kit of Tidelock.

use std::sync::Arc;

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::Store;

/// A backend under test: a factory of empty databases.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The name, for messages.
    fn name(&self) -> &'static str;

    /// A new, empty database that nobody else uses, whose connections run on `clock`.
    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database>;

    /// What the backend can do beyond the floor.
    fn capabilities(&self) -> Capabilities;

    /// Connects to a database that another process made, by the address that [`Database::address`] gave it. Only
    /// called when [`Capabilities::processes`] is set.
    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store>;
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities {
    /// Several processes may share a database.
    pub processes: bool,
    /// What was acknowledged survives [`Database::restart`].
    pub durable: bool,
}

/// One database of a backend.
#[async_trait]
pub trait Database: Send + Sync {
    /// Another independent connection.
    async fn connect(&self) -> Arc<dyn Store>;

    /// Closes every connection and opens one anew, as a restarted process would.
    async fn restart(&mut self) -> Arc<dyn Store>;

    /// How another process finds the database.
    fn address(&self) -> Option<String>;
}

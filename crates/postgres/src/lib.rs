//! The Tidelock store on PostgreSQL: many machines, one order, group commit without a global lock.
//!
//! Callers that write at the same time share a transaction and a flush; a few committers run in parallel. The model
//! decides a batch in this process, on cached rows. The server writes the batch only if those rows are unchanged, so a
//! commit takes one round trip. Positions become visible in order, although no transaction locks the log (see the book,
//! decision 12). Everything lives in its own schema, `tidelock` by default.
//!
//! ```no_run
//! use tidelock_core::store::{Batch, Expect, Store};
//! use tidelock_core::{key::Key, payload::Payload};
//! use tidelock_postgres::{PostgresOptions, PostgresStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::open("postgres://app:secret@db.example.com/shop", PostgresOptions::default()).await?;
//! let cart = Key::new("cart", ["user-17"])?;
//! store.apply(Batch::new().put(&cart, Expect::Absent, Payload::of(&["apples"])?)).await?;
//! assert!(store.document(&cart).await?.is_some());
//! # Ok(())
//! # }
//! ```

mod cancel;
mod catch_up;
mod claim;
mod clock;
mod commit_delay;
mod connect;
mod connect_options;
mod db;
mod epoch;
mod error;
mod flush;
mod lock_visibility;
mod lock_wait;
mod log_blockers;
pub mod migrate;
mod open;
mod queue;
mod read;
mod readers;
mod resolve;
mod row_cache;
mod rows;
mod scan_bounds;
mod session;
mod sql;
#[cfg(feature = "sqlx")]
mod sqlx_transaction;
mod store;
mod sweep;
mod tls;
mod transaction;
mod unreadable;
mod watch;
mod work_filter;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::Clock;
use tidelock_core::store::{Durability, StoreError, StoreErrorKind};

use crate::connect_options::ConnectOptions;

pub use open::connect;
#[cfg(feature = "sqlx")]
pub use sqlx;
pub use store::{LogBlocker, PostgresStats, PostgresStore};
pub use tokio_postgres;
pub use transaction::DriverTransaction;

/// The options of a store. Every field has a safe default.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The schema that holds the store: small letters, digits and underscores. Default: `tidelock`.
    pub schema: String,
    /// The durability of an acknowledged write. Default: flushed to the device, by a server that is configured to
    /// flush.
    pub durability: Durability,
    /// The time source of the store. Default: the server's clock, which is the same for every machine.
    pub clock: Option<Arc<dyn Clock>>,
    /// The number of groups of batches and claims in flight at once. Default: 2.
    pub committers: usize,
    /// The number of connections that serve reads. Default: 8. Connections are opened when they are needed.
    pub readers: usize,
    /// The number of batches and claims that may wait for a committer. Further callers wait outside. Default: 4,096.
    pub queue: usize,
    /// How long a call waits before it fails: for a connection, for a row that another transaction holds, or for a
    /// response. Choose more than a failover takes. Default: 60 s, which covers Patroni's defaults (30 s until the
    /// leader's key expires, 10 s until the next poll, and the promotion).
    pub patience: Duration,
    /// Whether opening the store creates the schema and brings it up to date. Default: yes. Without it, opening fails
    /// unless the schema is up to date, and the user needs no right to create anything.
    pub migrate: bool,
    /// Whether a transaction-mode pooler, such as PgBouncer, sits between the store and the server. If so, the store
    /// prepares no statement. It then notices changes by other processes within a quarter of a second instead of at
    /// once, because LISTEN needs a dedicated connection. Default: no.
    pub pooled: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "tidelock".to_owned(),
            durability: Durability::Full,
            clock: None,
            committers: 2,
            readers: 8,
            queue: 4096,
            patience: Duration::from_secs(60),
            migrate: true,
            pooled: false,
        }
    }
}

impl PostgresOptions {
    /// Applies the settings of the address, which take precedence.
    fn with(mut self, address: &ConnectOptions) -> Self {
        if let Some(schema) = &address.schema {
            self.schema.clone_from(schema);
        }
        self.pooled = address.pooled.unwrap_or(self.pooled);
        self
    }

    /// Limits numbers to the range that clocks and queues can represent.
    fn within_reason(mut self) -> Self {
        self.patience = self.patience.clamp(Duration::from_millis(10), Duration::from_secs(24 * 60 * 60));
        self.queue = self.queue.clamp(1, 1_000_000);
        self.readers = self.readers.clamp(1, 256);
        self.committers = self.committers.clamp(1, 64);
        self
    }
}

pub(crate) fn closed(location: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Closed, format!("using {location}"), "the store was closed")
}

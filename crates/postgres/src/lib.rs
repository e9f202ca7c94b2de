//! The Tidelock store on PostgreSQL: many machines, one order, group commit without a global lock.
//!
//! Callers that write at the same time share a transaction and a flush; a few committers work side by side. A batch is
//! decided by the model in this process, on rows that it remembers, and the server writes it only if those rows are
//! still as they were: one round trip for a commit. Positions become visible in order, though nobody locks the log (see
//! the book, decision 12). Everything lives in a schema of its own, `tidelock` unless told otherwise.
//!
//! ```no_run
//! use tidelock_core::store::{Batch, Expect, Store};
//! use tidelock_core::{key::Key, payload::Payload};
//! use tidelock_postgres::{Options, PostgresStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::open("postgres://app:secret@db.example.com/shop", Options::default()).await?;
//! let cart = Key::new("cart", ["user-17"])?;
//! store.apply(Batch::new().put(&cart, Expect::Absent, Payload::of(&["apples"])?)).await?;
//! assert!(store.document(&cart).await?.is_some());
//! # Ok(())
//! # }
//! ```

mod address;
mod cancel;
mod catch_up;
mod claim;
mod clock;
mod company;
mod connect;
mod db;
mod epoch;
mod error;
mod flush;
mod lock_visibility;
mod lock_wait;
pub mod migrate;
mod open;
mod queue;
mod read;
mod readers;
mod resolve;
mod rows;
mod scan_bounds;
mod session;
mod sql;
mod stalls;
mod store;
mod sweep;
mod tls;
mod transaction;
mod unreadable;
mod warm;
mod watch;
mod work_filter;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::Clock;
use tidelock_core::store::{Durability, StoreError, StoreErrorKind};

use crate::address::Address;

pub use open::connect;
pub use store::{PostgresStore, Stall, Stats};
pub use tokio_postgres;

/// How a store is opened. Every field has a default that is safe.
#[derive(Clone, Debug)]
pub struct Options {
    /// The schema that holds the store: small letters, digits and underscores. Default: `tidelock`.
    pub schema: String,
    /// What an acknowledgement is worth. Default: flushed to the device, by a server that is set to do so.
    pub durability: Durability,
    /// Where the store takes its time from. Default: the server's clock, which is the same for every machine.
    pub clock: Option<Arc<dyn Clock>>,
    /// How many groups of batches and claims may be under way at once. Default: 2.
    pub committers: usize,
    /// How many connections serve reads. Default: 8. Connections are made when they are needed.
    pub readers: usize,
    /// How many batches and claims may wait for a committer; further callers wait outside. Default: 4,096.
    pub queue: usize,
    /// How long a call waits for a connection, for a row that another transaction holds, or for an answer, before it fails.
    /// Choose more than a failover takes. Default: 60 s, which covers Patroni's defaults (30 s until the leader's key
    /// expires, 10 s until the next look, and the promotion).
    pub patience: Duration,
    /// Whether the schema is created and brought up to date at open. Default: yes. Without it, opening fails unless
    /// the schema is up to date, and the user needs no right to create anything.
    pub migrate: bool,
    /// Whether a pooler in transaction mode (PgBouncer and its like) stands between. Then no statement is prepared, and
    /// changes by other processes are noticed within a quarter of a second instead of at once, because LISTEN needs a
    /// connection of its own. Default: no.
    pub pooled: bool,
}

impl Default for Options {
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

impl Options {
    /// What the address says counts where it says something.
    fn with(mut self, address: &Address) -> Self {
        if let Some(schema) = &address.schema {
            self.schema.clone_from(schema);
        }
        self.pooled = address.pooled.unwrap_or(self.pooled);
        self
    }

    /// Numbers that no clock or queue can count to become the largest that they can.
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

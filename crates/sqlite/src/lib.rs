//! The Tidelock store on SQLite: one file, many tasks, many processes.
//!
//! One writer thread gives concurrent callers one transaction and one flush (group commit). A pool of readers never
//! waits for it. Several processes may share the file. The file is in WAL mode with `synchronous = FULL`, read back at
//! open, unless [`SqliteOptions::durability`] says otherwise.
//!
//! ```
//! use tidelock_core::store::{Batch, Expect, Store};
//! use tidelock_core::{key::Key, payload::Payload};
//! use tidelock_sqlite::{SqliteOptions, SqliteStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("shop.db");
//! let store = SqliteStore::open(&path, SqliteOptions::default()).await?;
//! let cart = Key::new("cart", ["user-17"])?;
//! store.apply(Batch::new().put(&cart, Expect::Absent, Payload::of(&["apples"])?)).await?;
//! assert!(store.document(&cart).await?.is_some());
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod claim;
mod clock;
mod commit_delay;
mod epoch;
mod error;
mod event_locator;
mod file_identity;
mod flush;
mod index_merge;
mod memtable;
mod migrate;
mod open;
mod queue;
mod read;
mod readers;
mod rows;
mod session;
mod shutdown;
mod store;
mod sweep;
mod transaction;
mod truncate;
mod watch;
mod work_filter;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock, SystemClock};
use tidelock_core::store::{Durability, StoreError, StoreErrorKind};

pub use rusqlite;
pub use store::{SqliteStats, SqliteStore};

/// The options of a store. Every field has a safe default.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// The durability of an acknowledged write. Default: flushed to the device.
    pub durability: Durability,
    /// The time source of the store. Default: the machine's clock.
    pub clock: Arc<dyn Clock>,
    /// How long a write waits for another process before it fails as busy. Default: 30 s.
    pub busy_timeout: Duration,
    /// The number of batches and claims that may wait for the writer. Further callers wait outside. Default: 4,096.
    pub queue: usize,
    /// The number of threads that serve reads. Default: 4.
    pub readers: usize,
    /// The largest size that the database may reach, in bytes. Default: as large as the device.
    pub max_bytes: Option<u64>,
    /// Whether a file that does not exist is created. Default: yes.
    pub create: bool,
    /// The number of events that may wait before they are merged into the index of streams. A higher number makes
    /// commits over many streams cheaper, and the first read after a start slower. Default: 32,768.
    pub unindexed: usize,
    /// Whether Tidelock's tables may be added to a database that holds another application's tables. Default: no, so
    /// that a mistaken path changes nothing. Turn it on to commit your own tables together with a batch
    /// ([`SqliteStore::apply_in`]).
    pub shared: bool,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            clock: SystemClock::shared(),
            busy_timeout: Duration::from_secs(30),
            queue: 4096,
            readers: 4,
            max_bytes: None,
            create: true,
            unindexed: 32_768,
            shared: false,
        }
    }
}

impl SqliteOptions {
    /// Limits numbers to the range that clocks and queues can represent.
    fn within_reason(mut self) -> Self {
        self.busy_timeout = self.busy_timeout.min(Duration::from_secs(24 * 60 * 60));
        self.queue = self.queue.clamp(1, 1_000_000);
        self.readers = self.readers.clamp(1, 64);
        self
    }
}

pub(crate) fn closed(path: &Path) -> StoreError {
    let what = format!("using the SQLite database {}", path.display());
    StoreError::new(StoreErrorKind::Closed, what, "the store was closed")
}

pub(crate) fn no_thread(error: &std::io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::CannotOpen, "starting a thread of the SQLite store", error.to_string())
}

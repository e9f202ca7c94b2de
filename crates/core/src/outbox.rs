//! Transactional outbox: messages to other systems are committed together with the changes that they announce, and sent
//! afterwards.
//!
//! A message that is sent before a commit may announce a change that never happens. A message that is sent after it is
//! lost if the process dies in between. So [`Outbox::put`] adds a message to any batch. A [`Sender`] claims the
//! committed message, passes it to a [`Deliver`], and retries until that succeeds. A message is delivered at least
//! once, always with the same [key](Delivery::key), by which the receiver can recognise a duplicate.
//!
//! Messages of an outbox are independent of each other, unless they are put [in order](Message::in_order). Then
//! messages to one destination are delivered one after the other, and one that cannot be delivered blocks those behind
//! it.
//!
//! A message whose attempts are used up is blocked. It stays in the store and is [listed](Outbox::list), and an
//! operator can [unblock](Outbox::unblock) or [discard](Outbox::discard) it. So is a message after a permanent
//! [`Failure`](crate::failure::Failure). A delivery that fails with `retry_after` or `defer` is not retried before that.
//!
//! ```
//! use std::sync::Arc;
//! use tidelock_core::outbox::{Delivery, Message, Outbox, Sender};
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::store::{Batch, Expect, MemoryStore, SharedStore};
//!
//! const MAILS: Outbox = Outbox::new("mails");
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let order = Batch::new().put(&Key::new("order", ["17"])?, Expect::Absent, Payload::of("3 apples")?);
//! let mail = Message::new("ada@example.com", "your order is placed")?.id("order-17");
//! store.apply(MAILS.put(order, &mail)?).await?; // both, or neither
//!
//! let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
//! let send = async move |mail: Delivery| {
//!     sent.send(format!("{}: {}", mail.key(), mail.destination()))?;
//!     Ok(())
//! };
//! let sending = Sender::new(store, MAILS, send).start().await?;
//! assert_eq!(seen.recv().await.as_deref(), Some("mails:order-17: ada@example.com"));
//! sending.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod deliver;
mod destinations;
mod error;
mod execution;
mod keys;
mod message;
mod sender;
mod view;

pub use deliver::{Deliver, Delivery};
pub use error::OutboxError;
pub use keys::{MAX_DESTINATION_BYTES, MAX_ID_BYTES, MAX_OUTBOX_BYTES};
pub use message::{Message, Outbox};
pub use sender::{OutboxEngine, Sender, SenderStats};
pub use view::{FoundMessage, MessageState, MessageView};

#[cfg(test)]
pub(crate) mod error_pages_tests;

//! Reactions: durable event handlers whose effects are applied exactly once per event, whichever process crashes.
//!
//! A [`Reaction`] has a name, a filter of events, and a handler. Each key (by default, each stream) has a row of work
//! with its own position. Keys run in parallel. The events of one key run in order, by one worker at a time over all
//! processes. The batch that a handler returns is committed together with the progress of its row, under the row's
//! lease. So its effects are applied once, even if the process dies in the middle or continues without noticing that it
//! has lost the row.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::reactions::{Reaction, Reactions};
//! use tidelock_core::store::{Batch, Expect, MemoryStore, NewEvent, SharedStore};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderPlaced {
//!     item: String,
//!     count: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//!
//! // For each order that is placed, stock is reserved: the document and the progress are one commit.
//! let reserve = Reaction::new("reserve-stock").on(["OrderPlaced"]).each(async |cx, event| {
//!     let order: OrderPlaced = event.payload.parse()?;
//!     let reserved = Key::new("reserved", [cx.key().to_string()])?;
//!     Ok(Batch::new().put(&reserved, Expect::Absent, Payload::of(&order)?))
//! });
//! let running = Reactions::new(Arc::clone(&store)).with(reserve).start().await?;
//!
//! let placed = Payload::of(&OrderPlaced { item: "apples".to_owned(), count: 3 })?;
//! let order = Key::new("order", ["o-1"])?;
//! let placed = NewEvent::new("OrderPlaced".parse()?, placed);
//! store.apply(Batch::new().append(&order, Expect::Absent, [placed])).await?;
//!
//! running.quiesce().await?; // for tests: returns when nothing is left to do
//! let reserved = store.document(&Key::new("reserved", [order.to_string()])?).await?;
//! assert!(reserved.is_some_and(|document| document.value.as_str().contains("apples")));
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # When a handler fails
//! Its effects are dropped; the effects of earlier events stay. The row backs off with full jitter, by a due time in
//! the store, and then resumes with the event that failed. When the [attempts](Reaction::retry) are used up, the key is
//! blocked, or the event is [parked](WhenExhausted) as a dead letter. An attempt counts when the row is granted, so an
//! event that kills its worker uses up attempts.
//!
//! The handler's [`Failure`](crate::failure::Failure) can say more. A permanent one blocks or parks at once,
//! [`retry_after`](crate::failure::Failure::retry_after) sets the shortest backoff, and
//! [`defer`](crate::failure::Failure::defer) handles the event at a later time without counting the attempt.
//!
//! # What a handler must know
//! - Effects in the returned batch are applied exactly once. Other side effects (a mail, another database, its own
//!   [`Store::apply`](crate::store::Store::apply)) happen at least once. Pass [`ReactionCtx::effect_key`] to the other system
//!   as idempotency key.
//! - If the store refuses its effects because of concurrent writes, the handler runs again at once.
//! - The handler is dropped when another worker may soon own its lease ([`ReactionCtx::cancelled`]). Nothing of it is written
//!   then.
//!
//! # Operators
//! Everything is a row or a document that can be read and rescheduled: see [`Operator`].

mod builder;
mod context;
mod decide;
mod definition;
pub(crate) mod effects;
mod engine;
mod error;
mod execution;
mod filter;
mod inbox;
mod invoke;
mod keys;
mod operation;
mod operator;
mod parked;
mod pending;
mod quiesce;
mod reaction;
mod register;
mod removal;
mod replay;
mod router;
mod row_note;
mod stats;
mod stored;
mod suspect;
mod typed;
mod view;

pub use builder::Reactions;
pub use context::ReactionCtx;
pub use effects::Effects;
pub use engine::ReactionEngine;
pub use error::ReactionsError;
pub use filter::ReactionFilter;
pub use keys::reaction_row;
pub use operation::{OperationPlan, OperatorVerb, clear_backoff};
pub use operator::Operator;
pub use pending::{Pending, PendingReason};
pub use quiesce::Quiescence;
pub use reaction::{Reaction, WhenExhausted};
pub use stats::{ReactionStats, ReactionsStats};
pub use stored::DefinitionState;
pub use typed::{EventCtx, TypedReaction};
pub use view::{ParkedEvent, ReactionKeyView, ReactionLag, ReactionView};

pub use crate::events::StartFrom;

#[cfg(test)]
mod tests;

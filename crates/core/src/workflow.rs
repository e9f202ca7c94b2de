//! Durable workflows: async functions whose steps run once, whatever crashes in between.
//!
//! A [`Workflow`] is a name with types. Its code is an async function that is [registered](Worker::register) with a
//! worker. The result of each operation on its [`Ctx`] is recorded in the run's journal before the next operation
//! starts. A process that dies loses nothing: another one replays the journal deterministically and continues.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidelock_core::store::{MemoryStore, SharedStore};
//! use tidelock_core::workflow::{WorkflowClient, Ctx, Failure, Signal, Worker, Workflow};
//!
//! const APPROVED: Signal<bool> = Signal::new("approved");
//! const ORDER: Workflow<u32, String> = Workflow::new("order").accepts(APPROVED);
//!
//! async fn order(cx: &Ctx, amount: u32) -> Result<String, Failure> {
//!     let receipt = cx.step("charge", async |step| charge(amount, &step.key()).await).await?;
//!     match cx.signal_timeout(APPROVED, Duration::from_secs(86_400)).await? {
//!         Some(true) => Ok(receipt),
//!         _ => Err(Failure::new("the order was not approved")),
//!     }
//! }
//!
//! async fn charge(amount: u32, idempotency_key: &str) -> Result<String, Failure> {
//!     Ok(format!("{amount} charged as {idempotency_key}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let worker = Worker::new(store.clone()).register(ORDER, order).start().await?;
//!
//! let run = WorkflowClient::new(store).start(ORDER, &42).id("order-17").await?;
//! run.signal(APPROVED, &true).await?;
//! assert_eq!(run.result().await?, "42 charged as order-17:charge");
//! worker.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod activation;
mod admin;
mod child;
mod client;
mod completion;
mod concurrency_slots;
mod context_guard;
mod ctx;
mod definition;
mod driver;
mod engine;
mod error;
mod index;
mod journal;
mod journal_entry;
mod keys;
mod life;
mod list;
mod load;
mod nondeterminism;
mod once;
mod queue;
mod queue_poller;
mod random;
mod rate_limit;
mod replay;
mod results;
mod resumed;
mod retention;
mod run_record;
mod saga;
mod start;
mod step;
mod step_tx;
mod steps;
mod suspension;
mod view;
mod worker;

pub use client::{PendingStart, RunHandle, StartRequest, WorkflowClient};
pub use ctx::Ctx;
pub use definition::{Signal, Workflow};
pub use engine::WorkflowEngine;
pub use error::WorkflowError;
pub use journal_entry::Attributes;
pub use list::{RunCursor, RunFilter, RunPage};
pub use once::{forget_once, once};
pub use queue::{MAX_QUEUE_CONCURRENCY, Queue, QueueLimits, Rate, seats_of};
pub use replay::{ReplayError, Replayed, RunHistory, replay};
pub use retention::{ArchivedRun, Retention};
pub use run_record::RunStatus;
pub use saga::Saga;
pub use step::Step;
pub use step_tx::TxStep;
pub use steps::{AttemptView, StepView};
pub use suspension::Suspension;
pub use view::{RunActivity, RunView};
pub use worker::{Worker, WorkerStats, WorkflowFn};

pub use crate::failure::Failure;
pub use crate::failure::step_error::StepError;

#[cfg(test)]
pub(crate) mod error_pages_tests;
#[cfg(test)]
mod tests;

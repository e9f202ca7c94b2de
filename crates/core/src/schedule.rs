//! Cron-style schedules: each firing runs once across all processes, whichever process crashes.
//!
//! A [`Schedule`] has a name, a schedule, and an action: an async function, or the start of a workflow. Its record in the
//! store says which firings are done. However many processes run a [`Scheduler`] with the same tasks, each firing runs
//! in one of them. If that process dies, another one takes over when the lease expires.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidelock_core::clock::ManualClock;
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::schedule::{Scheduler, Schedules, Schedule};
//! use tidelock_core::store::{Batch, Expect, MemoryStore, SharedStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(ManualClock::new("2026-01-05T02:29:00Z".parse()?));
//! let store: SharedStore = Arc::new(MemoryStore::with_clock(clock.clone()));
//!
//! // The returned batch is committed with the record that the task has run: once, or not at all.
//! let report = Schedule::new("report").cron("30 2 * * *").zone("UTC").run(async |tick| {
//!     let report = Key::new("report", [tick.key()])?;
//!     Ok(Batch::new().put(&report, Expect::Absent, Payload::null()))
//! });
//! let scheduler = Scheduler::new(Arc::clone(&store)).with(report).poll_interval(Duration::from_millis(5));
//! let running = scheduler.start().await?;
//! clock.advance(Duration::from_secs(60));
//! running.quiesce().await?; // for tests: returns when nothing is due and nothing runs
//!
//! assert!(store.document(&Key::new("report", ["report:2026-01-05T02:30:00Z"])?).await?.is_some());
//! let view = Schedules::new(store).show("report").await?;
//! assert_eq!(view.record.last_success_time, Some("2026-01-05T02:30:00Z".parse()?));
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What a task must know
//! - Effects in the returned batch are applied exactly once. Other side effects happen at least once: pass
//!   [`Tick::key`] to the other system as idempotency key.
//! - A run that fails is retried after the [retry delay](Schedule::retry), or later if its
//!   [`Failure`](crate::failure::Failure) asks for it with `retry_after` or `defer`. After a permanent failure the task waits for
//!   its next fire.
//! - A task never overlaps itself, unless [`Overlap::Allow`] is set.
//! - It is dropped when another process may soon own its lease ([`Tick::cancelled`]), after its timeout, and when a
//!   shutdown exceeds the shutdown timeout. Nothing of it is written then.

mod admin;
mod definition;
mod engine;
mod error;
mod execution;
mod history;
mod invoke;
mod keys;
mod overlapping;
mod reconcile;
mod record;
mod registration;
mod scheduler;
mod tick;
mod transition;
mod view;

pub use crate::model::cron::{CatchUp, CronError, DstGap, DstOverlap, Overlap};
pub use crate::reactions::Effects;
pub use admin::Schedules;
pub use definition::Schedule;
pub use engine::ScheduleEngine;
pub use error::ScheduleError;
pub use history::{TickEntry, TickOutcome};
pub use record::ScheduleRecord;
pub use scheduler::{Scheduler, SchedulerStats};
pub use tick::{Tick, TickKind};
pub use view::{ScheduleActivity, ScheduleView};

#[cfg(test)]
pub(crate) mod error_pages_tests;
#[cfg(test)]
mod tests;

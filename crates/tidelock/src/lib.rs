//! Tidelock keeps application state correct while many tasks, processes and machines work on it at once.
//!
//! Three kinds of rows and one write: *events* in streams, versioned *documents*, and *work*, rows that one worker at a
//! time may lease. [`Store::apply`] changes any of them in one batch, all or nothing.
//!
//! ```
//! use tidelock::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let order = Key::new("order", ["o-1"])?;
//! let stock = Key::new("stock", ["apples"])?;
//! store.apply(Batch::new().put(&stock, Expect::Absent, Payload::from_json(r#"{"left": 10}"#)?)).await?;
//!
//! // The event, the state it changes and the work it causes commit together, or not at all.
//! let placed = NewEvent::new("OrderPlaced".parse()?, Payload::of(&3)?);
//! let batch = Batch::new()
//!     .append(&order, Expect::Absent, [placed])
//!     .merge(&stock, [Delta::inc("/left", -3)])
//!     .enqueue(NewWork::once(Key::new("mail", ["o-1"])?, "mails".parse()?));
//! let receipt = store.apply(batch).await?;
//! assert_eq!(receipt.documents[0].version, DocVersion(2));
//! # Ok(())
//! # }
//! ```
//!
//! The engines build on these rows: [`lock`] and [`lease`] for exclusion, [`state`] for values with many writers,
//! [`events`] and [`reactions`] for aggregates and their consequences. [`workflow`] runs async functions whose steps
//! survive the death of their process, and [`schedule`] runs cron-style tasks.

pub use tidelock_core::store::Store;
pub use tidelock_core::{
    authority, books, clock, codes, error, events, housekeeping, id, key, lease, lock, model, outbox,
    payload, projections, reactions, schedule, state, store, telemetry, worker, workflow,
};

/// Idempotency keys for repeated requests and, with the feature `edge`, the layer for HTTP.
pub mod edge {
    pub use tidelock_core::edge::*;
    #[cfg(feature = "edge")]
    pub use tidelock_edge as http;
}

#[cfg(feature = "files")]
pub use tidelock_files as files;
#[cfg(feature = "otel")]
pub use tidelock_otel as otel;
#[cfg(feature = "postgres")]
pub use tidelock_postgres as postgres;
#[cfg(feature = "sealed")]
pub use tidelock_sealed as sealed;
#[cfg(feature = "sqlite")]
pub use tidelock_sqlite as sqlite;

/// Everything that a program usually needs: `use tidelock::prelude::*`.
pub mod prelude {
    pub use tidelock_core::clock::{Clock, Due, ManualClock, SystemClock, Timestamp};
    pub use tidelock_core::error::{Explain, Outcome, Retry};
    pub use tidelock_core::events::{Aggregate, Events};
    pub use tidelock_core::id::{
        DocVersion, EventId, EventType, Fence, Lane, OpId, Owner, Position, Priority, StreamVersion,
    };
    pub use tidelock_core::key::{Arg, Key, KeyPrefix};
    pub use tidelock_core::lease::{Held, LeaseError, LostReason};
    pub use tidelock_core::lock::{Functor, Guard, LockError, Locks, Mode, Modes, Term};
    pub use tidelock_core::payload::Payload;
    pub use tidelock_core::state::{Container, Scope, StateError, States};
    pub use tidelock_core::store::{
        ApplyError, Batch, Claim, Claimed, Delta, Expect, Grant, Lease, LogQuery, MemoryStore, NewEvent,
        NewWork, Page, Receipt, Refusal, SharedStore, Store, StoreError, StreamQuery,
    };

    #[cfg(feature = "files")]
    pub use tidelock_files::{FilesStore, Options as FilesOptions};
    #[cfg(feature = "postgres")]
    pub use tidelock_postgres::{Options as PostgresOptions, PostgresStore};
    #[cfg(feature = "sqlite")]
    pub use tidelock_sqlite::{Options as SqliteOptions, SqliteStore};
}

#[cfg(all(doctest, feature = "sqlite"))]
mod book;
#[cfg(doctest)]
mod mistakes;

/// The example of the README, compiled and run as a documentation test.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

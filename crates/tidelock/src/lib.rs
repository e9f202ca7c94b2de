//! Tidelock keeps application state correct while many tasks, processes and machines work on it concurrently.
//!
//! [`Tidelock`] is a handle of a store: one SQLite file, a PostgreSQL database, or memory. It offers keyed locks, leases with
//! fencing tokens, state with compare-and-swap, event streams, durable workflows, schedules and idempotency keys. A
//! [`Service`] runs the workers of a process.
//!
//! ```
//! use tidelock::prelude::*;
//!
//! const GREET: Workflow<String, String> = Workflow::new("greet");
//!
//! async fn greet(cx: &Ctx, name: String) -> Result<String, Failure> {
//!     let greeting = cx.step("write", async |_| Ok(format!("Hello, {name}!"))).await?; // recorded: runs once
//!     Ok(greeting)
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), tidelock::Error> {
//! let tide = Tidelock::open("memory:").await?; // sqlite:app.db, postgres://…
//! let service = tide.service().workflow(GREET, greet).start().await?;
//!
//! tide.state::<u64>(("visits", "ann")).mutate(|count| *count += 1).await?;
//! let run = tide.start(GREET, &"Ann".to_owned()).id("greet-ann").await?;
//! assert_eq!(run.result().await?, "Hello, Ann!");
//! service.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Beneath the engines there are three kinds of rows and one write. *Events* belong to streams, *documents* are versioned
//! values, and *work* rows are leased to one worker at a time. [`Tidelock::apply`] changes any of them in one batch, all
//! or nothing.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod aggregate;
mod caller_error;
mod handle;
mod open;
mod service;
mod transaction;
mod url;

pub use aggregate::AggregateHandle;
pub use caller_error::{Error, ErrorKind};
pub use handle::Tidelock;
pub use open::OpenOptions;
pub use service::{Leadership, Service, ServiceHandle, ServiceReport};
pub use tidelock_core::failure::Failure;
pub use transaction::{CallerTransaction, StartWithin};
pub use url::StoreUrl;

pub use tidelock_core::store::Store;
pub use tidelock_core::{
    archive, clock, codes, error, events, external_update, housekeeping, id, idempotency, key, lease, lock,
    model, outbox, payload, projections, reactions, schedule, state, store, telemetry, worker, workflow,
};

#[cfg(feature = "http")]
pub use tidelock_http as http;

#[cfg(feature = "files")]
pub use tidelock_files as files;
#[cfg(feature = "otel")]
pub use tidelock_otel as otel;
#[cfg(feature = "postgres")]
pub use tidelock_postgres as postgres;
#[cfg(feature = "sealed")]
pub use tidelock_sealed as sealed;
#[cfg(feature = "server")]
pub use tidelock_server as server;
#[cfg(feature = "sqlite")]
pub use tidelock_sqlite as sqlite;

/// The names that most programs need: `use tidelock::prelude::*`. The modules have the rest, and everything for the author of a
/// backend.
pub mod prelude {
    pub use tidelock_core::clock::{Clock, Due, ManualClock, Timestamp};
    pub use tidelock_core::error::{Explain, Outcome, Retry};
    pub use tidelock_core::events::{Aggregate, Events, ExecuteError};
    pub use tidelock_core::failure::Failure;
    pub use tidelock_core::id::{
        DocVersion, EventId, EventType, Fence, OpId, Owner, Position, Priority, QueueName, StreamVersion,
    };
    pub use tidelock_core::idempotency::{Reservation, StoredResponse};
    pub use tidelock_core::key::{Arg, IntoKey, Key, KeyPrefix};
    pub use tidelock_core::lease::LeaseGuard;
    pub use tidelock_core::lock::{LockClass, Locks, Mode, Modes};
    pub use tidelock_core::model::retry::RetryPolicy;
    pub use tidelock_core::outbox::{Delivery, Message, Outbox};
    pub use tidelock_core::payload::Payload;
    pub use tidelock_core::projections::{Projection, Rows};
    pub use tidelock_core::reactions::{Effects, Reaction, ReactionCtx};
    pub use tidelock_core::schedule::{Schedule, Tick};
    pub use tidelock_core::state::{Scope, State, StateRegistry};
    pub use tidelock_core::store::{
        ApplyError, Batch, Claim, Delta, Expect, LogQuery, MemoryStore, NewEvent, NewWork, Page, Receipt,
        Refusal, SharedStore, Store, StreamQuery,
    };
    pub use tidelock_core::workflow::{Ctx, Queue, Signal, Step, Workflow};

    pub use crate::{ErrorKind, Service, ServiceHandle, StartWithin, Tidelock};

    #[cfg(feature = "files")]
    pub use tidelock_files::{FilesOptions, FilesStore};
    #[cfg(feature = "postgres")]
    pub use tidelock_postgres::{PostgresOptions, PostgresStore};
    #[cfg(feature = "sqlite")]
    pub use tidelock_sqlite::{SqliteOptions, SqliteStore};
}

#[cfg(all(doctest, feature = "sqlite"))]
mod book;
#[cfg(doctest)]
mod mistakes;

/// The example of the README, compiled and run as a documentation test.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct ReadmeDoctests;

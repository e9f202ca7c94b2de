//! Core of Tidelock: keys, time, pure decisions, the [`Store`](store::Store) contract and its in-memory reference.
//!
//! There are three kinds of rows and one write. *Events* belong to streams, *documents* are versioned values, and
//! *work* rows are leased to one worker at a time. [`Store::apply`](store::Store::apply) changes any of them
//! atomically, and [`Store::claim`](store::Store::claim) is the only contended operation.
//!
//! The modules form layers, and each uses only those before it: [`id`], [`key`], [`payload`], [`clock`], [`error`],
//! [`failure`], [`process`] →
//! [`runtime`] (timers and backoff) → [`telemetry`] → [`lock`] (exclusion inside one process) → [`model`] (pure
//! decisions) → [`store`] (the contract) → [`worker`] (claims, leases and executes work) → [`lease`] (exclusion across
//! processes), [`state`] (shared values) and the other engines. This crate contains no database driver and no HTTP.

pub mod archive;
pub mod clock;
pub mod error;
pub mod events;
pub mod external_update;
pub mod failure;
pub mod housekeeping;
pub mod id;
pub mod idempotency;
pub mod key;
pub mod lease;
pub mod lock;
pub mod model;
pub mod outbox;
pub mod payload;
pub mod process;
pub mod projections;
pub mod reactions;
pub mod runtime;
pub mod schedule;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod worker;
pub mod workflow;

//! The heart of Tidelock: keys, time, pure decisions, the [`Store`](store::Store) contract and its in-memory reference.
//!
//! Three nouns and one write. *Facts* are events in streams, *state* is versioned documents, *work* is rows that one
//! worker at a time may hold. [`Store::apply`](store::Store::apply) changes any of them, all or nothing, and
//! [`Store::claim`](store::Store::claim) is the only contended pick-up.
//!
//! Modules stand in layers, and each uses only those before it:
//! [`id`], [`key`], [`payload`], [`clock`], [`error`] → [`runtime`] (timers and backoff) → [`telemetry`] → [`lock`]
//! (exclusion inside one process) → [`model`] (pure decisions) → [`store`] (the contract) → [`worker`] (claims, leases
//! and executes work) → [`lease`] (exclusion across processes), [`state`] (values that many change) and the other engines.
//! There is no driver and no HTTP in this crate.

pub mod authority;
pub mod books;
pub mod clock;
pub mod edge;
pub mod error;
pub mod events;
pub mod housekeeping;
pub mod id;
pub mod key;
pub mod lease;
pub mod lock;
pub mod model;
pub mod outbox;
pub mod payload;
pub mod projections;
pub mod reactions;
pub mod runtime;
pub mod schedule;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod worker;
pub mod workflow;

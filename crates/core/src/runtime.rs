//! The floor under every engine: timers, backoff, jitter, panic isolation and background runtimes.
//!
//! Nothing here knows a store, a lock or a row. Engines wait, retry and call user code through these modules alone, so
//! that each rule exists once.

pub mod background;
pub mod backoff;
pub(crate) mod contention;
pub mod jitter;
pub(crate) mod panic;
pub(crate) mod timer;

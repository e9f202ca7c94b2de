//! Runtime services of every engine: timers, backoff, jitter, panic isolation and background runtimes.
//!
//! This module does not depend on stores, locks or rows. Engines wait, retry and call user code only through it, so
//! that each rule exists once.

pub mod background;
pub mod backoff;
pub(crate) mod contention;
pub mod jitter;
pub(crate) mod panic;
pub(crate) mod timer;

//! The handlers, by noun.

pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod state;
pub(crate) mod streams;
pub(crate) mod work;

//! Request handlers, one module for each noun.

pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod info;
pub(crate) mod leases;
pub(crate) mod locks;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod reactions;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod state;
pub(crate) mod streams;
pub(crate) mod work;

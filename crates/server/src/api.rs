//! Request handlers, one module for each resource.

pub(crate) mod about;
pub(crate) mod forks;
pub(crate) mod health;
pub(crate) mod leases;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod overview;
pub(crate) mod past;
pub(crate) mod reactions;
pub(crate) mod rows;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod state;
pub(crate) mod streams;
pub(crate) mod tasks;
pub(crate) mod work;

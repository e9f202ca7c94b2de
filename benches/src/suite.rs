//! The suites. Phases run in short slices, in rounds, beside their baselines; each ratio is the median of the rounds' ratios.

mod duration;
pub(crate) mod events;
mod fixture;
pub(crate) mod lock;
mod server;
pub(crate) mod state;
pub(crate) mod store;
mod work_files;
pub(crate) mod workflow;

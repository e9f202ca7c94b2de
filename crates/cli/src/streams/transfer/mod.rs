//! `tidelock streams export` and `import`: streams as lines of JSON.

mod export;
mod format;
mod import;
mod import_error;
mod plan;

pub(super) use export::run as export;
pub(super) use import::run as import;

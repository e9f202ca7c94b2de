//! The event log as a whole: the tail of the log, and notifications of changes.

mod changes;
mod tail;

pub(crate) use changes::changes;
pub(crate) use tail::tail;

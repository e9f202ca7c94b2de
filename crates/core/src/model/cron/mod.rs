//! Fire times of scheduled tasks: expressions, zones, and policies for missed fires. Pure, like all of the model.
//!
//! - [`Trigger`] is the time specification: a cron expression, an interval, or one instant.
//! - [`Recurrence`] adds the zone and the policies, and returns the next fire after an instant.
//! - [`Progress`] is the progress of a task on its timetable; [`plan`](plan()) decides the next action.

mod error;
mod expression;
mod plan;
mod progress;
mod recurrence;
mod trigger;
mod zone;

pub use error::CronError;
pub use expression::Expression;
pub use plan::{CatchUp, Overlap, ScheduleAction, ScheduleState, plan, retry_at};
pub use progress::{Progress, Span};
pub use recurrence::{DstGap, DstOverlap, Recurrence};
pub use trigger::Trigger;
pub use zone::Zone;

#[cfg(test)]
mod tests;

//! Fire times of scheduled tasks: expressions, zones, and policies for missed fires. Pure, like all of the model.
//!
//! - [`When`] is the time specification: a cron expression, an interval, or one instant.
//! - [`Timetable`] adds the zone and the policies, and returns the next fire after an instant.
//! - [`Progress`] is the progress of a task on its timetable; [`plan`](plan()) decides the next action.

mod error;
mod expression;
mod plan;
mod progress;
mod timetable;
mod when;
mod zone;

pub use error::CronError;
pub use expression::Expression;
pub use plan::{CatchUp, Overlap, Plan, Situation, plan, retry_at};
pub use progress::{Progress, Span};
pub use timetable::{Gap, Repeat, Timetable};
pub use when::When;
pub use zone::Zone;

#[cfg(test)]
mod tests;

//! When tasks fire: expressions, zones, and what is done about fires that were missed. Pure, like all of the model.
//!
//! - [`When`] is what people write: a cron expression, an interval, or one instant.
//! - [`Timetable`] adds the zone and the policies, and answers which fire comes after an instant.
//! - [`Progress`] is how far a task is on its timetable; [`plan`](plan()) says what is to be done now.

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

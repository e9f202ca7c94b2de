//! Example errors of schedules for their documentation pages. `error/pages/tests.rs` compares them.

use super::ScheduleError;
use crate::clock::Timestamp;
use crate::error::pages::tests::{Examples, boxed};
use crate::model::cron::{Trigger, Zone};

/// Returns one error for each code of schedules.
pub(crate) fn examples() -> Examples {
    let task = || "report".to_owned();
    let times = |error| ScheduleError::Times { task: task(), error };
    let since = Timestamp::from_micros(1_000_000_000_000_000);
    let known = vec!["bills".to_owned(), "report".to_owned()];
    boxed([
        times("0 0 30 2 *".parse::<Trigger>().unwrap_err()),
        times(Zone::parse("Europe/Bärlin").unwrap_err()),
        ScheduleError::Incomplete {
            task: task(),
            missing: "no times; give it some with cron(), every() or at()",
        },
        ScheduleError::Twice { task: task() },
        ScheduleError::UnknownTask { task: "reprot".to_owned(), known },
        ScheduleError::Archived { task: task(), since },
        ScheduleError::Broken {
            task: task(),
            reason: "the payload does not fit: missing field `spec`".to_owned(),
        },
        ScheduleError::TooMany { task: task(), what: "10001 fires".to_owned(), limit: 10_000 },
        ScheduleError::NoRuntime,
    ])
}

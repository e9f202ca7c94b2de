//! The current activity of a run, in words.

use tidelock::workflow::{Doing, Status};

use crate::output::{self, Tone};

/// Returns the activity in a few words, on one line.
pub(super) fn words(doing: &Doing) -> String {
    match doing {
        Doing::Driven { by, .. } => format!("driven by {}", output::flat(by.as_str())),
        Doing::Due => "due".to_owned(),
        Doing::Waits { until: Some(until) } => format!("waits until {}", output::instant(*until)),
        Doing::Waits { until: None } => "waits".to_owned(),
        Doing::PutOff { reason, .. } => format!("put off: {}", output::flat(reason)),
        Doing::Blocked { reason } => format!("blocked: {}", output::flat(reason)),
        Doing::Over => "-".to_owned(),
    }
}

/// Returns the activity with all details.
pub(super) fn whole(doing: &Doing) -> String {
    match doing {
        Doing::Driven { until, fence, .. } => {
            format!("{} until {} at least, fence {fence}", words(doing), output::instant(*until))
        }
        Doing::Waits { until: None } => "waits for signals or children".to_owned(),
        Doing::PutOff { reason, next, .. } => {
            format!("backoff until {}: {}", output::instant(*next), output::flat(reason))
        }
        Doing::Over => "nothing: it is over".to_owned(),
        _ => words(doing),
    }
}

/// Returns the highlighting of a status.
pub(super) fn tone(status: Status) -> Tone {
    match status {
        Status::Running => Tone::Bold,
        Status::Completed => Tone::Good,
        Status::Failed => Tone::Bad,
        Status::Cancelled => Tone::Caution,
    }
}

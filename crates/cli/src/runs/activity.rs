//! The current activity of a run, in words.

use tidelock::workflow::{RunActivity, RunStatus};

use crate::output::{self, Tone};

/// Returns the activity in a few words, on one line.
pub(super) fn words(doing: &RunActivity) -> String {
    match doing {
        RunActivity::Driven { by, .. } => format!("driven by {}", output::flat(by.as_str())),
        RunActivity::Due => "due".to_owned(),
        RunActivity::Waits { until: Some(until) } => format!("waits until {}", output::instant(*until)),
        RunActivity::Waits { until: None } => "waits".to_owned(),
        RunActivity::Suspended { reason, .. } => format!("suspended: {}", output::flat(reason)),
        RunActivity::Blocked { reason } => format!("blocked: {}", output::flat(reason)),
        RunActivity::Over => "-".to_owned(),
    }
}

/// Returns the activity with all details.
pub(super) fn whole(doing: &RunActivity) -> String {
    match doing {
        RunActivity::Driven { until, fence, .. } => {
            format!("{} until {} at least, fence {fence}", words(doing), output::instant(*until))
        }
        RunActivity::Waits { until: None } => "waits for signals or children".to_owned(),
        RunActivity::Suspended { reason, next, .. } => {
            format!("suspended until {}: {}", output::instant(*next), output::flat(reason))
        }
        RunActivity::Over => "nothing: it is over".to_owned(),
        _ => words(doing),
    }
}

/// Returns the highlighting of a status.
pub(super) fn tone(status: RunStatus) -> Tone {
    match status {
        RunStatus::Running => Tone::Bold,
        RunStatus::Completed => Tone::Good,
        RunStatus::Failed => Tone::Bad,
        RunStatus::Cancelled => Tone::Caution,
    }
}

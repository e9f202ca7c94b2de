//! Progress bars on standard error, hidden unless it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar that is cleared when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar of `steps` steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Sets the message.
    pub fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Advances by `steps`.
    pub fn done(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

//! A bar on standard error while something takes long; nothing at all when nobody watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The bar. It goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of so many steps. It is hidden unless standard error is a terminal.
    pub(crate) fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {elapsed:>4} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }

    /// Says what is going on.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Some steps are done.
    pub(crate) fn done(&self, steps: u64) {
        self.0.inc(steps);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

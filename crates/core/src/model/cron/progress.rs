//! Progress of a task on its timetable, and the fires that have run.
//!
//! Normally the progress is one instant, and everything up to it is decided. When a clock goes back, a fire that has run must
//! not run again. A fire that has not run must not wait until the clock has caught up. The progress therefore keeps the fires
//! that ran as spans. The gaps between them, which are skipped fires, are open again.

use serde::{Deserialize, Serialize};

use super::Recurrence;
use crate::clock::Timestamp;

/// The maximum number of spans. Beyond it the oldest are joined, and skipped fires between them stay skipped.
const SPANS: usize = 16;

/// The instants after one and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The exclusive start.
    pub after: Timestamp,
    /// The inclusive end.
    pub to: Timestamp,
}

impl Span {
    /// Returns whether the span contains an instant.
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        self.after < at && at <= self.to
    }
}

/// The progress of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The instant up to which everything is decided.
    pub cursor: Timestamp,
    /// Spans in which every fire has run. They are in ascending order and do not touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<Span>,
}

impl Progress {
    /// Creates a progress at which nothing has run. Fires up to this instant never run.
    #[must_use]
    pub fn beginning(at: Timestamp) -> Self {
        Self { cursor: at, ran: Vec::new() }
    }

    /// Observes the current time. If the clock has gone back, later fires are open again unless they have run.
    pub fn observe(&mut self, now: Timestamp) {
        self.cursor = self.cursor.min(now);
    }

    /// Returns the first open fire.
    #[must_use]
    pub fn next(&self, timetable: &Recurrence) -> Option<Timestamp> {
        self.next_after(timetable, self.cursor)
    }

    /// Returns the first fire after an instant that has not run.
    #[must_use]
    pub fn next_after(&self, timetable: &Recurrence, after: Timestamp) -> Option<Timestamp> {
        let mut after = after;
        loop {
            let fire = timetable.next(after)?;
            match self.ran.iter().find(|span| span.contains(fire)) {
                Some(span) => after = span.to,
                None => return Some(fire),
            }
        }
    }

    /// Records that a fire runs. Earlier open fires are skipped.
    pub fn run(&mut self, timetable: &Recurrence, fire: Timestamp) {
        let passed_over = self.next(timetable).is_some_and(|first| first < fire);
        let just_before = Timestamp::from_micros(fire.as_micros().saturating_sub(1));
        let after = if passed_over { just_before } else { self.cursor.min(just_before) };
        self.ran.push(Span { after, to: fire });
        self.join();
        self.cursor = fire;
    }

    /// Skips fires up to an instant.
    pub fn pass(&mut self, to: Timestamp) {
        self.cursor = self.cursor.max(to);
    }

    fn join(&mut self) {
        self.ran.sort_by_key(|span| span.after);
        let mut joined: Vec<Span> = Vec::with_capacity(self.ran.len());
        for span in self.ran.drain(..) {
            match joined.last_mut() {
                Some(last) if last.to >= span.after => last.to = last.to.max(span.to),
                _ => joined.push(span),
            }
        }
        while joined.len() > SPANS {
            let oldest = joined.remove(0);
            if let Some(next) = joined.first_mut() {
                next.after = oldest.after;
            }
        }
        self.ran = joined;
    }
}

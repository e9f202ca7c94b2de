//! How far a task is on its timetable, and which fires have run.
//!
//! Normally that is one instant: everything up to it is decided. When a clock goes back, what has run must not run again, and
//! what has not must not wait until the clock is where it was. So the fires that ran are kept as spans, and the holes between
//! them, fires that were passed over, are open once more.

use serde::{Deserialize, Serialize};

use super::Timetable;
use crate::clock::Timestamp;

/// How many spans are kept. Beyond that, the oldest are joined: what lay between them does not fire again.
const SPANS: usize = 16;

/// The instants after one and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Not this one.
    pub after: Timestamp,
    /// This one, too.
    pub to: Timestamp,
}

impl Span {
    /// Whether an instant lies in it.
    #[must_use]
    pub fn contains(&self, at: Timestamp) -> bool {
        self.after < at && at <= self.to
    }
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Everything up to here is decided.
    pub cursor: Timestamp,
    /// In these spans, every fire has run. They rise and do not touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<Span>,
}

impl Progress {
    /// Nothing has run, and what comes up to this instant never will.
    #[must_use]
    pub fn beginning(at: Timestamp) -> Self {
        Self { cursor: at, ran: Vec::new() }
    }

    /// Takes notice of the time: if the clock has gone back, what comes is open again, except for what has run.
    pub fn look(&mut self, now: Timestamp) {
        self.cursor = self.cursor.min(now);
    }

    /// The first fire that is still open.
    #[must_use]
    pub fn next(&self, timetable: &Timetable) -> Option<Timestamp> {
        self.next_after(timetable, self.cursor)
    }

    /// The first fire after an instant that has not run.
    #[must_use]
    pub fn next_after(&self, timetable: &Timetable, after: Timestamp) -> Option<Timestamp> {
        let mut after = after;
        loop {
            let fire = timetable.next(after)?;
            match self.ran.iter().find(|span| span.contains(fire)) {
                Some(span) => after = span.to,
                None => return Some(fire),
            }
        }
    }

    /// A fire runs. Those before it that were still open are passed over.
    pub fn run(&mut self, timetable: &Timetable, fire: Timestamp) {
        let passed_over = self.next(timetable).is_some_and(|first| first < fire);
        let just_before = Timestamp::from_micros(fire.as_micros().saturating_sub(1));
        let after = if passed_over { just_before } else { self.cursor.min(just_before) };
        self.ran.push(Span { after, to: fire });
        self.join();
        self.cursor = fire;
    }

    /// Fires up to an instant are passed over.
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

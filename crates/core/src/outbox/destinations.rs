//! Concurrency limit per destination (bulkhead). A slow destination holds some slots of a sender, and never all of them.
//!
//! A sender learns the destination of a message when it has claimed it. At the limit it waits briefly for a delivery to
//! end. Then it defers the message by the estimated duration of the deliveries before it. A slow destination has a lower
//! limit and no such wait, so that its backlog passes through the claims quickly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::process;
use crate::runtime::timer::sleep_until;

/// The longest wait for a slot of the destination, before the message is deferred.
const PATIENCE: Duration = Duration::from_millis(20);
/// The delivery duration from which a destination is slow.
const SLOW: Duration = Duration::from_secs(1);
/// The bounds of a deferral.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(1);
/// The number of destinations from which on idle ones are dropped.
const REMEMBERED: usize = 1_000;

/// The destinations of the deliveries in flight, and slow destinations.
#[derive(Debug)]
pub(super) struct Destinations {
    /// The limit of a destination, and the limit of a slow one.
    limits: (usize, usize),
    all: Mutex<HashMap<String, Destination>>,
}

#[derive(Debug)]
struct Destination {
    /// The start of each delivery in flight, by its number.
    in_flight: Vec<(u64, Instant)>,
    next: u64,
    /// The moving average of the delivery duration.
    took: Duration,
    /// The estimated time at which the deferred messages are delivered.
    through: Instant,
    freed: Arc<Notify>,
}

/// A delivery in flight.
#[derive(Debug)]
pub(super) struct Slot {
    destinations: Arc<Destinations>,
    name: String,
    number: u64,
}

/// The reason why no slot was acquired.
enum Full {
    /// A slot will be free soon.
    Wait(Arc<Notify>),
    /// The message must be deferred by this duration.
    Defer(Duration),
}

impl Destinations {
    /// Creates the limits. By default they are three quarters of a sender's slots, and a quarter for slow destinations.
    pub(super) fn new(limit: Option<usize>, slots: usize) -> Arc<Self> {
        let quarter = (slots / 4).max(1);
        let limits = limit.map_or((slots.saturating_sub(quarter).max(1), quarter), |limit| (limit, limit));
        Arc::new(Self { limits, all: Mutex::default() })
    }

    /// Acquires a slot of a destination.
    ///
    /// # Errors
    /// Returns the duration by which to defer the message when all slots are taken.
    pub(super) async fn enter(self: &Arc<Self>, name: &str) -> Result<Slot, Duration> {
        let deadline = process::now() + PATIENCE;
        loop {
            let freed = match self.try_enter(name, process::now() >= deadline) {
                Ok(slot) => return Ok(slot),
                Err(Full::Defer(by)) => return Err(by),
                Err(Full::Wait(freed)) => freed,
            };
            tokio::select! {
                biased;
                () = freed.notified() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn try_enter(self: &Arc<Self>, name: &str, late: bool) -> Result<Slot, Full> {
        let now = process::now();
        let mut all = self.all.lock();
        if !all.contains_key(name) && all.len() >= REMEMBERED {
            all.retain(|_, known| !known.in_flight.is_empty());
        }
        let known = all.entry(name.to_owned()).or_insert_with(|| Destination::new(now));
        let slow = known.expected(now) >= SLOW;
        let limit = if slow { self.limits.1 } else { self.limits.0 };
        if known.in_flight.len() < limit {
            let number = known.next;
            known.next = known.next.wrapping_add(1);
            known.in_flight.push((number, now));
            return Ok(Slot { destinations: Arc::clone(self), name: name.to_owned(), number });
        }
        if !slow && !late {
            return Err(Full::Wait(Arc::clone(&known.freed)));
        }
        let share = u32::try_from(limit).unwrap_or(u32::MAX);
        known.through = known.through.max(now) + known.expected(now).max(SHORTEST) / share;
        Err(Full::Defer(known.through.duration_since(now).clamp(SHORTEST, LONGEST)))
    }
}

impl Destination {
    fn new(now: Instant) -> Self {
        let (in_flight, freed) = (Vec::new(), Arc::new(Notify::new()));
        Self { in_flight, next: 0, took: Duration::ZERO, through: now, freed }
    }

    /// Returns the expected duration of a delivery: the average, or the age of the oldest delivery in flight if that is
    /// longer.
    fn expected(&self, now: Instant) -> Duration {
        let oldest = self.in_flight.iter().map(|(_, began)| now.duration_since(*began)).max();
        self.took.max(oldest.unwrap_or_default())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self.destinations.all.lock();
        let Some(known) = all.get_mut(&self.name) else { return };
        let ended = known.in_flight.iter().position(|(number, _)| *number == self.number);
        if let Some((_, began)) = ended.map(|place| known.in_flight.swap_remove(place)) {
            known.took = (known.took * 3 + process::elapsed(began)) / 4;
        }
        known.freed.notify_one();
        if known.in_flight.is_empty() && known.took < SLOW {
            all.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[tokio::test]
    async fn a_destination_never_holds_all_slots() {
        let all = Destinations::new(None, 8);
        let mut held = Vec::new();
        for _ in 0..6 {
            held.push(all.enter("slow").await.unwrap());
        }
        let deferred = all.enter("slow").await.unwrap_err();
        assert!((SHORTEST..=LONGEST).contains(&deferred));
        drop(all.enter("fast").await.unwrap());
        held.pop();
        held.push(all.enter("slow").await.unwrap());
        drop(held);
        assert!(all.all.lock().is_empty(), "those that are fast and idle are forgotten");
    }

    #[tokio::test]
    async fn a_message_waits_for_a_destination_that_is_fast() {
        let all = Destinations::new(Some(1), 8);
        let held = all.enter("one").await.unwrap();
        let (next, ()) = tokio::join!(all.enter("one"), async {
            tokio::task::yield_now().await;
            drop(held);
        });
        drop(next.unwrap());
    }

    #[test]
    fn the_backlog_of_a_slow_destination_is_spread() {
        let all = Destinations::new(None, 8);
        let now = Instant::now();
        let slow = Destination { took: 4 * SLOW, ..Destination::new(now) };
        all.all.lock().insert("slow".to_owned(), slow);
        let held: Vec<Slot> = (0..2).map(|_| all.try_enter("slow", false).ok().unwrap()).collect();
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            let Err(Full::Defer(by)) = all.try_enter("slow", false) else { panic!("two are in flight") };
            assert!(by >= before && by - before <= 3 * SLOW, "{by:?} after {before:?}");
            before = by;
        }
        assert!(before > 30 * SLOW, "{before:?}");
        drop(held);
    }
}

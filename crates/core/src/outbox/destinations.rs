//! Concurrency limit per destination, a bulkhead: one that is slow holds some slots of a sender, and never all of them.
//!
//! A sender learns the destination of a message when it has claimed it. At the limit it waits a moment for one of the deliveries
//! to end, and then defers the message by about as long as those in front of it will take. A destination whose deliveries last
//! long has a lower limit and no such moment, so that its backlog passes through the claims quickly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::runtime::timer::sleep_until;

/// How long a message waits for a slot of its destination before it is deferred.
const PATIENCE: Duration = Duration::from_millis(20);
/// A destination whose deliveries last that long is slow.
const SLOW: Duration = Duration::from_secs(1);
/// The bounds of a deferral.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(1);
/// How many destinations are remembered that have nothing in flight.
const REMEMBERED: usize = 1_000;

/// The destinations of the deliveries in flight, and of slow ones.
#[derive(Debug)]
pub(super) struct Destinations {
    /// The limit for a destination, and for a slow one.
    limits: (usize, usize),
    all: Mutex<HashMap<String, Destination>>,
}

#[derive(Debug)]
struct Destination {
    /// When each delivery in flight began, by its number.
    in_flight: Vec<(u64, Instant)>,
    next: u64,
    /// The usual duration of a delivery.
    took: Duration,
    /// When those that were deferred will be through.
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

/// No slot is free.
enum Full {
    /// One will be soon.
    Wait(Arc<Notify>),
    /// The message is to be deferred by so long.
    Defer(Duration),
}

impl Destinations {
    /// Destinations with this limit, or with three quarters of the slots of a sender, and a quarter for slow ones.
    pub(super) fn new(limit: Option<usize>, slots: usize) -> Arc<Self> {
        let quarter = (slots / 4).max(1);
        let limits = limit.map_or((slots.saturating_sub(quarter).max(1), quarter), |limit| (limit, limit));
        Arc::new(Self { limits, all: Mutex::default() })
    }

    /// Takes a slot of a destination.
    ///
    /// # Errors
    /// How long the message is to be deferred when all are taken.
    pub(super) async fn enter(self: &Arc<Self>, name: &str) -> Result<Slot, Duration> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let freed = match self.try_enter(name, Instant::now() >= deadline) {
                Ok(slot) => return Ok(slot),
                Err(Full::Defer(by)) => return Err(by),
                Err(Full::Wait(freed)) => freed,
            };
            tokio::select! {
                () = freed.notified() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn try_enter(self: &Arc<Self>, name: &str, late: bool) -> Result<Slot, Full> {
        let now = Instant::now();
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

    /// How long a delivery will take: as long as usual, or as the one in flight that began first.
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
            known.took = (known.took * 3 + began.elapsed()) / 4;
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

//! Epochs: the generations of a store's history, and the rules of a cut.
//!
//! A database can go back in time: an asynchronous failover, a restored backup, a copied file. Without an epoch it would
//! assign the numbers of the lost part again. A new epoch moves every number far ahead, and records where the old history
//! ends and the new one begins. The store can therefore recognise a number of the lost part permanently.

use serde::{Deserialize, Serialize};

use super::working_set::Counters;
use crate::clock::Timestamp;
use crate::id::{Epoch, Fence, Position};

/// The minimum distance between the last number of an epoch and the first of the next one.
pub const MARGIN: u64 = 1 << 30;

/// A point where the history of a store was cut, or may have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryCut {
    /// The epoch that ended.
    pub previous: Epoch,
    /// The epoch that began.
    pub epoch: Epoch,
    /// The highest position of the history that survived.
    pub cut_after: Position,
    /// The first position of the new epoch.
    pub resumes_at: Position,
    /// Every fence of the new epoch is above this one.
    pub fence: Fence,
    /// The start of the new epoch, by the store's clock.
    pub declared_at: Timestamp,
    /// The reason for the cut.
    pub reason: String,
}

impl HistoryCut {
    /// Returns whether a position lies between the surviving history and the new epoch. An event there was lost.
    #[must_use]
    pub fn lost(&self, position: Position) -> bool {
        self.cut_after < position && position < self.resumes_at
    }
}

/// Begins a new epoch: moves the counters of the store ahead and returns the cut.
///
/// Numbers continue from the clock in microseconds, because a margin alone repeats itself when one backup is restored twice.
pub fn begin(counters: &mut Counters, now: Timestamp, reason: impl Into<String>) -> HistoryCut {
    let (previous, cut_after) = (counters.epoch, counters.position);
    counters.epoch = Epoch(micros(now).max(previous.0.saturating_add(1)));
    counters.position = Position(ahead(counters.position.0, now));
    counters.fence = Fence(ahead(counters.fence.0, now));
    counters.work_seq = ahead(counters.work_seq, now);
    HistoryCut {
        previous,
        epoch: counters.epoch,
        cut_after,
        resumes_at: counters.position.next(),
        fence: counters.fence,
        declared_at: now,
        reason: reason.into(),
    }
}

/// Returns a number above all that were assigned before a cut, in the surviving history or in a lost one.
#[must_use]
pub fn ahead(number: u64, now: Timestamp) -> u64 {
    number.saturating_add(MARGIN).max(micros(now))
}

fn micros(now: Timestamp) -> u64 {
    u64::try_from(now.as_micros()).unwrap_or(0)
}

/// The reason why a reader cannot continue after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadPosition {
    /// The position belongs to a part of the history that was lost.
    Lost(HistoryCut),
    /// The position was never assigned. The highest assigned position is this.
    Beyond(Position),
}

/// Checks whether a reader may continue after a position, given the highest position ever assigned.
///
/// # Errors
/// [`BadPosition`] when events that the reader has seen are not part of this history.
pub fn check_position(
    after: Position,
    highest: Position,
    cuts: impl IntoIterator<Item = HistoryCut>,
) -> Result<(), BadPosition> {
    if after > highest {
        return Err(BadPosition::Beyond(highest));
    }
    match cuts.into_iter().find(|cut| cut.lost(after)) {
        Some(cut) => Err(BadPosition::Lost(cut)),
        None => Ok(()),
    }
}

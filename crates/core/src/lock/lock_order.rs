//! Lock order by rank: the terms with a rank that each task holds. Terms without a rank are not recorded here.

use foldhash::HashMap;

use super::class::LockKey;
use super::entry::Number;
use super::error::{CallSite, LockError};
use super::sync::Mutex;
use super::table::{Asker, LockHold};
use super::task::TaskId;

/// The held terms with a rank, by task.
#[derive(Debug, Default)]
pub(super) struct Order {
    held: Mutex<HashMap<TaskId, Vec<Ranked>>>,
}

#[derive(Debug)]
struct Ranked {
    /// Unique only together with the term.
    number: Number,
    term: LockKey,
    rank: u32,
    place: CallSite,
}

impl Order {
    /// Checks the lock order: the rank of the requested term must be above the ranks of all terms that the task holds.
    #[inline]
    pub(super) fn check(&self, asker: &Asker<'_>) -> Result<(), LockError> {
        match (asker.term.rank(), asker.task) {
            (Some(rank), Some(task)) => self.check_rank(asker, rank, task),
            _ => Ok(()),
        }
    }

    fn check_rank(&self, asker: &Asker<'_>, rank: u32, task: TaskId) -> Result<(), LockError> {
        let held = self.held.lock();
        let its = held.get(&task).map_or(&[][..], Vec::as_slice);
        // A request for a term that the task already holds is reported as re-entrant, whatever the ranks.
        let again = its.iter().any(|ranked| ranked.term == *asker.term);
        match its.iter().max_by_key(|ranked| ranked.rank).filter(|highest| !again && highest.rank >= rank) {
            None => Ok(()),
            Some(highest) => Err(LockError::OutOfOrder {
                term: asker.term.clone(),
                rank,
                task,
                asked: asker.place,
                above: highest.term.clone(),
                above_rank: highest.rank,
                held: highest.place,
            }),
        }
    }

    /// Records that the task holds the term.
    #[inline]
    pub(super) fn note(&self, task: Option<TaskId>, term: &LockKey, number: Number, place: CallSite) {
        if let (Some(rank), Some(task)) = (term.rank(), task) {
            self.note_rank(task, term, rank, number, place);
        }
    }

    fn note_rank(&self, task: TaskId, term: &LockKey, rank: u32, number: Number, place: CallSite) {
        let ranked = Ranked { number, term: term.clone(), rank, place };
        self.held.lock().entry(task).or_default().push(ranked);
    }

    /// Removes the record of a hold that the task released.
    pub(super) fn forget(&self, task: TaskId, hold: &LockHold) {
        let mut held = self.held.lock();
        let Some(its) = held.get_mut(&task) else { return };
        its.retain(|ranked| (ranked.term.hash(), ranked.number) != (hold.hash, hold.number));
        if its.is_empty() {
            held.remove(&task);
        }
    }
}

//! Errors of lock acquisition. A request that could never be granted fails instead of hanging.

use std::fmt;
use std::panic::Location;

use thiserror::Error;

use super::class::LockKey;
use super::task::TaskId;
use crate::error::{InvalidInput, Retry, codes};

/// The source location of a call.
pub type CallSite = &'static Location<'static>;

/// A term cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LockKeyError {
    /// Two functors have the same name.
    #[error("functor {name:?} is declared at {first} and again at {second}; give one of them another name")]
    Twice {
        /// The name.
        name: &'static str,
        /// The declaration that was registered first.
        first: CallSite,
        /// The second declaration.
        second: CallSite,
    },
    /// The arguments do not form a key.
    #[error(transparent)]
    Key(#[from] InvalidInput),
}

codes! {
    LockKeyError {
        Twice => "TL0506",
        Key(error) => error,
    }
}

/// A lock was not granted.
#[derive(Clone, Debug, Error)]
pub enum LockError {
    /// The calling task already holds the term, so it would wait for itself.
    #[error(
        "{task} asks for {term} at {asked}, but holds it since {held}; pass the guard on instead of locking again, \
         or, if the guard went to another task, call adopt() there"
    )]
    Reentrant {
        /// The requested term.
        term: LockKey,
        /// The task that requests the term and holds it.
        task: TaskId,
        /// Where the task requests it now.
        asked: CallSite,
        /// Where the task acquired it.
        held: CallSite,
    },
    /// Tasks wait for each other in a cycle. The task that closed the cycle gets this error, and the others continue.
    #[error("deadlock: {cycle}; take these terms in one order everywhere, or give their functors ranks")]
    Deadlock {
        /// The tasks of the cycle.
        cycle: Cycle,
    },
    /// The functor's rank is not above the ranks of all terms that the task holds.
    #[error(
        "{task} asks at {asked} for {term} of rank {rank} while it holds {above} of rank {above_rank} since {held}; \
         take the lower rank first"
    )]
    OutOfOrder {
        /// The requested term.
        term: LockKey,
        /// Its rank.
        rank: u32,
        /// The requesting task.
        task: TaskId,
        /// Where the task requests it.
        asked: CallSite,
        /// The held term of the same or a higher rank.
        above: LockKey,
        /// The rank of the held term.
        above_rank: u32,
        /// Where the held term was acquired.
        held: CallSite,
    },
    /// The deadline passed while the caller waited. The lock is not granted later.
    #[error("the time was up at {asked} while waiting for {term}; {state}")]
    TimedOut {
        /// The requested term.
        term: LockKey,
        /// Where it was requested.
        asked: CallSite,
        /// The holders and the number of waiters at the deadline.
        state: Busy,
    },
    /// The term is not free, and the caller did not want to wait.
    #[error("{term} is not free for {asked}; {state}")]
    Busy {
        /// The requested term.
        term: LockKey,
        /// Where it was requested.
        asked: CallSite,
        /// The holders and the number of waiters.
        state: Busy,
    },
    /// The functor has no such mode, or the held mode cannot be downgraded to it.
    #[error("{term} has no way from mode {from} to mode {to}; its modes are {names:?}")]
    Mode {
        /// The requested term.
        term: LockKey,
        /// The mode that is held; `none` for an acquisition.
        from: &'static str,
        /// The index of the requested mode.
        to: usize,
        /// The functor's modes.
        names: &'static [&'static str],
    },
}

impl LockError {
    /// Returns whether the task already holds the requested term.
    #[must_use]
    pub fn is_reentrant(&self) -> bool {
        matches!(self, Self::Reentrant { .. })
    }

    /// Returns whether the lock was only not free.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

codes! {
    LockError {
        Reentrant => "TL0501",
        // A task that releases its holds may start over.
        Deadlock => ("TL0502", Retry::Now),
        OutOfOrder => "TL0503",
        TimedOut => ("TL0504", Retry::Now),
        Busy => ("TL0505", Retry::Now),
        Mode => "TL0507",
    }
}

/// The state of a term that was not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Where one of its holders acquired it; `None` when the lock was just being handed over.
    pub held: Option<CallSite>,
    /// Number of holders.
    pub holders: usize,
    /// Number of waiters in front.
    pub waiting: usize,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held {
            Some(place) => write!(f, "held since {place}")?,
            None => f.write_str("held")?,
        }
        if self.holders > 1 {
            write!(f, " and by {} more", self.holders - 1)?;
        }
        write!(f, ", {} waiting in front", self.waiting)
    }
}

/// Tasks that wait for each other in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<CycleLink>);

/// One edge of a cycle: a task and the term that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleLink {
    /// The waiting task.
    pub task: TaskId,
    /// The term that it waits for.
    pub term: LockKey,
    /// Where it requested the term.
    pub asked: CallSite,
    /// The task that holds the term.
    pub holder: TaskId,
    /// Where the holder acquired it.
    pub held: CallSite,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, link) in self.0.iter().enumerate() {
            let joint = if i == 0 { "" } else { "; " };
            let CycleLink { task, term, asked, holder, held } = link;
            write!(f, "{joint}{task} waits at {asked} for {term}, which {holder} holds since {held}")?;
        }
        Ok(())
    }
}

//! What can go wrong while asking for a lock. Nothing here is a hang.

use std::fmt;
use std::panic::Location;

use thiserror::Error;

use super::functor::Term;
use super::task::Task;
use crate::error::{InvalidInput, Retry, codes};

/// Where in the source something was asked for.
pub type Place = &'static Location<'static>;

/// A term cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TermError {
    /// Two functors have one name.
    #[error("functor {name:?} is declared at {first} and again at {second}; give one of them another name")]
    Twice {
        /// The name.
        name: &'static str,
        /// The declaration that was registered first.
        first: Place,
        /// The other one.
        second: Place,
    },
    /// The arguments make no key.
    #[error(transparent)]
    Key(#[from] InvalidInput),
}

codes! {
    TermError {
        Twice => "TL0506",
        Key(error) => error,
    }
}

/// A lock was not granted.
#[derive(Clone, Debug, Error)]
pub enum LockError {
    /// The task that asks holds the term already: it would wait for itself.
    #[error(
        "{task} asks for {term} at {asked}, but holds it since {held}; pass the guard on instead of locking again, \
         or, if the guard went to another task, call adopt() there"
    )]
    Reentrant {
        /// What was asked for.
        term: Term,
        /// Who asks and holds.
        task: Task,
        /// Where it was asked for now.
        asked: Place,
        /// Where it was taken.
        held: Place,
    },
    /// Tasks wait for each other in a cycle. The one that closed it hears of it, and the others go on.
    #[error("deadlock: {cycle}; take these terms in one order everywhere, or give their functors ranks")]
    Deadlock {
        /// Who waits for whom.
        cycle: Cycle,
    },
    /// The functor's rank is not above all that the task holds.
    #[error(
        "{task} asks at {asked} for {term} of rank {rank} while it holds {above} of rank {above_rank} since {held}; \
         take the lower rank first"
    )]
    OutOfOrder {
        /// What was asked for.
        term: Term,
        /// Its rank.
        rank: u32,
        /// Who asks.
        task: Task,
        /// Where.
        asked: Place,
        /// What it holds of the same or a higher rank.
        above: Term,
        /// The rank of that.
        above_rank: u32,
        /// Where that was taken.
        held: Place,
    },
    /// The time was up while it waited. It is not granted later.
    #[error("the time was up at {asked} while waiting for {term}; {state}")]
    TimedOut {
        /// What was asked for.
        term: Term,
        /// Where.
        asked: Place,
        /// Who held it and how many waited.
        state: Busy,
    },
    /// It is not free, and the caller did not want to wait.
    #[error("{term} is not free for {asked}; {state}")]
    Busy {
        /// What was asked for.
        term: Term,
        /// Where.
        asked: Place,
        /// Who holds it and how many wait.
        state: Busy,
    },
    /// The functor has no such mode, or the holder cannot step down to it.
    #[error("{term} has no way from mode {from} to mode {to}; its modes are {names:?}")]
    Mode {
        /// What was asked for.
        term: Term,
        /// The mode that is held; `none` when it was asked for.
        from: &'static str,
        /// The place of the mode that was asked for.
        to: usize,
        /// The modes that there are.
        names: &'static [&'static str],
    },
}

impl LockError {
    /// Whether the task holds what it asks for.
    #[must_use]
    pub fn is_reentrant(&self) -> bool {
        matches!(self, Self::Reentrant { .. })
    }

    /// Whether it was only not free: somebody else holds it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

codes! {
    LockError {
        Reentrant => "TL0501",
        // A task that releases what it holds may start over.
        Deadlock => ("TL0502", Retry::Now),
        OutOfOrder => "TL0503",
        TimedOut => ("TL0504", Retry::Now),
        Busy => ("TL0505", Retry::Now),
        Mode => "TL0507",
    }
}

/// Why a term was not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Where one of its holders took it; `None` when it was just being passed on.
    pub held: Option<Place>,
    /// How many hold it.
    pub holders: usize,
    /// How many wait in front.
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
pub struct Cycle(pub Vec<Link>);

/// One task of a cycle, with what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who waits.
    pub task: Task,
    /// For what.
    pub term: Term,
    /// Where it was asked for.
    pub asked: Place,
    /// Who holds it.
    pub holder: Task,
    /// Where the holder took it.
    pub held: Place,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, link) in self.0.iter().enumerate() {
            let joint = if i == 0 { "" } else { "; " };
            let Link { task, term, asked, holder, held } = link;
            write!(f, "{joint}{task} waits at {asked} for {term}, which {holder} holds since {held}")?;
        }
        Ok(())
    }
}

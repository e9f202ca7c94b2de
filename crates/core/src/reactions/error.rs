//! Errors of reactions as a whole. The errors of handlers are stored with their rows.

use thiserror::Error;

use crate::error::{InvalidInput, codes, conversions};
use crate::id::Owner;
use crate::lease::LeaseError;
use crate::store::{ApplyError, StoreError};

/// The reason why reactions were not started, or an operation on them failed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReactionsError {
    /// Two reactions have the same name.
    #[error(
        "reaction {name:?} was registered twice; its progress is kept under its name, so give one of them another"
    )]
    Twice {
        /// The name.
        name: String,
    },
    /// The name is invalid.
    #[error("reaction {name:?}: the name is not valid: {reason}")]
    Name {
        /// The name, truncated.
        name: String,
        /// The rule that the name violates.
        reason: String,
    },
    /// The reaction has no handler.
    #[error("reaction {name:?} has no handler; give it one with each() or batch()")]
    NoHandler {
        /// The name.
        name: String,
    },
    /// No Tokio runtime is available to run handlers.
    #[error("cannot start reactions: no Tokio runtime; call start() from a runtime that outlives them")]
    NoRuntime,
    /// The reaction assigns keys in another way than the one that has run under this name.
    #[error(
        "reaction {name:?} has kept its place by {was} so far, and now by {is}; give it another name, or reset it as a whole \
         first"
    )]
    Changed {
        /// The name.
        name: String,
        /// The way in which it assigned keys.
        was: &'static str,
        /// The way in which it assigns them now.
        is: &'static str,
    },
    /// No reaction of that name exists on this store, or it was ended.
    #[error("there is no reaction {name:?} on this store; there are: {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    Unknown {
        /// The requested name.
        name: String,
        /// The existing reactions.
        known: Vec<String>,
    },
    /// The reaction or projection subscribes to an event that its aggregate does not have.
    #[error("cannot start {name:?}: the aggregate {kind:?} has no event {event:?}; use one of {}", .known.join(", "))]
    UnknownEvent {
        /// The name of the reaction.
        name: String,
        /// The kind of the aggregate.
        kind: &'static str,
        /// The unknown name.
        event: String,
        /// The names of the aggregate's events.
        known: Vec<&'static str>,
    },
    /// A process still routes events to the reaction that was to be ended.
    #[error("reaction {name:?} is run by {owner}; end the programs that run it first")]
    Running {
        /// The name.
        name: String,
        /// The owner of the router's lease.
        owner: Owner,
    },
    /// A part of the definition is invalid.
    #[error("reaction {name:?}: {error}")]
    Invalid {
        /// The name.
        name: String,
        /// The validation error.
        error: InvalidInput,
    },
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not accept a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// A lease could not be acquired or kept.
    #[error(transparent)]
    Lease(Box<LeaseError>),
}

conversions! {
    ReactionsError {
        ApplyError => Write,
        InvalidInput => Store,
        LeaseError => Lease,
    }
}

codes! {
    ReactionsError {
        Twice => "TL0701",
        Name => "TL0702",
        NoHandler => "TL0703",
        NoRuntime => "TL0704",
        Changed => "TL0705",
        Unknown => "TL0706",
        Running => "TL0707",
        UnknownEvent => "TL0710",
        Invalid { error } => error,
        Store(error) => error,
        Write(error) => error,
        Lease(error) => error,
    }
}

//! What can go wrong with reactions as a whole. What goes wrong in a handler is kept with its row.

use thiserror::Error;

use crate::error::{InvalidInput, codes, conversions};
use crate::id::Owner;
use crate::lease::LeaseError;
use crate::store::{ApplyError, StoreError};

/// Why reactions were not started, or what was asked of them was not done.
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
    /// The name cannot be one.
    #[error("reaction {name:?}: the name is not valid: {reason}")]
    Name {
        /// The name, cut short.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing that it does.
    #[error("reaction {name:?} has no handler; give it one with each() or batch()")]
    NoHandler {
        /// The name.
        name: String,
    },
    /// There is no runtime that could run handlers.
    #[error("reactions were started outside of a tokio runtime; start them inside of one that goes on")]
    NoRuntime,
    /// It is another reaction than the one that has run under this name.
    #[error(
        "reaction {name:?} has kept its place by {was} so far, and now by {is}; give it another name, or reset it as a whole \
         first"
    )]
    Changed {
        /// The name.
        name: String,
        /// How it chose keys.
        was: &'static str,
        /// How it chooses them now.
        is: &'static str,
    },
    /// No reaction of that name has ever run on this store.
    #[error("there is no reaction {name:?} on this store; there are: {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") })]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Somebody runs the reaction that was to be ended.
    #[error("reaction {name:?} is run by {owner}; end the programs that run it first")]
    Running {
        /// The name.
        name: String,
        /// Who runs it.
        owner: Owner,
    },
    /// A part of a reaction can never be accepted.
    #[error("reaction {name:?}: {error}")]
    Invalid {
        /// The name.
        name: String,
        /// What is wrong.
        error: InvalidInput,
    },
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not take a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// A lease could not be kept.
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
        Invalid { error } => error,
        Store(error) => error,
        Write(error) => error,
        Lease(error) => error,
    }
}

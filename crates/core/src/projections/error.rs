//! What can go wrong with projections.

use thiserror::Error;

use crate::error::{Code, Explain, InvalidInput, Outcome, Retry};
use crate::reactions::ReactionsError;
use crate::store::{ApplyError, StoreError};

/// Why a projection was not started, read, or put in the place of another.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProjectionsError {
    /// There is no projection of that name.
    #[error("there is no projection {name:?} on this store; start it with Projections first")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A version cannot be read yet.
    #[error(
        "projection {name:?}: version {version} cannot take the place of version {live} yet: {reason}; let it run, and see to what is blocked or parked"
    )]
    Behind {
        /// The name.
        name: String,
        /// The version that was to be read.
        version: u32,
        /// The version that is.
        live: u32,
        /// What it waits for.
        reason: &'static str,
    },
    /// The reaction that makes the rows failed.
    #[error(transparent)]
    Reactions(Box<ReactionsError>),
    /// The store did not take a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] StoreError),
    /// A name or a row cannot be one.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
}

impl From<ReactionsError> for ProjectionsError {
    fn from(error: ReactionsError) -> Self {
        Self::Reactions(Box::new(error))
    }
}

impl From<ApplyError> for ProjectionsError {
    fn from(error: ApplyError) -> Self {
        Self::Write(Box::new(error))
    }
}

impl Explain for ProjectionsError {
    fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code("TL0708"),
            Self::Behind { .. } => Code("TL0709"),
            Self::Reactions(error) => error.code(),
            Self::Write(error) => error.code(),
            Self::Read(error) => error.code(),
            Self::Invalid(error) => error.code(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Behind { .. } => Retry::After(std::time::Duration::from_secs(1)),
            Self::Reactions(error) => error.retry(),
            Self::Write(error) => error.retry(),
            Self::Read(error) => error.retry(),
            Self::Unknown { .. } | Self::Invalid(_) => Retry::Never,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Reactions(error) => error.outcome(),
            Self::Write(error) => error.outcome(),
            _ => Outcome::NotApplied,
        }
    }
}

//! Errors of projections.

use thiserror::Error;

use crate::error::{InvalidInput, Retry, codes, conversions};
use crate::reactions::ReactionsError;
use crate::store::{ApplyError, StoreError};

/// The reason why a projection was not started, read or swapped.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProjectionsError {
    /// There is no projection of that name.
    #[error("there is no projection {name:?} on this store; start it with Projections first")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A version cannot become live yet.
    #[error(
        "projection {name:?}: version {version} cannot take the place of version {live} yet: {reason}; let it run, and see to what is blocked or parked"
    )]
    Behind {
        /// The name.
        name: String,
        /// The version that was to become live.
        version: u32,
        /// The live version.
        live: u32,
        /// The condition that it waits for.
        reason: &'static str,
    },
    /// The reaction that writes the rows failed.
    #[error(transparent)]
    Reactions(Box<ReactionsError>),
    /// The store did not accept a write.
    #[error(transparent)]
    Write(Box<ApplyError>),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] StoreError),
    /// A name or a row is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
}

conversions! {
    ProjectionsError {
        ReactionsError => Reactions,
        ApplyError => Write,
    }
}

codes! {
    ProjectionsError {
        Unknown => "TL0708",
        Behind => ("TL0709", Retry::after_secs(1)),
        Reactions(error) => error,
        Write(error) => error,
        Read(error) => error,
        Invalid(error) => error,
    }
}

//! Keys of run data that have no view: journals and published values.

use tidelock::error::InvalidInput;
use tidelock::key::Arg;
use tidelock::prelude::*;

/// Returns the document of a run's published values.
pub(super) fn values(id: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.values", [id])
}

/// Returns the journal of one generation of a run.
pub(super) fn journal(id: &str, generation: u32) -> Result<Key, InvalidInput> {
    Key::of("tidelock.journal", &[Arg::Str(id.to_owned()), Arg::Int(generation.into())])
}

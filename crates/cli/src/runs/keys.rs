//! Where runs keep what has no view of its own: their journals, and the values that they publish.

use tidelock::error::InvalidInput;
use tidelock::key::Arg;
use tidelock::prelude::*;

/// What a run has published.
pub(super) fn values(id: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.values", [id])
}

/// What a run did since it began, or began anew.
pub(super) fn journal(id: &str, generation: u32) -> Result<Key, InvalidInput> {
    Key::of("tidelock.journal", &[Arg::Str(id.to_owned()), Arg::Int(generation.into())])
}

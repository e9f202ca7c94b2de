//! What Tidelock keeps for itself in a store: what reactions were handed, rows, leases, records of runs and schedules.

use anyhow::Result;
use tidelock::prelude::*;

use crate::exit::WrongUse;
use crate::output;

/// Whether only Tidelock writes this.
pub(crate) fn is_ours(key: &Key) -> bool {
    key.kind().starts_with("tidelock.")
}

/// Refuses to write what only Tidelock writes.
pub(crate) fn check_theirs(key: &Key) -> Result<()> {
    if is_ours(key) {
        let reason = format!("{} is Tidelock's own, and only Tidelock writes it", output::key(key));
        return Err(WrongUse(reason).into());
    }
    Ok(())
}

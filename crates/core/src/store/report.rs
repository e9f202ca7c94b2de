//! Metrics and log events that every store reports.

use std::time::Instant;

use super::{ApplyError, Claimed, Receipt, StoreError};
use crate::error::{Explain as _, Outcome};
use crate::telemetry::{CLAIMS, COMMIT_SECONDS, COMMITS, CONFLICTS, GRANTS, STORE, count, seconds};

/// Reports the result of a batch.
pub fn applied(began: Instant, result: &Result<Receipt, ApplyError>) {
    let word = match result {
        Ok(receipt) if receipt.repeated => "repeated",
        Ok(_) => "applied",
        Err(error) => match error.refusal() {
            Some(refusal) => {
                count(CONFLICTS, "code", refusal.code().as_str(), 1);
                "refused"
            }
            None if matches!(error.outcome(), Outcome::Unknown(_)) => "unknown",
            None => "failed",
        },
    };
    count(COMMITS, "result", word, 1);
    seconds(COMMIT_SECONDS, began.elapsed());
}

/// Reports the result of a claim.
pub fn claimed(result: &Result<Claimed, StoreError>) {
    let word = match result {
        Ok(claimed) if claimed.grants.is_empty() => "nothing",
        Ok(_) => "granted",
        Err(_) => "failed",
    };
    count(CLAIMS, "result", word, 1);
    for grant in result.iter().flat_map(|claimed| &claimed.grants) {
        let kind = match grant.row.attempts {
            _ if grant.taken_over => "takeover",
            2.. => "again",
            _ => "first",
        };
        count(GRANTS, "kind", kind, 1);
    }
}

/// Reports a work row that claims skip, because it cannot be decoded.
pub fn unreadable_work(key: &str, error: &StoreError) {
    tracing::error!(target: STORE, key, %error, "unreadable work row");
}

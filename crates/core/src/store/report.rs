//! Metrics and log events that every store reports.

use std::time::Instant;

use super::{ApplyError, Claimed, Receipt, StoreError};
use crate::error::{Explain as _, Outcome};
use crate::process;
use crate::telemetry::{CLAIMS, COMMIT_SECONDS, COMMITS, CONFLICTS, GRANTS, STORE, count, seconds};

/// Reports the result of a batch.
pub fn applied(began: Instant, result: &Result<Receipt, ApplyError>) {
    let word = match result {
        Ok(receipt) if receipt.repeated => "repeated",
        Ok(_) => "applied",
        Err(error) => match error.refusal() {
            Some(refusal) => {
                count(CONFLICTS, refusal.code().as_str(), 1);
                "rejected"
            }
            None if matches!(error.outcome(), Outcome::Unknown(_)) => "unknown",
            None => "failed",
        },
    };
    count(COMMITS, word, 1);
    seconds(COMMIT_SECONDS, process::elapsed(began));
}

/// Reports the result of a claim.
pub fn claimed(claimed: &Result<Claimed, StoreError>) {
    let word = match claimed {
        Ok(found) if found.grants.is_empty() => "empty",
        Ok(_) => "granted",
        Err(_) => "failed",
    };
    count(CLAIMS, word, 1);
    for grant in claimed.iter().flat_map(|found| &found.grants) {
        let result = match grant.row.attempts {
            _ if grant.taken_over => "takeover",
            2.. => "retry",
            _ => "initial",
        };
        count(GRANTS, result, 1);
    }
}

/// Reports a work row that claims skip, because it cannot be decoded.
pub fn unreadable_work(key: &str, error: &StoreError) {
    tracing::error!(target: STORE, key, %error, "unreadable work row");
}

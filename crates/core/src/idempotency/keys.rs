//! Keys of reservations and their records in the store.

use super::error::IdempotencyError;
use super::fingerprint::Fingerprint;
use crate::error::InvalidInput;
use crate::id::{Owner, QueueName};
use crate::key::{Arg, Key, KeyPrefix};
use crate::worker::unique_owner;

/// The kind of records and of the rows of reservations: `tidelock.idempotency("shop-1", "order-17")`.
const KIND: &str = "tidelock.idempotency";
/// The maximum length of an idempotency key, in bytes.
pub const MAX_KEY_BYTES: usize = 255;
/// The maximum length of a scope, in bytes.
pub const MAX_SCOPE_BYTES: usize = 255;

/// Returns the key of the record and of the row.
pub(super) fn record(scope: &str, key: &str) -> Result<Key, IdempotencyError> {
    check(key, key, MAX_KEY_BYTES, "the key")?;
    if !scope.is_empty() {
        check(key, scope, MAX_SCOPE_BYTES, "its scope")?;
    }
    Ok(Key::new(KIND, [scope, key])?)
}

fn check(key: &str, text: &str, longest: usize, what: &'static str) -> Result<(), IdempotencyError> {
    let reason = if text.is_empty() {
        format!("{what} is empty")
    } else if text.len() > longest {
        format!("{what} has {} bytes, at most {longest} are allowed", text.len())
    } else if text.chars().any(char::is_control) {
        format!("{what} holds control characters")
    } else {
        return Ok(());
    };
    Err(IdempotencyError::BadKey { key: key.chars().filter(|c| !c.is_control()).take(80).collect(), reason })
}

/// Returns the scope and the key that a record or row belongs to.
pub(super) fn of(key: &Key) -> Option<(String, String)> {
    match <[Arg; 2]>::try_from(key.args()) {
        Ok([Arg::Str(scope), Arg::Str(text)]) if key.kind() == KIND => Some((scope, text)),
        _ => None,
    }
}

/// Returns the prefix of all records.
pub(super) fn all() -> KeyPrefix {
    KeyPrefix::kind(KIND)
}

/// Returns the prefix of all records of a scope.
pub(super) fn all_of(scope: &str) -> KeyPrefix {
    KeyPrefix::under(KIND, &[Arg::Str(scope.to_owned())])
}

/// Returns the queue of reservations. No worker claims from it, because the rows rest.
pub(super) fn queue() -> Result<QueueName, InvalidInput> {
    QueueName::new("tidelock.idempotency")
}

/// Returns the owner name of a reservation, which contains the fingerprint. A denied claim returns the owner, so that a request
/// in flight can be compared without another read or write.
pub(super) fn owner(request: &Fingerprint) -> Result<Owner, InvalidInput> {
    Owner::new(format!("{}{MARK}{request}", unique_owner(None)?))
}

const MARK: char = '#';

/// Splits an owner name into the process and the fingerprint.
pub(super) fn parts(owner: &Owner) -> (&str, Option<&str>) {
    match owner.as_str().rsplit_once(MARK) {
        Some((who, request)) => (who, Some(request)),
        None => (owner.as_str(), None),
    }
}

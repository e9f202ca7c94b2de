//! Keys and queues of leases in the store.
//!
//! Lease rows have their own kinds, so that a lease on a key never collides with a job of the same key.

use crate::error::InvalidInput;
use crate::id::QueueName;
use crate::key::{Arg, Key, KeyPrefix};
use crate::process;

/// The kind of lease rows: `tidelock.lease("report", "nightly")` is the lease on `report("nightly")`.
const LEASE: &str = "tidelock.lease";
/// The kind of wait-queue rows. The key of the lease is one text argument, so that the queue of one lease is never a
/// prefix of another's.
const WAIT: &str = "tidelock.lease-wait";

/// Returns the queue of leases. No worker polls it.
///
/// # Errors
/// [`InvalidInput`] by its type only: the name is a valid queue.
pub fn queue() -> Result<QueueName, InvalidInput> {
    QueueName::new("tidelock.leases")
}

/// Returns the queue of wait-queue rows. No worker polls it.
pub(super) fn waits() -> Result<QueueName, InvalidInput> {
    QueueName::new("tidelock.lease-waits")
}

/// Returns the row key of the lease on a key, for holders that do not use this library and renew the row themselves.
///
/// # Errors
/// [`InvalidInput`] when the key is too long for a lease.
pub fn row_of(key: &Key) -> Result<Key, InvalidInput> {
    let mut args = vec![Arg::Str(key.kind())];
    args.extend(key.args());
    Key::of(LEASE, &args)
}

/// Returns the leased key of a row; `None` when the row is not a lease.
pub(super) fn leased_key(row: &Key) -> Option<Key> {
    let args = row.args();
    match args.split_first() {
        Some((Arg::Str(kind), args)) if row.kind() == LEASE => Key::of(kind, args).ok(),
        _ => None,
    }
}

/// Returns the key that sorts directly before all lease rows.
pub(super) fn before_leases() -> Result<Key, InvalidInput> {
    Key::single(LEASE)
}

/// Returns the key that sorts before all places in the queue of a lease, and the prefix that they share.
pub(super) fn line_of(key: &Key) -> Result<(Key, KeyPrefix), InvalidInput> {
    let args = [Arg::Str(key.to_string())];
    Ok((Key::of(WAIT, &args)?, KeyPrefix::under(WAIT, &args)))
}

/// Returns a new unique key for a place in the queue of a lease.
pub(super) fn place(key: &Key) -> Result<Key, InvalidInput> {
    Key::of(WAIT, &[Arg::Str(key.to_string()), Arg::Uuid(process::uuid())])
}

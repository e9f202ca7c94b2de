//! The names that leases have in the store: keys and lanes.
//!
//! The rows have kinds of their own, so that a lease on a key never meets a job of the same key.

use uuid::Uuid;

use crate::error::InvalidInput;
use crate::id::Lane;
use crate::key::{Arg, Key, KeyPrefix};

/// The kind of the rows that are leases: `tidelock.lease("report", "nightly")` for the lease on `report("nightly")`.
const LEASE: &str = "tidelock.lease";
/// The kind of the rows that are places in a line. The key of the lease is one text argument, so that the line of one
/// lease never begins like that of another.
const WAIT: &str = "tidelock.lease-wait";

/// The lane of leases. Nobody claims from it: the rows rest.
///
/// # Errors
/// [`InvalidInput`] by its type only: the name is a lane's.
pub fn lane() -> Result<Lane, InvalidInput> {
    Lane::new("tidelock.leases")
}

/// The lane of places in lines. Nobody claims from it, either.
pub(super) fn waits() -> Result<Lane, InvalidInput> {
    Lane::new("tidelock.lease-waits")
}

/// The row of the lease on a key, for a holder that is no program with this library and renews by itself.
///
/// # Errors
/// [`InvalidInput`] when the key is too long to be that of a lease.
pub fn row_of(key: &Key) -> Result<Key, InvalidInput> {
    let mut args = vec![Arg::Str(key.kind())];
    args.extend(key.args());
    Key::of(LEASE, &args)
}

/// The key that a row is the lease of; `None` when the row is no lease.
pub(super) fn leased_key(row: &Key) -> Option<Key> {
    let args = row.args();
    match args.split_first() {
        Some((Arg::Str(kind), args)) if row.kind() == LEASE => Key::of(kind, args).ok(),
        _ => None,
    }
}

/// What all rows of leases come after.
pub(super) fn before_leases() -> Result<Key, InvalidInput> {
    Key::single(LEASE)
}

/// What all places in the line of a lease come after, and the range that they are in.
pub(super) fn line_of(key: &Key) -> Result<(Key, KeyPrefix), InvalidInput> {
    let args = [Arg::Str(key.to_string())];
    Ok((Key::of(WAIT, &args)?, KeyPrefix::under(WAIT, &args)))
}

/// A new place in the line of a lease.
pub(super) fn place(key: &Key) -> Result<Key, InvalidInput> {
    Key::of(WAIT, &[Arg::Str(key.to_string()), Arg::Uuid(Uuid::now_v7())])
}

//! Chance, from the system's own source.

use std::fs::File;
use std::io::Read as _;

use crate::error::Error;

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(Error::io("reading /dev/urandom"))?;
    Ok(bytes)
}

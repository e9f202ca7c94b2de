//! Random bytes from the system's source.

use std::fs::File;
use std::io::Read as _;

use crate::error::Error;

/// Returns unpredictable bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
    read.map_err(Error::io("reading /dev/urandom"))?;
    Ok(bytes)
}

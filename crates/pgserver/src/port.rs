//! Selection of a free port for the server.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::Error;
use crate::random::random;

/// Ports below the ephemeral range, which systems use for outgoing connections. While the server is down, any client
/// could take an ephemeral port. Even a client that connects to this same port could: TCP then connects it to itself.
const QUIET: std::ops::Range<u16> = 15_000..32_000;
/// The number of ports tried before any free one is accepted.
const TRIES: usize = 100;

/// Returns a port of 127.0.0.1 without a listener at the moment.
pub(crate) fn free() -> Result<u16, Error> {
    for _ in 0..TRIES {
        let random = u16::from_be_bytes(random()?);
        let port = QUIET.start + random % (QUIET.end - QUIET.start);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(Error::io("looking for a free port of 127.0.0.1"))?.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{QUIET, free};

    #[test]
    fn ports_differ_and_are_outside_the_range_of_outgoing_connections() {
        let ports: BTreeSet<u16> = (0..20).map(|_| free().unwrap()).collect();
        assert!(ports.len() > 10, "{ports:?}");
        assert!(ports.iter().all(|port| QUIET.contains(port)), "{ports:?}");
    }
}

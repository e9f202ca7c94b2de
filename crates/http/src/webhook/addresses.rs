//! Address filter for webhooks (SSRF protection): a URL from a third party must not lead into the own network.
//!
//! The resolver looks names up for each connection, and leaves out addresses that are not public. A name that changes
//! between a check and the connection therefore has no effect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// A resolver of host names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolver {
    pub(super) public_only: bool,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let public_only = self.public_only;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.filter(|at| !public_only || is_public(at.ip())).collect();
            if found.is_empty() {
                return Err(io::Error::other(format!("{} has no public address", name.as_str())));
            }
            Ok(found.into_iter())
        })
    }
}

/// Returns whether an address belongs to the internet, and not to this machine, this network, or an unassigned range.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99);
    let bench = a == 198 && (18..20).contains(&b);
    !(special || shared || protocol || bench || a == 0 || a >= 240)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inside) = inside(address) {
        return is_public_v4(inside);
    }
    // Global unicast, without the ranges reserved for documentation and protocols.
    let [a, b, ..] = address.segments();
    let global = (0x2000..0x4000).contains(&a);
    global && !(a == 0x2001 && (b == 0x0db8 || b < 0x0200)) && !(a == 0x3fff && b < 0x1000)
}

/// Returns the IPv4 address that an IPv6 address embeds: mapped, translated or tunnelled.
fn inside(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, .., g, h] = address.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (a, b) {
        (0x2002, _) => Some(of(b, c)),
        (0x0064, 0xff9b) => Some(of(g, h)),
        _ => address.to_ipv4_mapped(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::is_public;

    #[test]
    fn only_the_internet_is_public() {
        for public in
            ["1.1.1.1", "8.8.8.8", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for not in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "192.0.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::7f00:1",
        ] {
            assert!(!is_public(not.parse().unwrap()), "{not}");
        }
    }
}

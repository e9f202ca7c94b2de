//! Warnings about loosened options. The server logs them at every start.

use std::time::Duration;

use crate::options::{Access, ServerOptions};
use crate::sanitize::escaped;
use crate::token::Tokens;

impl ServerOptions {
    /// Returns one sentence for each option that allows more than its default. A server logs them at every start.
    #[must_use]
    pub fn loosened(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn_if = |is: bool, what: &str| {
            if is {
                warnings.push(what.to_owned());
            }
        };
        warn_if(self.writes, "writes are allowed");
        warn_if(self.beyond, "other machines can reach the server");
        warn_if(matches!(self.access, Access::Own), "no token is asked for");
        warn_if(self.hosts.is_none(), "requests for any host are taken");
        warn_if(!self.back_off, "those who show wrong tokens do not have to wait");
        let usual = Self::new(Tokens::none());
        let (known, more) = (usual.hosts.unwrap_or_default(), self.hosts.iter().flatten());
        for name in more.filter(|name| !known.contains(name)) {
            warnings.push(format!("requests for the host {} are taken", escaped(name)));
        }
        self.raised(&mut warnings);
        warnings
    }

    fn raised(&self, warnings: &mut Vec<String>) {
        let usual = Self::new(Tokens::none());
        for (what, is, was) in [
            ("the largest body, in bytes", self.body_bytes, usual.body_bytes),
            ("the number of connections", self.connections, usual.connections),
            ("the number of clients that follow the log", self.followers, usual.followers),
            ("the number of requests at once", self.at_once, usual.at_once),
        ] {
            if is > was {
                warnings.push(format!("a limit is raised: {what}, is {is} instead of {was}"));
            }
        }
        let times: [(&str, Duration, Duration); 5] = [
            ("the time of a request", self.request_time, usual.request_time),
            ("the time for the head of a request", self.head_time, usual.head_time),
            ("the time to agree on TLS", self.handshake_time, usual.handshake_time),
            ("the time without reading an answer", self.write_time, usual.write_time),
            ("the time of a lease", self.lease_time, usual.lease_time),
        ];
        for (what, is, was) in times {
            if is > was {
                warnings.push(format!("a limit is raised: {what}, is {is:?} instead of {was:?}"));
            }
        }
        let was = usual.rate.map_or(0, |rate| rate.per_second);
        match self.rate {
            None => warnings.push("a token may send as many requests as it likes".to_owned()),
            Some(rate) if rate.per_second > was => {
                let is = rate.per_second;
                warnings.push(format!(
                    "a limit is raised: the requests of a token in a second, is {is} instead of {was}"
                ));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Tls;

    type Loosens = fn(ServerOptions) -> ServerOptions;

    #[test]
    fn exactly_the_weakened_defaults_are_reported() {
        let usual = || ServerOptions::new(Tokens::none());
        assert_eq!(usual().loosened(), [""; 0]);
        let tight = usual().tls(Tls::files("c", "k")).rate(1, 1).body_bytes(1).connections(1).followers(0);
        let tight = tight.request_time(Duration::ZERO).head_time(Duration::ZERO).write_time(Duration::ZERO);
        assert_eq!(tight.loosened(), [""; 0], "what is tighter is no loosening");
        let cases: [(Loosens, &str); 16] = [
            (ServerOptions::allow_writes, "writes are allowed"),
            (ServerOptions::beyond_this_machine, "other machines"),
            (|_| ServerOptions::behind_own_auth(), "no token"),
            (ServerOptions::any_host, "any host"),
            (|options| options.host("a\u{1b}b").host("localhost"), "host a\\u{1b}b are"),
            (ServerOptions::no_back_off, "wrong tokens"),
            (|options| options.body_bytes(1 << 30), "is 1073741824 instead of 1048576"),
            (|options| options.connections(1_000), "connections, is 1000 instead of 512"),
            (|options| options.followers(101), "is 101 instead of 100"),
            (|options| options.request_time(Duration::from_secs(31)), "is 31s instead of 30s"),
            (|options| options.head_time(Duration::from_secs(6)), "head of a request, is 6s"),
            (|options| options.handshake_time(Duration::from_secs(6)), "TLS, is 6s"),
            (|options| options.write_time(Duration::from_secs(31)), "answer, is 31s"),
            (|options| options.rate(501, 1), "is 501 instead of 500"),
            (|options| options.at_once(33), "requests at once, is 33 instead of 32"),
            (|options| options.lease_time(Duration::from_hours(2)), "a lease, is 7200s instead of 3600s"),
        ];
        for (loosen, part) in cases {
            let warnings = loosen(usual()).loosened();
            assert!(
                warnings.len() == 1 && warnings.iter().all(|line| line.contains(part)),
                "{part}: {warnings:?}"
            );
        }
        assert_eq!(usual().any_rate().loosened().len(), 1);
        assert_eq!(usual().any_rate().allow_writes().any_host().loosened().len(), 3);
    }
}

//! Server options. The defaults allow only reads, only by callers with a token, and only from this machine.

use std::time::Duration;

use tidelock_core::lease::{MAX_TTL, MIN_TTL};
use tokio::sync::Semaphore;

use crate::rate_limit::Rate;
use crate::tls::Tls;
use crate::token::Tokens;

/// The upper bound of all timeouts. A longer one could overflow an `Instant`.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// The method that authenticates callers.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Tokens(Tokens),
    /// A layer of the user's application authenticates callers.
    Own,
}

/// The permissions and limits of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(crate) access: Access,
    pub(crate) writes: bool,
    pub(crate) beyond: bool,
    pub(crate) tls: Option<Tls>,
    /// `None` for no restriction.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) body_bytes: usize,
    pub(crate) request_time: Duration,
    pub(crate) head_time: Duration,
    pub(crate) handshake_time: Duration,
    pub(crate) write_time: Duration,
    pub(crate) end_time: Duration,
    pub(crate) connections: usize,
    pub(crate) followers: usize,
    pub(crate) lease_time: Duration,
    pub(crate) at_once: usize,
    /// `None` for no restriction.
    pub(crate) rate: Option<Rate>,
    pub(crate) back_off: bool,
}

impl ServerOptions {
    /// Creates options with the defaults, for callers with one of these tokens.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        let hosts = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        Self {
            access: Access::Tokens(tokens),
            writes: false,
            beyond: false,
            tls: None,
            hosts: Some(hosts.into()),
            body_bytes: 1024 * 1024,
            request_time: Duration::from_secs(30),
            head_time: Duration::from_secs(5),
            handshake_time: Duration::from_secs(5),
            write_time: Duration::from_secs(30),
            end_time: Duration::from_secs(10),
            connections: 512,
            followers: 100,
            lease_time: Duration::from_hours(1),
            at_once: 32,
            rate: Some(Rate { per_second: 500, burst: 1_000 }),
            back_off: true,
        }
    }

    /// Creates options for a router behind your own authentication layer. The router requires no token.
    ///
    /// The layer may name the caller with a [`Caller`](crate::Caller) in the extensions of the request.
    #[must_use]
    pub fn behind_own_auth() -> Self {
        Self { access: Access::Own, ..Self::new(Tokens::none()) }
    }

    /// Returns the number of known tokens.
    pub(crate) fn tokens(&self) -> usize {
        match &self.access {
            Access::Tokens(tokens) => tokens.len(),
            Access::Own => 0,
        }
    }

    /// Allows writes by callers whose token has the write role.
    #[must_use]
    pub fn allow_writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Enables TLS with this certificate. Applies to [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Allows an address that other machines can reach. The server still requires [TLS](Self::tls) and tokens for that. Without TLS, tokens
    /// could be read on the network; without tokens, every client could call. Applies to [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn beyond_this_machine(mut self) -> Self {
        self.beyond = true;
        self
    }

    /// Adds a host name of this server, without a port. The defaults are `localhost`, `127.0.0.1` and `[::1]`.
    ///
    /// The server refuses requests for other names. This prevents DNS rebinding, in which a page resolves its own name to this server.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        if let Some(hosts) = &mut self.hosts {
            hosts.push(name.into().to_ascii_lowercase());
        }
        self
    }

    /// Accepts requests for any host name. Use this for a router behind a proxy or a layer that has checked the name.
    #[must_use]
    pub fn any_host(mut self) -> Self {
        self.hosts = None;
        self
    }

    /// Sets the maximum size of a request body. The default is 1 MiB.
    #[must_use]
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets the timeout of a request. The default is 30 s. The time for which a caller waits for the end of a run is added to it.
    #[must_use]
    pub fn request_time(mut self, time: Duration) -> Self {
        self.request_time = time.min(LONGEST);
        self
    }

    /// Sets the timeout for the head of a request, which is also the idle timeout of a connection. The default is 5 s. Applies to
    /// [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn head_time(mut self, time: Duration) -> Self {
        self.head_time = time.min(LONGEST);
        self
    }

    /// Sets the timeout of the TLS handshake. The default is 5 s. Applies to [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn handshake_time(mut self, time: Duration) -> Self {
        self.handshake_time = time;
        self
    }

    /// Sets the time for which a client may read nothing of a response that is being sent. The default is 30 s. Applies to
    /// [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn write_time(mut self, time: Duration) -> Self {
        self.write_time = time.min(LONGEST);
        self
    }

    /// Sets the rate limit of each token. The defaults are 500 requests per second and a burst of 1,000. The server refuses requests above
    /// the limit with 429 and the time to wait. Has no effect where [tokens are left to your own layer](Self::behind_own_auth).
    #[must_use]
    pub fn rate(mut self, per_second: u32, burst: u32) -> Self {
        self.rate = Some(Rate { per_second: per_second.max(1), burst: burst.max(1) });
        self
    }

    /// Disables the rate limit of tokens.
    #[must_use]
    pub fn any_rate(mut self) -> Self {
        self.rate = None;
        self
    }

    /// Disables the backoff for addresses that send many wrong tokens. Use this behind a proxy that forwards the requests of many clients
    /// from one address.
    #[must_use]
    pub fn no_back_off(mut self) -> Self {
        self.back_off = false;
        self
    }

    /// Sets the shutdown timeout for requests in flight. The default is 10 s. Applies to [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn end_time(mut self, time: Duration) -> Self {
        self.end_time = time;
        self
    }

    /// Sets the maximum number of open connections. The default is 512. Further clients wait. Applies to
    /// [`Server::serve`](crate::Server::serve) only.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum number of clients that follow the log. The default is 100.
    #[must_use]
    pub fn followers(mut self, most: usize) -> Self {
        self.followers = most.min(Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum duration for which a lease is acquired or renewed over HTTP. The default is an hour. A client that disconnects
    /// blocks others for at most this time.
    #[must_use]
    pub fn lease_time(mut self, longest: Duration) -> Self {
        self.lease_time = longest.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// Sets the maximum number of requests in flight. The default is 32. Further requests wait up to [their timeout](Self::request_time)
    /// and are then refused with 503.
    ///
    /// A response of more than 1 MiB counts until it is sent. Requests that wait for the end of a run do not count, nor do clients that
    /// follow the log.
    #[must_use]
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = most.clamp(1, Semaphore::MAX_PERMITS);
        self
    }
}

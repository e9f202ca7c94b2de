//! What a server allows. Without a word it allows nothing but looking, to callers with a token, on this machine.

use std::time::Duration;

use tidelock::lease::{MAX_TTL, MIN_TTL};
use tokio::sync::Semaphore;

use crate::rate::Rate;
use crate::tls::Tls;
use crate::token::Tokens;

/// The longest time that is counted from now on: instants have an end.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// How callers are known.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    Tokens(Tokens),
    /// A layer of the user's own has let them through.
    Own,
}

/// What a server allows.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) access: Access,
    pub(crate) writes: bool,
    pub(crate) beyond: bool,
    pub(crate) tls: Option<Tls>,
    /// `None`: any.
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
    /// `None`: any.
    pub(crate) rate: Option<Rate>,
    pub(crate) back_off: bool,
}

impl Options {
    /// For callers with one of these tokens.
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

    /// For a router that stands behind a layer of your own, which lets in whom it knows. No token is asked for here.
    ///
    /// Such a layer may say who calls with a [`Caller`](crate::Caller) in the extensions of the request.
    #[must_use]
    pub fn behind_own_auth() -> Self {
        Self { access: Access::Own, ..Self::new(Tokens::none()) }
    }

    /// How many tokens are known.
    pub(crate) fn tokens(&self) -> usize {
        match &self.access {
            Access::Tokens(tokens) => tokens.len(),
            Access::Own => 0,
        }
    }

    /// Also lets callers change things whose token is for that.
    #[must_use]
    pub fn allow_writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Speaks TLS, with this certificate. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves an address that other machines can reach. It still wants [TLS](Self::tls) and tokens for that: otherwise tokens
    /// could be read on the way, or anybody might call. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn beyond_this_machine(mut self) -> Self {
        self.beyond = true;
        self
    }

    /// Another name of this server, without a port: requests for names that it has not are refused, so that a page whose
    /// name was made to point here cannot call it. It has `localhost`, `127.0.0.1` and `[::1]`.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        if let Some(hosts) = &mut self.hosts {
            hosts.push(name.into().to_ascii_lowercase());
        }
        self
    }

    /// Takes requests for any name: for a router behind something that has looked at the name.
    #[must_use]
    pub fn any_host(mut self) -> Self {
        self.hosts = None;
        self
    }

    /// The largest body: 1 MiB.
    #[must_use]
    pub fn body_bytes(mut self, bytes: usize) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// How long a request may take: 30 s. Waiting for the end of a run comes on top.
    #[must_use]
    pub fn request_time(mut self, time: Duration) -> Self {
        self.request_time = time.min(LONGEST);
        self
    }

    /// How long a client may take to send the head of a request, and how long it may send nothing: 5 s. Counts in
    /// [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn head_time(mut self, time: Duration) -> Self {
        self.head_time = time.min(LONGEST);
        self
    }

    /// How long a client may take to agree on TLS: 5 s. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn handshake_time(mut self, time: Duration) -> Self {
        self.handshake_time = time;
        self
    }

    /// How long a client may read nothing of an answer that is sent to it: 30 s. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn write_time(mut self, time: Duration) -> Self {
        self.write_time = time.min(LONGEST);
        self
    }

    /// The most requests with one token: so many in a second, 500, and so many at once, 1,000. Others are refused with the time to
    /// wait (429). Does not count where [tokens are left to a layer of yours](Self::behind_own_auth).
    #[must_use]
    pub fn rate(mut self, per_second: u32, burst: u32) -> Self {
        self.rate = Some(Rate { per_second: per_second.max(1), burst: burst.max(1) });
        self
    }

    /// Takes as many requests with a token as come.
    #[must_use]
    pub fn any_rate(mut self) -> Self {
        self.rate = None;
        self
    }

    /// Does not let an address wait from which many wrong tokens come: for a server behind something that sends it the requests of
    /// many from one address.
    #[must_use]
    pub fn no_back_off(mut self) -> Self {
        self.back_off = false;
        self
    }

    /// How long requests under way may take when the server ends: 10 s. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn end_time(mut self, time: Duration) -> Self {
        self.end_time = time;
        self
    }

    /// The most connections at once: 512. Others wait. Counts in [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// The most clients that follow the log at once: 100.
    #[must_use]
    pub fn followers(mut self, most: usize) -> Self {
        self.followers = most.min(Semaphore::MAX_PERMITS);
        self
    }

    /// The longest time for which a lease is taken or renewed over HTTP: an hour. A client that goes away keeps others out for no longer.
    #[must_use]
    pub fn lease_time(mut self, longest: Duration) -> Self {
        self.lease_time = longest.clamp(MIN_TTL, MAX_TTL);
        self
    }

    /// The most requests that are worked on at once: 32. Others wait for as long as [a request may take](Self::request_time), and are then
    /// refused (503). An answer of more than 1 MiB counts until it is sent. Those that wait for the end of a run, or follow the log, do not
    /// count.
    #[must_use]
    pub fn at_once(mut self, most: usize) -> Self {
        self.at_once = most.clamp(1, Semaphore::MAX_PERMITS);
        self
    }
}

//! What a server allows. Without a word it allows nothing but looking, to callers with a token, on this machine.

use std::time::Duration;

use crate::token::Tokens;

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
    /// `None`: any.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) body_bytes: usize,
    pub(crate) request_time: Duration,
    pub(crate) head_time: Duration,
    pub(crate) end_time: Duration,
    pub(crate) connections: usize,
    pub(crate) followers: usize,
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
            hosts: Some(hosts.into()),
            body_bytes: 1024 * 1024,
            request_time: Duration::from_secs(30),
            head_time: Duration::from_secs(5),
            end_time: Duration::from_secs(10),
            connections: 512,
            followers: 100,
        }
    }

    /// For a router that stands behind a layer of your own, which lets in whom it knows. No token is asked for here.
    ///
    /// Such a layer may say who calls with a [`Caller`](crate::Caller) in the extensions of the request.
    #[must_use]
    pub fn behind_own_auth() -> Self {
        Self { access: Access::Own, ..Self::new(Tokens::none()) }
    }

    /// Also lets callers change things whose token is for that.
    #[must_use]
    pub fn allow_writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Serves an address that other machines can reach. Nothing is encrypted here, so tokens can be read on the way: let
    /// something that speaks TLS stand before it. Counts in [`Server::serve`](crate::Server::serve).
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
        self.request_time = time;
        self
    }

    /// How long a client may take to send the head of a request, and how long it may send nothing: 5 s. Counts in
    /// [`Server::serve`](crate::Server::serve).
    #[must_use]
    pub fn head_time(mut self, time: Duration) -> Self {
        self.head_time = time;
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
        self.connections = most.max(1);
        self
    }

    /// The most clients that follow the log at once: 100.
    #[must_use]
    pub fn followers(mut self, most: usize) -> Self {
        self.followers = most;
        self
    }
}

//! Patroni configuration and REST client.
//!
//! The configuration is JSON, which is also valid YAML. Health checks read the state of a node from status codes alone.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// Whether commits wait for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Commits wait: an acknowledged commit survives a failover.
    Sync,
    /// Commits do not wait: a failover may lose the last commits.
    Async,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
        }
    }
}

/// The timing of Patroni's failure detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Timing {
    /// The shortest times that Patroni accepts, and a failover at once when the primary has crashed.
    #[default]
    Short,
    /// Patroni's defaults. A crashed primary is restarted in place.
    Defaults,
}

impl Timing {
    /// Returns a description for human readers.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Short => "ttl 20 s, loop_wait 1 s, retry_timeout 3 s, primary_start_timeout 0",
            Self::Defaults => "Patroni's defaults: ttl 30 s, loop_wait 10 s, retry_timeout 10 s",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            Self::Short => r#""ttl": 20, "loop_wait": 1, "retry_timeout": 3, "primary_start_timeout": 0, "#,
            Self::Defaults => "",
        }
    }

    /// Returns the maximum time from a failure to a new primary, on a busy machine.
    pub(crate) fn failover_limit(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(90),
            Self::Defaults => Duration::from_secs(150),
        }
    }
}

/// The configuration of one node.
pub(crate) struct Config<'a> {
    pub(crate) name: &'a str,
    pub(crate) directory: &'a Path,
    pub(crate) rest: u16,
    pub(crate) port: u16,
    pub(crate) etcd: u16,
    pub(crate) programs: &'a Path,
    pub(crate) password: &'a str,
    pub(crate) mode: Mode,
    pub(crate) timing: Timing,
}

impl Config<'_> {
    /// Returns the text of the configuration file.
    pub(crate) fn text(&self) -> String {
        let Self { name, rest, port, etcd, password, .. } = self;
        let (directory, programs) = (self.directory.display(), self.programs.display());
        let (synchronous, timing) = (self.mode == Mode::Sync, self.timing.settings());
        format!(
            r#"{{
"scope": "tidelock", "name": "{name}",
"restapi": {{"listen": "127.0.0.1:{rest}", "connect_address": "127.0.0.1:{rest}"}},
"etcd3": {{"hosts": ["127.0.0.1:{etcd}"]}},
"bootstrap": {{
  "dcs": {{{timing}"maximum_lag_on_failover": 1073741824, "synchronous_mode": {synchronous},
    "postgresql": {{"use_pg_rewind": true, "use_slots": true, "parameters": {{
      "max_connections": 300, "wal_keep_size": "512MB", "shared_buffers": "64MB", "max_wal_senders": 10}}}}}},
  "initdb": [{{"encoding": "UTF8"}}, {{"locale": "C.UTF-8"}}, {{"auth": "scram-sha-256"}}, "data-checksums"]}},
"postgresql": {{
  "listen": "127.0.0.1:{port}", "connect_address": "127.0.0.1:{port}",
  "data_dir": "{directory}/data", "bin_dir": "{programs}", "pgpass": "{directory}/pgpass",
  "pg_hba": ["host all all 127.0.0.1/32 scram-sha-256", "host replication all 127.0.0.1/32 scram-sha-256"],
  "authentication": {{
    "superuser": {{"username": "tidelock", "password": "{password}"}},
    "replication": {{"username": "replicator", "password": "{password}"}},
    "rewind": {{"username": "rewinder", "password": "{password}"}}}},
  "parameters": {{"unix_socket_directories": ""}}}}
}}"#
        )
    }
}

/// The timeout of requests to Patroni. A stopped Patroni does not respond.
const LIMIT: Duration = Duration::from_millis(800);

/// Sends a request to the REST interface and returns the response, or `None` without one.
pub(crate) fn request(rest: u16, method: &str, path: &str, body: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rest));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("{head}content-type: application/json\r\n\r\n{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Returns whether a response has the status 200.
pub(crate) fn is_success(answer: &str) -> bool {
    answer.split(' ').nth(1) == Some("200")
}

/// Returns whether a health check of a node succeeds.
pub(crate) fn is(rest: u16, path: &str) -> bool {
    request(rest, "GET", path, "").is_some_and(|answer| is_success(&answer))
}

/// Returns whether the server of a node accepts writes. A node that holds the leader key may still be in the middle of its
/// promotion.
pub(crate) fn takes_writes(rest: u16) -> bool {
    request(rest, "GET", "/patroni", "").is_some_and(|answer| answer.contains("\"role\": \"primary\""))
}

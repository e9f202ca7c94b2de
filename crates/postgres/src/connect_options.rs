//! Only here: the address of a database, as a URL or as libpq's keyword string. Parsed by libpq's rules.
//!
//! Nothing here connects or resolves a name. The password goes into the driver's configuration only: no error, `Debug`
//! or location holds it. A piece of the address could belong to a password that was not encoded. An error therefore
//! never quotes a piece of the address; it names the piece by its number.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

#[cfg(test)]
mod tests;

const WHAT: &str = "opening the PostgreSQL store";
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const DEFAULT_PORT: u16 = 5432;
/// How long an endpoint may take to accept a connection and answer, where the address sets no `connect_timeout` …
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// … and if there is another one to try.
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(3);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged. Most systems would wait for a quarter of an hour.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where libpq's Debian build, and most packages after it, put the socket of the local server.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// Parameters that the driver understands as libpq does.
const DRIVER: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "user",
];

/// Parameters that this module handles.
const OURS: &[&str] = &[
    "fallback_application_name",
    "keepalives_count",
    "pooler",
    "schema",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "tcp_user_timeout",
];

/// Parameters of libpq whose listed values request the behaviour that this store has anyway.
const SETTLED: &[(&str, &[&str])] = &[
    ("client_encoding", &["auto", "utf8", "utf-8"]),
    ("gssencmode", &["disable", "prefer"]),
    ("ssl_min_protocol_version", &["tlsv1", "tlsv1.1", "tlsv1.2"]),
    ("sslcompression", &["0"]),
    ("sslsni", &["1"]),
];

/// Parameters of libpq that would change the behaviour and are not supported here.
const UNSUPPORTED: &[&str] = &[
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "servicefile",
    "ssl_max_protocol_version",
    "sslcertmode",
    "sslcrl",
    "sslcrldir",
    "sslpassword",
];

/// Environment variables that supply parameters missing from the address, as with every client of PostgreSQL.
const VARIABLES: &[(&str, &str)] = &[
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("dbname", "PGDATABASE"),
    ("options", "PGOPTIONS"),
    ("password", "PGPASSWORD"),
    ("port", "PGPORT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("user", "PGUSER"),
];

/// The encryption of a connection and the checks of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server can; the certificate is not checked.
    Prefer,
    /// Encrypted; the certificate is checked only if a file of roots was named.
    Require,
    /// Encrypted; the certificate must be signed by a root, for whatever name.
    VerifyCa,
    /// Encrypted; the certificate must be signed by a root and be for the name of the host.
    VerifyFull,
}

impl TlsMode {
    fn parse(name: &str) -> Result<Self, StoreError> {
        match name {
            "disable" => Ok(Self::Disable),
            "allow" | "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            other => Err(fault(format!(
                "sslmode is `{other}`; it must be disable, prefer, require, verify-ca or verify-full"
            ))),
        }
    }

    /// The name that users write.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// A client's certificate and its key, both files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCert {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// One host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostAddress {
    pub(crate) name: Host,
    /// The address to connect to. `None`: the name is resolved.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// The location of the database and the parameters of its connections.
#[derive(Clone)]
pub(crate) struct ConnectOptions {
    /// The driver's configuration, without hosts. Its `ssl_mode` agrees with `tls`.
    pub(crate) config: Config,
    /// The hosts, in the order of the address.
    pub(crate) hosts: Vec<HostAddress>,
    pub(crate) tls: TlsMode,
    /// The file of roots (PEM) that the server's certificate is checked against. `None`: the system's roots.
    pub(crate) root_cert: Option<PathBuf>,
    pub(crate) client_cert: Option<ClientCert>,
    /// The schema of the store, if the address names one.
    pub(crate) schema: Option<String>,
    /// Whether a transaction-mode pooler sits between the store and the server. `None`: the address does not specify
    /// it.
    pub(crate) pooled: Option<bool>,
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("location", &self.location())
            .field("tls", &self.tls)
            .field("root_cert", &self.root_cert)
            .field("client_cert", &self.client_cert)
            .field("schema", &self.schema)
            .field("pooled", &self.pooled)
            .finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// Parses an address and takes missing parameters from the environment.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        Self::parse_in(url, &|name| std::env::var(name).ok())
    }

    /// Parses an address with the environment that the caller supplies.
    pub(crate) fn parse_in(
        url: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, StoreError> {
        let mut given = Parameters::read(url.trim())?;
        let names_roots = given.get("sslrootcert").is_some();
        given.complete(environment);
        let hosts = hosts(&given)?;
        let mut config = driver_config(&given, hosts.len())?;
        let tls = tls_mode(&given, &hosts, names_roots)?;
        config.ssl_mode(match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        Ok(Self {
            config,
            hosts,
            tls,
            root_cert: given.get("sslrootcert").filter(|path| *path != "system").map(PathBuf::from),
            client_cert: client_cert(&given)?,
            schema: given.get("schema").map(str::to_owned),
            pooled: pooled(&given)?,
        })
    }

    /// The address for people: `postgres://user@host:port/database`, without the password.
    pub(crate) fn location(&self) -> String {
        let hosts = (0..self.hosts.len()).map(|index| self.host_name(index)).collect::<Vec<_>>().join(",");
        let user = self.config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
        format!("postgres://{user}{hosts}/{}", self.config.get_dbname().unwrap_or_default())
    }

    /// One host with its port, for people.
    pub(crate) fn host_name(&self, index: usize) -> String {
        let Some(HostAddress { name, port, .. }) = self.hosts.get(index) else { return String::new() };
        match name {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(directory) => format!("{}:{port}", directory.display()),
        }
    }

    /// Returns the time limit of one endpoint, among `endpoints`, for TCP, TLS, authentication and the first response.
    pub(crate) fn connect_limit(&self, endpoints: usize) -> Duration {
        let default = if endpoints > 1 { CONNECT_TIMEOUT_OF_SEVERAL } else { CONNECT_TIMEOUT };
        self.config.get_connect_timeout().copied().unwrap_or(default)
    }
}

/// The parameters of an address by name. The last value wins when a parameter is given twice.
#[derive(Default)]
struct Parameters {
    values: BTreeMap<&'static str, String>,
}

impl Parameters {
    fn read(text: &str) -> Result<Self, StoreError> {
        let mut given = Self::default();
        match SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
            Some(rest) => given.read_url(rest)?,
            None => given.read_keywords(text)?,
        }
        Ok(given)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Adds the parameter at a place in the address, counted from 1.
    fn add(&mut self, place: usize, name: &str, value: String) -> Result<(), StoreError> {
        if value.contains('\0') {
            return Err(fault(format!(
                "parameter {place} holds a zero byte, which PostgreSQL does not accept"
            )));
        }
        if let Some((name, settled)) = SETTLED.iter().find(|(known, _)| *known == name) {
            return match settled.contains(&value.to_lowercase().as_str()) {
                true => Ok(()),
                false => Err(fault(format!("`{name}` may only be {} here", settled.join(" or ")))),
            };
        }
        if let Some(name) = UNSUPPORTED.iter().find(|known| **known == name) {
            return Err(fault(format!("`{name}` is not supported; leave it out")));
        }
        let Some(name) = DRIVER.iter().chain(OURS).find(|known| **known == name) else {
            let known = DRIVER.iter().chain(OURS).copied().collect::<Vec<_>>().join(", ");
            return Err(fault(format!(
                "the name of parameter {place} is unknown; names are {known}; {}",
                "a password with blanks, &, ? or = in it must be quoted or percent-encoded"
            )));
        };
        self.values.insert(name, value);
        Ok(())
    }

    /// Parses the part after the scheme: `user:password@host:port,host:port/database?name=value&name=value`.
    fn read_url(&mut self, rest: &str) -> Result<(), StoreError> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, dbname) = place.split_once('/').unwrap_or((place, ""));
        if dbname.contains('@') {
            return Err(fault(format!("there is an @ after the first /; {ENCODE}")));
        }
        // A password may hold an @ that was not encoded; a host cannot, so the last one ends the password.
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        for (name, piece) in [("user", user), ("password", password), ("dbname", dbname)] {
            if !piece.is_empty() {
                self.values.insert(name, decode(piece, name)?);
            }
        }
        self.read_hosts(hosts)?;
        for (i, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let place = i.saturating_add(1);
            let Some((name, value)) = pair.split_once('=') else {
                return Err(fault(format!("parameter {place} after the ? has no `=`; {ENCODE}")));
            };
            let (name, value) = (decode(name, "a name")?, decode(value, "a value")?);
            match (name.as_str(), value.as_str()) {
                // JDBC's spelling, which libpq understands in URLs.
                ("ssl", "true") => self.add(place, "sslmode", "require".to_owned())?,
                _ => self.add(place, &name, value)?,
            }
        }
        Ok(())
    }

    fn read_hosts(&mut self, text: &str) -> Result<(), StoreError> {
        if text.is_empty() {
            return Ok(());
        }
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for (i, piece) in text.split(',').enumerate() {
            let at = || format!("host {}", i.saturating_add(1));
            let (host, port) = match piece.strip_prefix('[').map(|rest| rest.split_once(']')) {
                Some(Some((host, ""))) => (host, ""),
                Some(Some((host, rest))) if rest.starts_with(':') => (host, rest.trim_start_matches(':')),
                Some(_) => return Err(fault(format!("{} is not of the form [address]:port", at()))),
                None => piece.split_once(':').unwrap_or((piece, "")),
            };
            if !port.is_empty() && port.parse::<u16>().is_err() {
                return Err(fault(format!(
                    "the port of {} is not a number up to 65535; {ENCODE}; an IPv6 address needs [ and ]",
                    at()
                )));
            }
            hosts.push(decode(host, "a host")?);
            ports.push(port);
        }
        self.values.insert("host", hosts.join(","));
        if ports.iter().any(|port| !port.is_empty()) {
            self.values.insert("port", ports.join(","));
        }
        Ok(())
    }

    /// Parses `name=value name='quoted value'`. A backslash escapes the next character.
    fn read_keywords(&mut self, text: &str) -> Result<(), StoreError> {
        const EXPECTED: &str = "expected postgres://user@host/database or host=... dbname=...";
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        if text.is_empty() {
            return Err(fault(format!("the address is empty; {EXPECTED}")));
        }
        if scheme.is_some_and(|scheme| !scheme.contains(|c: char| c == '=' || c.is_whitespace())) {
            return Err(fault(format!("the address begins with another scheme; {EXPECTED}")));
        }
        let mut rest = text;
        for place in 1.. {
            rest = rest.trim_start();
            if rest.is_empty() {
                break;
            }
            let (name, after) = match rest.split_once('=') {
                Some((name, after)) if !name.trim_end().contains(char::is_whitespace) => {
                    (name.trim_end(), after)
                }
                _ => return Err(fault(format!("parameter {place} has no `=`; {EXPECTED}; {QUOTE}"))),
            };
            let (value, after) = keyword_value(after.trim_start())
                .ok_or_else(|| fault(format!("the quote of parameter {place} is not closed; {QUOTE}")))?;
            self.add(place, name, value)?;
            rest = after;
        }
        Ok(())
    }

    /// Fills in missing parameters. An empty value counts as missing.
    fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        for (name, variable) in VARIABLES {
            if let (None, Some(value)) = (self.get(name), environment(variable)) {
                self.values.insert(name, value);
            }
        }
        self.values.retain(|_, value| !value.is_empty());
        if self.get("user").is_none() {
            // Without these either, the driver asks the system for the user's name.
            let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| environment(name));
            self.values.extend(user.filter(|user| !user.is_empty()).map(|user| ("user", user)));
        }
        if let (None, Some(user)) = (self.get("dbname"), self.get("user")) {
            self.values.insert("dbname", user.to_owned());
        }
        if self.get("host").is_none() {
            // A certificate can be for an address, so an address alone is a host that can be checked.
            let host = self.get("hostaddr").map(str::to_owned).or_else(|| environment("PGHOST"));
            let host = host.filter(|host| !host.is_empty());
            self.values.insert("host", host.unwrap_or_else(|| self.default_host().to_owned()));
        }
    }

    /// The local server's socket where there is one, as with libpq.
    fn default_host(&self) -> &'static str {
        let socket = format!(".s.PGSQL.{}", self.get("port").unwrap_or("5432"));
        match Path::new(SOCKET_DIRECTORY).join(socket).exists() {
            true => SOCKET_DIRECTORY,
            false => "localhost",
        }
    }
}

const ENCODE: &str =
    "in a URL, write / as %2F, ? as %3F, @ as %40, : as %3A and % as %25 inside a user or a password";
const QUOTE: &str = "a value with blanks is written 'in quotes', with \\' for a quote inside";

/// Decodes percent-encoding such as `%2F`. An invalid encoding is an error, since it may be half of a password.
fn decode(text: &str, what: &str) -> Result<String, StoreError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit =
            || rest.next().and_then(|c| char::from(c).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(), digit()) {
            (Some(0), Some(0)) => {
                return Err(fault(format!("{what} holds %00, which PostgreSQL does not accept")));
            }
            (Some(high), Some(low)) => bytes.push(high << 4 | low),
            _ => return Err(fault(format!("{what} holds a % without two hexadecimal digits; {ENCODE}"))),
        }
    }
    String::from_utf8(bytes).map_err(|_| fault(format!("{what} is not UTF-8 once decoded; {ENCODE}")))
}

/// Parses one value at the front and returns it with the remaining text. `None`: a quote is not closed.
fn keyword_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let quoted = text.strip_prefix('\'');
    let mut rest = quoted.unwrap_or(text).chars();
    loop {
        let before = rest.as_str();
        match rest.next() {
            Some('\'') if quoted.is_some() => return Some((value, rest.as_str())),
            Some(c) if quoted.is_none() && c.is_whitespace() => return Some((value, before)),
            Some('\\') => value.extend(rest.next()),
            Some(c) => value.push(c),
            None if quoted.is_some() => return None,
            None => return Some((value, "")),
        }
    }
}

/// The parameters that name the hosts.
const HOSTS: [&str; 3] = ["host", "hostaddr", "port"];

/// The driver's syntax for a parameter.
fn word(name: &str, value: &str) -> String {
    format!("{name}='{}' ", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The hosts with their ports and addresses, as the driver understands them.
fn hosts(given: &Parameters) -> Result<Vec<HostAddress>, StoreError> {
    let words: String =
        HOSTS.iter().filter_map(|name| given.get(name).map(|value| word(name, value))).collect();
    let config: Config = words.parse().map_err(|e| refused(&e))?;
    check_counts(&config)?;
    let ports = config.get_ports();
    let port = |i: usize| ports.get(i).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT);
    let names = config.get_hosts().iter().enumerate();
    let ip = |i: usize| config.get_hostaddrs().get(i).copied();
    Ok(names.map(|(i, name)| HostAddress { name: name.clone(), ip: ip(i), port: port(i) }).collect())
}

/// Passes the parameters to the driver in its own syntax, and sets the defaults of a store where the address sets none.
fn driver_config(given: &Parameters, hosts: usize) -> Result<Config, StoreError> {
    let mut words = String::new();
    for name in DRIVER.iter().filter(|name| !HOSTS.contains(name)) {
        let value = match (*name, given.get(name)) {
            // A newer name for nearly the same attribute. The driver has only the older and stricter one.
            ("target_session_attrs", Some("primary")) => Some("read-write"),
            ("keepalives_retries", None) => given.get("keepalives_count"),
            ("application_name", None) => given.get("fallback_application_name").or(Some("tidelock")),
            (_, value) => value,
        };
        if let Some(value) = value {
            words.push_str(&word(name, value));
        }
    }
    let mut config: Config = words.parse().map_err(|e| refused(&e))?;
    if given.get("keepalives_idle").is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    // The driver would parse seconds, while libpq and common configurations mean milliseconds. Zero keeps the system's
    // default.
    match given.get("tcp_user_timeout").map(str::parse::<u64>) {
        None => config.tcp_user_timeout(TCP_USER_TIMEOUT),
        Some(Ok(0)) => &mut config,
        Some(Ok(millis)) => config.tcp_user_timeout(Duration::from_millis(millis)),
        Some(Err(_)) => return Err(fault("`tcp_user_timeout` must be a number of milliseconds")),
    };
    // Several hosts are a primary and its standbys. A store must write, so it skips the standbys. With one host there
    // is nothing to choose, and the check would cost a round trip.
    if hosts > 1 && given.get("target_session_attrs").is_none() {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

/// The driver names the parameter and never its value.
fn refused(e: &tokio_postgres::Error) -> StoreError {
    let cause = e.source().map_or_else(|| e.to_string(), ToString::to_string);
    fault(format!("{cause}; see the parameters of libpq in PostgreSQL's manual"))
}

/// Checks the counts before anything is started. The driver would find the error only at the first connection.
fn check_counts(config: &Config) -> Result<(), StoreError> {
    let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
    let ports = config.get_ports().len();
    if addresses != 0 && addresses != hosts {
        return Err(fault(format!(
            "{hosts} hosts and {addresses} hostaddrs; name one hostaddr for each host"
        )));
    }
    if ports > 1 && ports != hosts {
        return Err(fault(format!("{hosts} hosts and {ports} ports; name one port, or one for each host")));
    }
    Ok(())
}

fn tls_mode(given: &Parameters, hosts: &[HostAddress], names_roots: bool) -> Result<TlsMode, StoreError> {
    let asked = given.get("sslmode").map(TlsMode::parse).transpose()?;
    if hosts.iter().all(|host| is_socket(&host.name)) {
        // The bytes never leave the machine, and PostgreSQL has no TLS there. libpq ignores sslmode as well.
        return Ok(TlsMode::Disable);
    }
    let roots = given.get("sslrootcert");
    match (asked, roots) {
        // Any applicant can obtain a certificate for some name from one of the system's roots.
        (Some(TlsMode::VerifyCa), None | Some("system")) => {
            Err(fault("sslmode=verify-ca needs sslrootcert=<file>; with the system's roots, use verify-full"))
        }
        (Some(mode @ (TlsMode::Prefer | TlsMode::Require)), Some("system")) => {
            Err(fault(format!("sslrootcert=system needs sslmode=verify-full, not {}", mode.name())))
        }
        (Some(mode), _) => Ok(mode),
        // An address that names roots requests their use, for local and remote hosts.
        (None, _) if names_roots => Ok(TlsMode::VerifyFull),
        (None, _) if hosts.iter().all(is_local) => Ok(TlsMode::Prefer),
        (None, _) => Ok(TlsMode::VerifyFull),
    }
}

fn client_cert(given: &Parameters) -> Result<Option<ClientCert>, StoreError> {
    match (given.get("sslcert"), given.get("sslkey")) {
        (Some(certificate), Some(key)) => {
            Ok(Some(ClientCert { certificate: certificate.into(), key: key.into() }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(fault("sslcert is given without sslkey; name the file of the key as well")),
        (None, Some(_)) => {
            Err(fault("sslkey is given without sslcert; name the file of the certificate as well"))
        }
    }
}

fn pooled(given: &Parameters) -> Result<Option<bool>, StoreError> {
    match given.get("pooler") {
        None => Ok(None),
        Some("transaction") => Ok(Some(true)),
        Some("none") => Ok(Some(false)),
        Some(other) => Err(fault(format!("pooler is `{other}`; it must be transaction or none"))),
    }
}

fn is_local(host: &HostAddress) -> bool {
    let loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    host.ip.is_none_or(loopback)
        && match &host.name {
            Host::Tcp(name) => name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(loopback),
            #[cfg(unix)]
            Host::Unix(_) => true,
        }
}

fn is_socket(host: &Host) -> bool {
    match host {
        Host::Tcp(_) => false,
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

fn fault(detail: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::CannotOpen, WHAT, detail)
}

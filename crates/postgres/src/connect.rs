//! Only here: connections. This module makes every connection of a store.
//!
//! The hosts of an address are tried one after the other. A frozen server accepts TCP and never answers, so one limit per
//! endpoint covers the lookup, TCP, TLS, authentication and the first round trip. The last good endpoint is tried first;
//! endpoints that went silent are tried last. Every new connection is [confirmed](confirm::confirm) before it is used.
//!
//! An open connection shows a frozen server only by silence. When a statement gets no response within the limit and the
//! address names several hosts, the store opens a second connection to the same endpoint. Its response distinguishes a
//! slow statement from a silent host. After a silence, no connection to that endpoint that was made before it is used
//! again.
//!
//! Connections are made and driven on a runtime of the library. A socket belongs to the runtime that registered it, and
//! would end with the runtime of a caller.

mod confirm;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool::managed;
use deadpool_postgres::ClientWrapper;
use futures_util::future::poll_fn;
use parking_lot::Mutex;
use tidelock_core::runtime::background::Background;
use tidelock_core::runtime::jitter;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect_options::ConnectOptions;
use crate::epoch::Epochs;
use crate::error::{self, Failure};
use crate::tls;

pub(crate) use confirm::{Confirmed, SessionKind};

/// The runtime of all connections, committers and listeners.
static RUNTIME: Background = Background::multi_thread("tidelock-postgres");

/// Spawns a task that does not depend on the runtime of a caller.
///
/// # Errors
/// Fails when the operating system provides no thread.
pub(crate) fn spawn<F>(task: F) -> Result<JoinHandle<F::Output>, StoreError>
where
    F: Future<Output: Send> + Send + 'static,
{
    RUNTIME.spawn(task).map_err(|error| {
        let what = "starting the threads of the PostgreSQL store";
        StoreError::new(StoreErrorKind::CannotOpen, what, error.to_string())
    })
}

/// A pool of connections.
pub(crate) type Pool = managed::Pool<Manager>;
/// A connection on loan from a [`Pool`].
pub(crate) type Client = managed::Object<Manager>;

/// How the sessions of one pool differ from those of another.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// Settings for the startup packet, after those of the address. A pooler refuses them.
    pub(crate) options: String,
    /// `synchronous_commit`, set in the startup packet and read back. It wins over the settings of the role, the database and
    /// the server, also over later ones.
    pub(crate) commit: Option<&'static str>,
    pub(crate) kind: SessionKind,
}

impl Profile {
    /// A connection that belongs to no store.
    pub(crate) fn plain() -> Self {
        Self { options: String::new(), commit: None, kind: SessionKind::Plain }
    }
}

/// One address of one host. A name may resolve to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Endpoint {
    /// The index of the host in the address.
    host: usize,
    /// `None` for a socket of this machine.
    ip: Option<IpAddr>,
}

/// The hosts of an address, with their observed health.
pub(crate) struct Hosts {
    address: ConnectOptions,
    tls: MakeRustlsConnect,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    last_good: Option<Endpoint>,
    /// Endpoints whose last attempt or statement had no answer.
    suspects: HashSet<Endpoint>,
    /// The number of times that open connections to an endpoint went silent.
    silences: HashMap<Endpoint, u64>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hosts").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A confirmed connection before it has an owner.
pub(crate) struct Made {
    pub(crate) client: tokio_postgres::Client,
    confirmed: Confirmed,
    /// Drives the connection. It ends with the client.
    task: JoinHandle<()>,
    endpoint: Endpoint,
    silences: u64,
}

impl Hosts {
    /// Reads the certificate files that the address names. Does not connect.
    pub(crate) fn new(address: &ConnectOptions) -> Result<Arc<Self>, StoreError> {
        let tls = tls::connector(address)?;
        Ok(Arc::new(Self { address: address.clone(), tls, health: Mutex::default() }))
    }

    /// Returns the TLS connector of the connections.
    pub(crate) fn tls(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }

    /// Makes a pool without opening a connection.
    pub(crate) fn pool(
        self: &Arc<Self>,
        profile: Profile,
        size: usize,
        epochs: &Arc<Epochs>,
    ) -> Result<Pool, StoreError> {
        let manager = Manager { hosts: Arc::clone(self), profile, epochs: Arc::clone(epochs) };
        let built = Pool::builder(manager).max_size(size).build();
        built.map_err(|e| StoreError::new(StoreErrorKind::Bug, "opening the PostgreSQL store", e.to_string()))
    }

    /// Makes one connection that ends when it is dropped. See [`connect`](Self::connect).
    pub(crate) async fn connection(
        self: &Arc<Self>,
        profile: &Profile,
        messages: impl Fn(AsyncMessage) + Clone + Send + 'static,
    ) -> Result<Connection, StoreError> {
        let Made { client, confirmed, task, endpoint, silences } = self.connect(profile, messages).await?;
        let client = ClientWrapper::new(client, task);
        Ok(Connection { client, confirmed, hosts: Arc::clone(self), endpoint, silences })
    }

    /// Connects to the first host that answers within its limit and is of the wanted kind. `messages` receives
    /// notifications and notices.
    ///
    /// # Errors
    /// Names every endpoint with its cause when none is usable.
    pub(crate) async fn connect(
        &self,
        profile: &Profile,
        messages: impl Fn(AsyncMessage) + Clone + Send + 'static,
    ) -> Result<Made, StoreError> {
        let mut causes = Vec::new();
        for host in self.hosts_in_order() {
            let endpoints = match self.endpoints(host).await {
                Ok(endpoints) => endpoints,
                Err(cause) => {
                    causes.push((self.address.host_name(host), cause));
                    continue;
                }
            };
            let limit = self.limit(endpoints.len());
            for endpoint in endpoints {
                let attempt = Box::pin(self.attempt(endpoint, profile, messages.clone()));
                match timeout(limit, attempt).await {
                    Ok(Ok(made)) => {
                        self.health.lock().found(endpoint);
                        return Ok(made);
                    }
                    Ok(Err(cause)) => causes.push((self.label(endpoint), cause)),
                    Err(_) => {
                        self.health.lock().suspect(endpoint);
                        causes.push((self.label(endpoint), self.no_answer(limit)));
                    }
                }
            }
        }
        Err(self.all_failed(causes))
    }

    async fn attempt(
        &self,
        endpoint: Endpoint,
        profile: &Profile,
        messages: impl Fn(AsyncMessage) + Send + 'static,
    ) -> Result<Made, StoreError> {
        let silences = self.health.lock().silences(endpoint);
        let (config, tls) = (self.config(endpoint, profile), self.tls.clone());
        let connecting = spawn(async move { config.connect(tls).await })?;
        let mut unconfirmed = Unconfirmed(Some(connecting.abort_handle()));
        let connected = connecting.await.map_err(|ended| self.unreachable(ended.to_string()))?;
        let (client, connection) = connected.map_err(|e| self.cannot_connect(&e))?;
        let task = spawn(drive(connection, messages))?;
        unconfirmed.0 = Some(task.abort_handle());
        let attrs = self.address.config.get_target_session_attrs();
        let confirmed = confirm::confirm(&client, attrs, profile).await?;
        unconfirmed.0 = None;
        Ok(Made { client, confirmed, task, endpoint, silences })
    }

    /// Returns the driver's configuration for one endpoint. This module confirms the kind of the session, not the
    /// driver.
    fn config(&self, endpoint: Endpoint, profile: &Profile) -> Config {
        let mut config = self.address.config.clone();
        config.target_session_attrs(TargetSessionAttrs::Any);
        let given = config.get_options().unwrap_or_default();
        let commit = profile.commit.map(|commit| format!(" -c synchronous_commit={commit}"));
        let options = format!("{given} {}{}", profile.options, commit.unwrap_or_default());
        if !options.trim().is_empty() {
            config.options(options.trim());
        }
        if let Some(host) = self.address.hosts.get(endpoint.host) {
            match &host.name {
                Host::Tcp(name) => config.host(name),
                #[cfg(unix)]
                Host::Unix(directory) => config.host_path(directory),
            };
            config.port(host.port);
        }
        if let Some(ip) = endpoint.ip {
            config.hostaddr(ip);
        }
        config
    }

    /// Returns the hosts: the last good one first, the silent ones last.
    fn hosts_in_order(&self) -> Vec<usize> {
        let mut hosts: Vec<usize> = (0..self.address.hosts.len()).collect();
        let balanced = self.address.config.get_load_balance_hosts() == LoadBalanceHosts::Random;
        if balanced {
            shuffle(&mut hosts);
        }
        let health = self.health.lock();
        let last_good = health.last_good.filter(|_| !balanced).map(|endpoint| endpoint.host);
        hosts.sort_by_key(|host| {
            let silent = health.suspects.iter().any(|endpoint| endpoint.host == *host);
            (Some(*host) != last_good, silent)
        });
        hosts
    }

    /// Returns the addresses of a host, in the same order.
    async fn endpoints(&self, host: usize) -> Result<Vec<Endpoint>, StoreError> {
        let Some(given) = self.address.hosts.get(host) else { return Ok(Vec::new()) };
        let Host::Tcp(name) = &given.name else { return Ok(vec![Endpoint { host, ip: None }]) };
        let mut found = match given.ip {
            Some(ip) => vec![ip],
            None => self.look_up(name, given.port).await?,
        };
        if self.address.config.get_load_balance_hosts() == LoadBalanceHosts::Random {
            shuffle(&mut found);
        }
        let mut endpoints: Vec<_> = found.into_iter().map(|ip| Endpoint { host, ip: Some(ip) }).collect();
        let health = self.health.lock();
        endpoints.sort_by_key(|endpoint| {
            (Some(*endpoint) != health.last_good, health.suspects.contains(endpoint))
        });
        Ok(endpoints)
    }

    async fn look_up(&self, name: &str, port: u16) -> Result<Vec<IpAddr>, StoreError> {
        let limit = self.limit(1);
        let unreachable = |detail: String| self.unreachable(detail);
        let found = timeout(limit, tokio::net::lookup_host((name, port))).await;
        let found = found.map_err(|_| unreachable(format!("no answer to the lookup within {limit:?}")))?;
        let found = found.map_err(|e| unreachable(format!("cannot look up the host: {e}")))?;
        let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(unreachable("the name has no address".to_owned()));
        }
        Ok(addresses)
    }

    /// Returns the time limit of one endpoint of a host that has this number of endpoints.
    fn limit(&self, endpoints: usize) -> Duration {
        self.address.connect_limit(endpoints.max(self.address.hosts.len()))
    }

    /// Marks an endpoint as silent. No connection to it that is open now is used again.
    fn mark_silent(&self, endpoint: Endpoint, silences: u64) {
        let mut health = self.health.lock();
        // A connection that notices the same silence later must not invalidate connections that were made since.
        if health.silences(endpoint) == silences {
            health.silences.insert(endpoint, silences + 1);
            health.suspect(endpoint);
            tracing::warn!(host = %self.label(endpoint), "database host stopped answering");
        }
    }

    /// Returns whether a new connection to the endpoint gets any response.
    async fn answers(&self, endpoint: Endpoint) -> bool {
        let plain = Profile::plain();
        timeout(self.limit(1), Box::pin(self.attempt(endpoint, &plain, |_| {}))).await.is_ok()
    }

    fn label(&self, endpoint: Endpoint) -> String {
        let name = self.address.host_name(endpoint.host);
        match endpoint.ip {
            Some(ip) if !name.contains(&ip.to_string()) => format!("{name} ({ip})"),
            _ => name,
        }
    }

    fn what(&self) -> String {
        format!("connecting to {}", self.address.location())
    }

    fn unreachable(&self, detail: String) -> StoreError {
        StoreError::new(StoreErrorKind::Unreachable, self.what(), detail)
    }

    /// Returns the error for a server that did not respond in time.
    pub(crate) fn no_answer(&self, limit: Duration) -> StoreError {
        self.unreachable(format!("no answer within {limit:?}"))
    }

    fn cannot_connect(&self, error: &tokio_postgres::Error) -> StoreError {
        let mapped = error::map(&self.what(), error);
        if let Some(detail) = tls::explain(&self.address, error) {
            // Another attempt meets the same certificate.
            return StoreError::new(StoreErrorKind::CannotOpen, self.what(), detail);
        }
        let kind = if error.as_db_error().is_some() { mapped.kind } else { StoreErrorKind::Unreachable };
        StoreError::new(kind, self.what(), mapped.detail)
    }

    /// Combines the errors of all endpoints into one. It is final only if each of them is final.
    fn all_failed(&self, mut causes: Vec<(String, StoreError)>) -> StoreError {
        let several = causes.len() > 1;
        match causes.pop() {
            None => self.unreachable("the address names no host".to_owned()),
            Some((_, cause)) if !several => StoreError::new(cause.kind, self.what(), cause.detail),
            Some(last) => {
                causes.push(last);
                let retry = causes.iter().all(|(_, cause)| !is_final(cause.kind))
                    || causes.iter().any(|(_, cause)| cause.kind == StoreErrorKind::Unreachable);
                let first_final = causes.iter().map(|(_, cause)| cause.kind).find(|kind| is_final(*kind));
                let kind = if retry { None } else { first_final }.unwrap_or(StoreErrorKind::Unreachable);
                let told = causes.iter().map(|(host, cause)| format!("{host}: {}", cause.detail));
                StoreError::new(kind, self.what(), told.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

impl Health {
    fn silences(&self, endpoint: Endpoint) -> u64 {
        self.silences.get(&endpoint).copied().unwrap_or(0)
    }

    fn suspect(&mut self, endpoint: Endpoint) {
        self.suspects.insert(endpoint);
        self.last_good.take_if(|last| *last == endpoint);
    }

    fn found(&mut self, endpoint: Endpoint) {
        self.suspects.remove(&endpoint);
        self.last_good = Some(endpoint);
    }
}

/// Returns whether a retry cannot help because the server responds and rejects.
pub(crate) fn is_final(kind: StoreErrorKind) -> bool {
    use StoreErrorKind::{CannotOpen, Closed, SettingNotInForce, UnsupportedEngine};
    matches!(kind, CannotOpen | Closed | SettingNotInForce | UnsupportedEngine)
}

/// A guard that aborts the task of a connection which was dropped before it was confirmed. The task would wait for the
/// response forever.
struct Unconfirmed(Option<AbortHandle>);

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

fn shuffle<T>(list: &mut [T]) {
    list.sort_by_cached_key(|_| jitter::spread(Duration::from_secs(1), 0.0..1.0));
}

type Driver = tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Exchanges messages with the server until the connection ends.
async fn drive(mut connection: Driver, messages: impl Fn(AsyncMessage)) {
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(message) => messages(message),
            Err(error) => {
                tracing::debug!(%error, "PostgreSQL connection lost");
                return;
            }
        }
    }
}

/// A connection of a pool, with its prepared statements.
pub(crate) struct Connection {
    client: ClientWrapper,
    pub(crate) confirmed: Confirmed,
    hosts: Arc<Hosts>,
    endpoint: Endpoint,
    silences: u64,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        &mut self.client
    }
}

impl Connection {
    /// Returns whether the endpoint has not gone silent since this connection was made.
    pub(crate) fn is_trusted(&self) -> bool {
        self.hosts.health.lock().silences(self.endpoint) == self.silences
    }

    /// Waits for a response on this connection within the limit, as long as its host responds at all.
    ///
    /// With several hosts, a new connection to the same host shows whether the host responds. With one host there is no
    /// alternative. The wait then ends early only if another connection of the store found the host silent.
    ///
    /// # Errors
    /// [`Failure::silent`]; the connection must not be used again.
    pub(crate) async fn answer<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let begun = Instant::now();
        let mut answer = pin!(answer);
        let several = self.hosts.address.hosts.len() > 1;
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if let Ok(answer) = timeout(left.min(self.hosts.limit(1)), &mut answer).await {
                return Ok(answer);
            }
            let answers = begun.elapsed() < limit
                && self.is_trusted()
                && (!several
                    || tokio::select! {
                        answer = &mut answer => return Ok(answer),
                        answers = self.hosts.answers(self.endpoint) => answers,
                    });
            if !answers {
                self.hosts.mark_silent(self.endpoint, self.silences);
                return Err(Failure::silent(begun.elapsed()));
            }
        }
    }
}

/// Makes the connections of a pool.
#[derive(Debug)]
pub(crate) struct Manager {
    hosts: Arc<Hosts>,
    profile: Profile,
    epochs: Arc<Epochs>,
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = StoreError;

    async fn create(&self) -> Result<Connection, StoreError> {
        // Connecting is rare and its future is large.
        let connection = Box::pin(self.hosts.connection(&self.profile, |_| {})).await?;
        // The server may be another one, with another history.
        self.epochs.confirm(&connection).await?;
        Ok(connection)
    }

    async fn recycle(
        &self,
        connection: &mut Connection,
        _: &managed::Metrics,
    ) -> managed::RecycleResult<StoreError> {
        if connection.is_closed() {
            return Err(managed::RecycleError::message("the connection is closed"));
        }
        if !connection.is_trusted() {
            return Err(managed::RecycleError::message("the host stopped answering"));
        }
        Ok(())
    }
}

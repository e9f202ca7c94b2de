//! Opening a store: connects, checks the server and its settings, migrates the schema and starts the committers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidelock_core::store::{Durability, StoreError, StoreErrorKind};
use tokio_postgres::Client;

use crate::cancel::CancelOnDrop;
use crate::connect::{Hosts, Pool, Profile, SessionKind};
use crate::connect_options::ConnectOptions;
use crate::epoch::Epochs;
use crate::error;
use crate::rows::get;
use crate::{PostgresOptions, catch_up, lock_visibility, migrate};

const WHAT: &str = "opening the PostgreSQL store";

/// The oldest supported server, as a `server_version_num`.
const OLDEST: i32 = 140_000;

/// Plans are cached for the life of a connection, and a plan that was made for an empty table is bad for a full one.
/// Every query here has an index to use. The settings are part of the startup packet, so that an undeclared pooler
/// rejects them.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off";

/// The default lock timeout of a writer's statement for a row that another transaction holds: other callers wait for
/// the writer.
const TURN: &str = "-c lock_timeout=250ms";

/// How long an attempt to open may outlast the patience: the time that it needs to report its own error.
const LAST_WORD: Duration = Duration::from_secs(2);

/// The version and the settings of the server, read back when the store is opened.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) durability: Durability,
    /// The required `synchronous_commit` of every transaction that writes. `None`: any value is sufficient.
    pub(crate) commit: Option<&'static str>,
    /// Whether a single statement outside a transaction runs at read committed.
    pub(crate) read_committed: bool,
    pub(crate) schema: u32,
}

/// Opens one connection to the address of a store, with the same encryption and defaults as the store's own
/// connections. It ends with its client. Use it for your own transaction that
/// [`apply_in`](crate::PostgresStore::apply_in) takes part in.
///
/// # Errors
/// [`StoreError`] when the address is invalid or the server cannot be reached.
pub async fn connect(url: &str) -> Result<Client, StoreError> {
    let hosts = Hosts::new(&ConnectOptions::parse(url)?)?;
    Ok(hosts.connect(&Profile::plain(), |_| {}).await?.client)
}

/// Makes the connection pool of the writers.
pub(crate) fn writers(
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
    server: &Server,
    beside: usize,
    epochs: &Arc<Epochs>,
) -> Result<Pool, StoreError> {
    let session = session(options, server, &format!("{PLANS} {TURN}"));
    hosts.pool(session, options.committers + beside, epochs)
}

/// Makes the connection pool of the readers.
pub(crate) fn readers(
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
    server: &Server,
    epochs: &Arc<Epochs>,
) -> Result<Pool, StoreError> {
    hosts.pool(session(options, server, PLANS), options.readers, epochs)
}

/// Returns the profile of sessions with their own settings, or without settings behind a pooler.
fn session(options: &PostgresOptions, server: &Server, settings: &str) -> Profile {
    match options.pooled {
        true => bare_session(options),
        false => Profile { options: settings.to_owned(), commit: server.commit, ..bare_session(options) },
    }
}

/// Returns the profile of a store's sessions without settings: an undeclared pooler would pass them on to other
/// programs.
pub(crate) fn bare_session(options: &PostgresOptions) -> Profile {
    Profile { options: String::new(), commit: None, kind: SessionKind::Store(options.durability) }
}

/// Checks the server and brings the schema up to date. Retries while the server cannot be reached.
pub(crate) async fn prepare(
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
    epochs: &Epochs,
) -> Result<Server, StoreError> {
    let give_up = Instant::now() + options.patience;
    let mut pause = Duration::from_millis(50);
    loop {
        // Waits for locks end when the patience is used up, and report their cause.
        let limit = options.patience + LAST_WORD;
        let error = match tokio::time::timeout(limit, attempt(hosts, options, epochs)).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(error)) => error,
            Err(_) => hosts.no_answer(options.patience),
        };
        let unreachable = error.kind == StoreErrorKind::Unreachable;
        if !unreachable || Instant::now() + pause >= give_up {
            return Err(error);
        }
        tokio::time::sleep(crate::writer::jittered(pause)).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

async fn attempt(
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
    epochs: &Epochs,
) -> Result<Server, StoreError> {
    let give_up = Instant::now() + options.patience;
    let mut connection = hosts.connection(&bare_session(options), |_| {}).await?;
    let commit = connection.confirmed.commit;
    let client: &mut Client = &mut connection;
    // A caller that gives up leaves no statement in the server that waits for a lock.
    let mut cancel = CancelOnDrop::new(client, hosts.tls());
    let prepared = prepare_on(client, hosts, options, epochs, give_up).await;
    cancel.disarm();
    let (version, read_committed, schema) = prepared?;
    Ok(Server { version, durability: options.durability, commit, read_committed, schema })
}

/// Checks the server and brings the schema up to date. Returns the version of the server, whether a single statement
/// runs at read committed, and the version of the schema.
async fn prepare_on(
    client: &mut Client,
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
    epochs: &Epochs,
    give_up: Instant,
) -> Result<(String, bool, u32), StoreError> {
    let version = check(client).await?;
    let read_committed = is_read_committed(client).await?;
    let schema = if options.migrate {
        migrate::run(client, &options.schema, give_up).await?
    } else {
        match migrate::installed(client, &options.schema).await? {
            Some(version) if version == migrate::newest() => version,
            found => return Err(not_migrated(&options.schema, found)),
        }
    };
    verify_order(client, hosts, options).await?;
    epochs.confirm(client).await?;
    catch_up::run(client, &options.schema, give_up).await?;
    Ok((version, read_committed, schema))
}

/// Checks that readers will see the positions of writers in flight. Uses a second connection where one is available.
async fn verify_order(
    client: &mut Client,
    hosts: &Arc<Hosts>,
    options: &PostgresOptions,
) -> Result<(), StoreError> {
    if options.pooled {
        return lock_visibility::verify(client, None, &options.schema).await;
    }
    let second = hosts.connection(&bare_session(options), |_| {}).await?;
    lock_visibility::verify(client, Some(&second), &options.schema).await
}

fn not_migrated(schema: &str, found: Option<u32>) -> StoreError {
    let found =
        found.map_or_else(|| "nothing of Tidelock".to_owned(), |version| format!("version {version}"));
    let detail = format!(
        "the schema {schema} holds {found}, this program needs version {}; run `tidelock migrate up`",
        migrate::newest()
    );
    StoreError::new(StoreErrorKind::Migration, WHAT, detail)
}

/// Returns the version of the server if the store supports it.
async fn check(client: &Client) -> Result<String, StoreError> {
    let sql = "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
               getdatabaseencoding()::text";
    let found = client.query_typed(sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    let row = found.first().ok_or_else(|| StoreError::new(StoreErrorKind::Bug, WHAT, "no answer"))?;
    let (version, number, encoding) = (get::<String>(row, 0)?, get::<i32>(row, 1)?, get::<String>(row, 2)?);
    let refuse = |detail: String| Err(StoreError::new(StoreErrorKind::CannotOpen, WHAT, detail));
    if number < OLDEST {
        return refuse(format!("PostgreSQL {version} is too old; 14 is the oldest"));
    }
    if encoding != "UTF8" {
        return refuse(format!("the database has the encoding {encoding}; Tidelock needs UTF8"));
    }
    Ok(version)
}

async fn is_read_committed(client: &Client) -> Result<bool, StoreError> {
    let sql = "SELECT current_setting('default_transaction_isolation') = 'read committed'";
    let found = client.query_typed(sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    Ok(found.first().map_or(Ok(false), |row| get(row, 0))?)
}

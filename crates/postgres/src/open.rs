//! Opening: connects, checks what the server is and how it is set, brings the schema up to date, starts the committers.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tidelock_core::store::{Durability, StoreError, StoreErrorKind};
use tokio_postgres::Client;

use crate::address::Address;
use crate::error::{self, Failure};
use crate::rows::get;
use crate::{Options, migrate, tls};

const WHAT: &str = "opening the PostgreSQL store";

/// The oldest server that is known to work, as `server_version_num` says it.
const OLDEST: i32 = 140_000;

/// Plans are kept for a connection's life, and a plan that was made for an empty table is a bad one for a full one: every
/// query here has an index to go by. Set while connecting, so that a pooler that was not mentioned refuses them.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off -c jit=off";

/// How long a statement of a writer waits for a row that somebody else holds, where nothing else is said: others wait for
/// the writer.
const TURN: &str = "-c lock_timeout=250ms";

/// What the server is and how it is set, read back when the store is opened.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) durability: Durability,
    /// What `synchronous_commit` must be set to in every transaction, because the server's own setting is another.
    pub(crate) flush_setting: Option<&'static str>,
    /// Whether a statement on its own runs at read committed.
    pub(crate) read_committed: bool,
    pub(crate) schema: u32,
}

/// One connection to the address of a store, as the store itself makes it: with its encryption and its defaults. It ends
/// with its client. For a transaction of your own that [`apply_in`](crate::PostgresStore::apply_in) takes part in.
///
/// # Errors
/// [`StoreError`] when the address makes no sense or the server cannot be reached.
pub async fn connect(url: &str) -> Result<Client, StoreError> {
    single(&Address::parse(url)?).await
}

/// One connection that ends with its client.
pub(crate) async fn single(address: &Address) -> Result<Client, StoreError> {
    let connector = tls::connector(address)?;
    let (client, connection) =
        address.config.connect(connector).await.map_err(|e| cannot_connect(address, &e))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
    Ok(client)
}

fn cannot_connect(address: &Address, error: &tokio_postgres::Error) -> StoreError {
    let what = format!("connecting to {}", address.location());
    let told = error::map(&what, error);
    let detail = tls::explain(address, error).unwrap_or(told.detail);
    let kind = if error.as_db_error().is_some() { told.kind } else { StoreErrorKind::Unreachable };
    StoreError::new(kind, what, detail)
}

/// A pool of connections for those who write, none of which is open yet.
pub(crate) fn writers(address: &Address, size: usize, pooled: bool) -> Result<Pool, StoreError> {
    pool(address, size, pooled, TURN)
}

/// A pool of connections for those who read, none of which is open yet.
pub(crate) fn readers(address: &Address, size: usize, pooled: bool) -> Result<Pool, StoreError> {
    pool(address, size, pooled, "")
}

fn pool(address: &Address, size: usize, pooled: bool, more: &str) -> Result<Pool, StoreError> {
    let connector = tls::connector(address)?;
    let recycling_method = RecyclingMethod::Fast;
    let config = ManagerConfig { recycling_method };
    let mut settings = address.config.clone();
    if !pooled {
        settings.options(format!("{} {PLANS} {more}", settings.get_options().unwrap_or_default()).trim());
    }
    let manager = Manager::from_config(settings, connector, config);
    let built = Pool::builder(manager).max_size(size).build();
    built.map_err(|e| StoreError::new(StoreErrorKind::Bug, WHAT, e.to_string()))
}

/// Checks the server and brings the schema up to date, trying again while it cannot be reached.
pub(crate) async fn prepare(address: &Address, options: &Options) -> Result<Server, StoreError> {
    let give_up = Instant::now() + options.patience;
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match tokio::time::timeout(options.patience, attempt(address, options)).await {
            Ok(Ok(server)) => return Ok(server),
            Ok(Err(error)) => error,
            Err(_) => {
                let what = format!("connecting to {}", address.location());
                let detail = format!("no answer within {:?}", options.patience);
                StoreError::new(StoreErrorKind::Unreachable, what, detail)
            }
        };
        let unreachable = error.kind == StoreErrorKind::Unreachable;
        if !unreachable || Instant::now() + pause >= give_up {
            return Err(error);
        }
        tokio::time::sleep(crate::writer::jittered(pause)).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

async fn attempt(address: &Address, options: &Options) -> Result<Server, StoreError> {
    let mut client = single(address).await?;
    let (version, durability, flush_setting) = check(&client, options).await?;
    let read_committed = is_read_committed(&client).await?;
    let schema = if options.migrate {
        migrate::run(&mut client, &options.schema).await?
    } else {
        match migrate::installed(&client, &options.schema).await? {
            Some(version) if version == migrate::newest() => version,
            found => return Err(not_migrated(&options.schema, found)),
        }
    };
    catch_up(&mut client, &options.schema).await.map_err(StoreError::from)?;
    Ok(Server { version, durability, flush_setting, read_committed, schema })
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

/// What the server is, what an acknowledgement is worth on it, and what must be set to make it so.
async fn check(
    client: &Client,
    options: &Options,
) -> Result<(String, Durability, Option<&'static str>), StoreError> {
    let sql = "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
               current_setting('fsync'), current_setting('full_page_writes'), \
               current_setting('synchronous_commit'), getdatabaseencoding()::text, pg_is_in_recovery()";
    let found = client.query_typed(sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    let row = found.first().ok_or_else(|| StoreError::new(StoreErrorKind::Bug, WHAT, "no answer"))?;
    let text = |column| get::<String>(row, column);
    let (version, number) = (text(0)?, get::<i32>(row, 1)?);
    let refuse = |kind, detail: String| Err(StoreError::new(kind, WHAT, detail));
    if number < OLDEST {
        return refuse(
            StoreErrorKind::CannotOpen,
            format!("PostgreSQL {version} is too old; 14 is the oldest"),
        );
    }
    let encoding = text(5)?;
    if encoding != "UTF8" {
        let detail = format!("the database has the encoding {encoding}; Tidelock needs UTF8");
        return refuse(StoreErrorKind::CannotOpen, detail);
    }
    if get::<bool>(row, 6)? {
        let detail =
            "the server is a standby; connect to the primary, or add target_session_attrs=read-write";
        return refuse(StoreErrorKind::ReadOnly, detail.to_owned());
    }
    let (fsync, pages, flush) = (text(2)?, text(3)?, text(4)?);
    match (options.durability, fsync == "on" && pages == "on", flush == "off") {
        (Durability::Full, false, _) => {
            let detail = format!(
                "an acknowledged write must be flushed, but the server runs with fsync = {fsync} and \
                 full_page_writes = {pages}; set both on, or open the store with relaxed durability"
            );
            refuse(StoreErrorKind::SettingNotInForce, detail)
        }
        (Durability::Full, true, off) => Ok((version, Durability::Full, off.then_some("on"))),
        // A server that never flushes gains nothing from not waiting for it.
        (_, true, false) => Ok((version, Durability::Relaxed, Some("off"))),
        (_, _, _) => Ok((version, Durability::Relaxed, None)),
    }
}

async fn is_read_committed(client: &Client) -> Result<bool, StoreError> {
    let sql = "SELECT current_setting('default_transaction_isolation') = 'read committed'";
    let found = client.query_typed(sql, &[]).await.map_err(|e| error::map(WHAT, &e))?;
    Ok(found.first().map_or(Ok(false), |row| get(row, 0))?)
}

/// Sequences that lag behind their tables (a copy by logical replication, a restored table) would give numbers twice.
async fn catch_up(client: &mut Client, schema: &str) -> Result<(), Failure> {
    let s = schema;
    // The highest position has an index. The work table has none for its numbers, so it is only looked at when its
    // sequence was never used.
    let unused = format!("coalesce(pg_sequence_last_value('{s}.work_seqs'), 0) = 0");
    let sequences =
        [("positions", "position", "events", "true"), ("work_seqs", "seq", "work", unused.as_str())];
    for (sequence, column, table, worth) in sequences {
        let lag = format!(
            "FROM (SELECT CASE WHEN {worth} THEN (SELECT max({column}) FROM {s}.{table}) END AS highest) h \
             WHERE coalesce(highest, 0) > coalesce(pg_sequence_last_value('{s}.{sequence}'), -1)"
        );
        if client.query_typed(&format!("SELECT highest {lag}"), &[]).await?.is_empty() {
            continue;
        }
        // Nobody draws from it meanwhile, so that it never moves back. Nobody knows the fences of leases that have
        // ended, so those go on from the clock, which is far above all that were ever drawn.
        let transaction = client.transaction().await?;
        transaction.batch_execute(&format!("LOCK TABLE {s}.{table}, {s}.work IN EXCLUSIVE MODE")).await?;
        let fences = format!("greatest(coalesce(pg_sequence_last_value('{s}.fences'), 0), {s}.clock())");
        let moved = format!(
            "SELECT setval('{s}.{sequence}', coalesce(highest, 0)), setval('{s}.fences', {fences}) {lag}"
        );
        transaction.query_typed(&moved, &[]).await?;
        transaction.commit().await?;
        tracing::warn!(sequence, "a sequence lagged behind its table and was moved on");
    }
    Ok(())
}

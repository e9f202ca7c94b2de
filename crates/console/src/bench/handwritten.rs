//! Handwritten SQL for the same commit: check the stream's head, insert the event, update the head.

use anyhow::{Result, bail, ensure};
use tidelock::clock::{Clock as _, SystemClock};
use tidelock::prelude::*;
use tokio_postgres::{Client, Statement};

use crate::bench::commit::EVENT_TYPE;
use crate::connection::connect;
use crate::server_url::ServerUrl;

/// Makes commits wait for their flush, like the store's, regardless of the server's default.
const FLUSH: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

/// The form of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// A transaction of five round trips.
    Plain,
    /// The same under a table-wide lock, so that readers see positions in order.
    TableLock,
    /// A single statement with a common table expression.
    SingleStatement,
}

impl Strategy {
    const ALL: [Self; 3] = [Self::Plain, Self::TableLock, Self::SingleStatement];

    /// Each strategy has its own tables, so that none pays for another's dead rows.
    const fn table(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TableLock => "table_lock",
            Self::SingleStatement => "single_statement",
        }
    }
}

/// Creates the tables of every strategy, with the store's columns, types, keys and collations.
///
/// # Errors
/// When the server rejects a statement.
pub async fn create_tables(client: &Client, schema: &str) -> Result<()> {
    let mut sql = format!("CREATE SCHEMA {schema};");
    for strategy in Strategy::ALL {
        let name = strategy.table();
        sql.push_str(&format!(
            "CREATE TABLE {schema}.{name}_heads (
                 stream text COLLATE \"C\" PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 80);
             CREATE TABLE {schema}.{name}_events (
                 position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stream text COLLATE \"C\" NOT NULL,
                 version bigint NOT NULL, id uuid NOT NULL UNIQUE, type text COLLATE \"C\" NOT NULL,
                 at bigint NOT NULL, payload json NOT NULL, UNIQUE (stream, version));"
        ));
    }
    client.batch_execute(&sql).await?;
    Ok(())
}

/// An event to commit.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The version of the event; the stream's head must be the version before.
    pub version: i64,
    /// The payload.
    pub payload: &'a str,
}

/// A connection with its prepared statements.
#[derive(Debug)]
pub struct Handwritten {
    client: Client,
    plain: Statements,
    table_lock: Statements,
    single_statement: Statements,
    /// The advisory lock that stands for the whole table, and its key.
    lock: (Statement, i64),
    clock: SystemClock,
}

impl Handwritten {
    /// Connects and prepares all statements.
    ///
    /// # Errors
    /// When the server rejects the connection or a statement.
    pub async fn new(url: &ServerUrl, schema: &str, lock: i64) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(FLUSH).await?;
        Ok(Self {
            plain: Statements::prepare(&client, schema, Strategy::Plain).await?,
            table_lock: Statements::prepare(&client, schema, Strategy::TableLock).await?,
            single_statement: Statements::prepare(&client, schema, Strategy::SingleStatement).await?,
            lock: (client.prepare("SELECT pg_advisory_xact_lock($1)").await?, lock),
            client,
            clock: SystemClock::default(),
        })
    }

    /// Commits one event.
    ///
    /// # Errors
    /// When the server fails or the stream's head is another version.
    pub async fn commit(&mut self, strategy: Strategy, append: Append<'_>) -> Result<()> {
        match strategy {
            Strategy::Plain | Strategy::TableLock => self.transaction(strategy, append).await,
            Strategy::SingleStatement => self.statement(append).await,
        }
    }

    /// BEGIN, the lock if any, SELECT the head, INSERT the event, UPDATE the head, COMMIT.
    async fn transaction(&mut self, strategy: Strategy, append: Append<'_>) -> Result<()> {
        let Append { stream, version, payload } = append;
        let (id, at) = (EventId::new().0, self.clock.now().as_micros());
        let locked = strategy == Strategy::TableLock;
        let statements = if locked { &self.table_lock } else { &self.plain };
        let transaction = self.client.transaction().await?;
        if locked {
            transaction.execute(&self.lock.0, &[&self.lock.1]).await?;
        }
        let head = transaction.query_opt(&statements.head, &[&stream]).await?;
        let head: Option<i64> = head.map(|row| row.try_get(0)).transpose()?;
        if head != before(version) {
            bail!("cannot append to {stream}: its head is {head:?} instead of {:?}", before(version));
        }
        let event = &statements.event;
        transaction.execute(event, &[&stream, &version, &id, &EVENT_TYPE, &at, &payload]).await?;
        let head = if head.is_some() { &statements.update_head } else { &statements.insert_head };
        transaction.execute(head, &[&stream, &version]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Runs one statement, which is a transaction on its own.
    async fn statement(&self, append: Append<'_>) -> Result<()> {
        let Append { stream, version, payload } = append;
        let (id, at) = (EventId::new().0, self.clock.now().as_micros());
        let Statements { first, next, .. } = &self.single_statement;
        let statement = if before(version).is_some() { next } else { first };
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&stream, &version, &id, &EVENT_TYPE, &at, &payload];
        let inserted = self.client.execute(statement, &values).await?;
        ensure!(inserted == 1, "cannot append to {stream}: its head is not {:?}", before(version));
        Ok(())
    }
}

/// The previous version, if there is one.
fn before(version: i64) -> Option<i64> {
    version.checked_sub(1).filter(|before| *before >= 0)
}

/// The prepared statements of one strategy.
#[derive(Debug)]
struct Statements {
    head: Statement,
    insert_head: Statement,
    update_head: Statement,
    event: Statement,
    first: Statement,
    next: Statement,
}

impl Statements {
    async fn prepare(client: &Client, schema: &str, strategy: Strategy) -> Result<Self> {
        let heads = format!("{schema}.{}_heads", strategy.table());
        let events = format!("{schema}.{}_events (stream, version, id, type, at, payload)", strategy.table());
        // Without the casts the server infers JSON for the parameter, and the driver sends text.
        let values = "$1::text, $2::bigint, $3::uuid, $4::text, $5::bigint, $6::text::json";
        let made = format!("INSERT INTO {heads} VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1");
        let moved = format!(
            "UPDATE {heads} SET version = $2::bigint WHERE stream = $1 AND version = $2::bigint - 1 RETURNING 1"
        );
        let with =
            |head: &str| format!("WITH head AS ({head}) INSERT INTO {events} SELECT {values} FROM head");
        Ok(Self {
            head: client
                .prepare(&format!("SELECT version FROM {heads} WHERE stream = $1 FOR UPDATE"))
                .await?,
            insert_head: client.prepare(&format!("INSERT INTO {heads} VALUES ($1, $2)")).await?,
            update_head: client
                .prepare(&format!("UPDATE {heads} SET version = $2 WHERE stream = $1"))
                .await?,
            event: client.prepare(&format!("INSERT INTO {events} VALUES ({values})")).await?,
            first: client.prepare(&with(&made)).await?,
            next: client.prepare(&with(&moved)).await?,
        })
    }
}

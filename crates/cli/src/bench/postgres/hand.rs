//! The same commit written by hand, in the ways that programs write it: checks the stream's head, inserts the event,
//! moves the head.

use anyhow::{Result, bail, ensure};
use tidelock::clock::{Clock as _, SystemClock};
use tidelock::prelude::*;
use tokio_postgres::{Client, Statement};

use crate::bench::commit::EVENT_TYPE;
use crate::connection::connect;
use crate::server_url::ServerUrl;

/// A commit waits for its flush, as the store's do, whatever the server's own setting is.
const FLUSH: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

/// How a commit is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A transaction, one round trip after the other.
    Plain,
    /// The same, one at a time in the whole table, so that readers meet positions in order.
    TableLock,
    /// One statement that does everything.
    SingleStatement,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::TableLock, Self::SingleStatement];

    /// Each way has tables of its own, so that none pays for what another left behind.
    const fn table(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::TableLock => "table_lock",
            Self::SingleStatement => "single_statement",
        }
    }
}

/// Makes the tables of every way: the columns, types, keys and collations of the store's own.
pub(crate) async fn make_tables(client: &Client, schema: &str) -> Result<()> {
    let mut sql = format!("CREATE SCHEMA {schema};");
    for way in Way::ALL {
        let name = way.table();
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

/// What is committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append<'a> {
    /// The stream.
    pub(crate) stream: &'a str,
    /// The version of the event; the stream must be at the one before, or have none.
    pub(crate) version: i64,
    /// The payload.
    pub(crate) payload: &'a str,
}

/// One connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Hand {
    client: Client,
    plain: Statements,
    table_lock: Statements,
    single_statement: Statements,
    /// The lock that stands for a whole table. Nobody else in the database has this number.
    lock: (Statement, i64),
    clock: SystemClock,
}

impl Hand {
    /// Connects and prepares.
    pub(crate) async fn new(url: &ServerUrl, schema: &str, lock: i64) -> Result<Self> {
        let client = connect(url).await?;
        client.batch_execute(FLUSH).await?;
        Ok(Self {
            plain: Statements::prepare(&client, schema, Way::Plain).await?,
            table_lock: Statements::prepare(&client, schema, Way::TableLock).await?,
            single_statement: Statements::prepare(&client, schema, Way::SingleStatement).await?,
            lock: (client.prepare("SELECT pg_advisory_xact_lock($1)").await?, lock),
            client,
            clock: SystemClock::default(),
        })
    }

    /// Commits one event.
    pub(crate) async fn commit(&mut self, way: Way, append: Append<'_>) -> Result<()> {
        match way {
            Way::Plain | Way::TableLock => self.transaction(way, append).await,
            Way::SingleStatement => self.statement(append).await,
        }
    }

    /// BEGIN, perhaps the lock, look at the head, insert, move the head, COMMIT.
    async fn transaction(&mut self, way: Way, append: Append<'_>) -> Result<()> {
        let Append { stream, version, payload } = append;
        let (id, at) = (EventId::new().0, self.clock.now().as_micros());
        let locked = way == Way::TableLock;
        let statements = if locked { &self.table_lock } else { &self.plain };
        let transaction = self.client.transaction().await?;
        if locked {
            transaction.execute(&self.lock.0, &[&self.lock.1]).await?;
        }
        let head = transaction.query_opt(&statements.head, &[&stream]).await?;
        let head: Option<i64> = head.map(|row| row.try_get(0)).transpose()?;
        if head != before(version) {
            bail!("the head of {stream} is {head:?}, and {:?} was expected", before(version));
        }
        let event = &statements.event;
        transaction.execute(event, &[&stream, &version, &id, &EVENT_TYPE, &at, &payload]).await?;
        let head = if head.is_some() { &statements.move_head } else { &statements.make_head };
        transaction.execute(head, &[&stream, &version]).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// All of it in one statement, which is a transaction by itself.
    async fn statement(&self, append: Append<'_>) -> Result<()> {
        let Append { stream, version, payload } = append;
        let (id, at) = (EventId::new().0, self.clock.now().as_micros());
        let Statements { first, next, .. } = &self.single_statement;
        let statement = if before(version).is_some() { next } else { first };
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&stream, &version, &id, &EVENT_TYPE, &at, &payload];
        let inserted = self.client.execute(statement, &values).await?;
        ensure!(inserted == 1, "the head of {stream} is not {:?}, as was expected", before(version));
        Ok(())
    }
}

/// The version before, if there is one.
fn before(version: i64) -> Option<i64> {
    version.checked_sub(1).filter(|before| *before >= 0)
}

/// What one connection has prepared for one way.
#[derive(Debug)]
struct Statements {
    head: Statement,
    make_head: Statement,
    move_head: Statement,
    event: Statement,
    first: Statement,
    next: Statement,
}

impl Statements {
    async fn prepare(client: &Client, schema: &str, way: Way) -> Result<Self> {
        let heads = format!("{schema}.{}_heads", way.table());
        let events = format!("{schema}.{}_events (stream, version, id, type, at, payload)", way.table());
        // Without the casts the server would take the text for JSON already on the wire, and the driver would not.
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
            make_head: client.prepare(&format!("INSERT INTO {heads} VALUES ($1, $2)")).await?,
            move_head: client.prepare(&format!("UPDATE {heads} SET version = $2 WHERE stream = $1")).await?,
            event: client.prepare(&format!("INSERT INTO {events} VALUES ({values})")).await?,
            first: client.prepare(&with(&made)).await?,
            next: client.prepare(&with(&moved)).await?,
        })
    }
}

//! Only here: a connection as the store uses it. Statements are prepared once per connection, or never behind a pooler.
//! Several statements can be sent at once; the responses arrive in order.

use std::error::Error;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use tokio_postgres::Statement;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::connect::Client;
use crate::error::Failure;

/// A parameter of a statement.
pub(crate) type Value<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// A statement with its values.
pub(crate) struct Call<'a> {
    pub(crate) sql: &'a str,
    pub(crate) values: Vec<(Value<'a>, Type)>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(sql: &'a str) -> Self {
        Self { sql, values: Vec::new() }
    }

    pub(crate) fn with(mut self, value: impl ToSql + Sync + Send + 'a, kind: Type) -> Self {
        self.values.push((Box::new(value), kind));
        self
    }

    fn kinds(&self) -> Vec<Type> {
        self.values.iter().map(|(_, kind)| kind.clone()).collect()
    }
}

/// The columns of a row, whichever driver received it.
pub(crate) trait Columns {
    /// Decodes a column.
    fn column<'a, T: FromSql<'a>>(&'a self, index: usize) -> Result<T, Box<dyn Error + Send + Sync>>;
}

impl Columns for tokio_postgres::Row {
    fn column<'a, T: FromSql<'a>>(&'a self, index: usize) -> Result<T, Box<dyn Error + Send + Sync>> {
        Ok(self.try_get(index)?)
    }
}

/// A row of a result.
#[derive(Debug)]
pub(crate) enum Row {
    Tokio(tokio_postgres::Row),
    #[cfg(feature = "sqlx")]
    Sqlx(sqlx::postgres::PgRow),
}

impl Columns for Row {
    fn column<'a, T: FromSql<'a>>(&'a self, index: usize) -> Result<T, Box<dyn Error + Send + Sync>> {
        match self {
            Self::Tokio(row) => row.column(index),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(row) => row.column(index),
        }
    }
}

/// A connection.
pub(crate) enum Db<'a> {
    /// A connection of the store.
    Own {
        client: &'a Client,
        /// Whether statements are prepared; behind a transaction-mode pooler they cannot be.
        prepared: bool,
    },
    /// The caller's transaction.
    Theirs(&'a tokio_postgres::Transaction<'a>),
    /// The caller's transaction of sqlx.
    #[cfg(feature = "sqlx")]
    Sqlx(&'a dyn crate::sqlx_transaction::Statements),
}

impl Db<'_> {
    /// Returns whether the connection belongs to the store and has the settings that it was opened with.
    pub(crate) fn keeps_settings(&self) -> bool {
        matches!(self, Self::Own { prepared: true, .. })
    }

    /// Returns whether the connection belongs to the caller.
    pub(crate) fn is_theirs(&self) -> bool {
        !matches!(self, Self::Own { .. })
    }

    /// Runs one statement.
    pub(crate) async fn query(&self, call: Call<'_>) -> Result<Vec<Row>, Failure> {
        let statement = self.prepare(&call).await?;
        self.run(&call, statement.as_ref()).await
    }

    /// Sends statements at once. `begin` opens a transaction before them, `end` closes one after them. The responses
    /// arrive in order. A call with `begin` must not contain writes: if `begin` fails, each of the other statements is
    /// its own transaction. A connection of sqlx runs them one after the other.
    pub(crate) async fn pipeline(
        &self,
        begin: Option<&str>,
        calls: &[Call<'_>],
        end: Option<&str>,
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let mut statements = Vec::with_capacity(calls.len());
        for call in calls {
            statements.push(self.prepare(call).await?);
        }
        let mut sent: Vec<BoxFuture<'_, Result<Vec<Row>, Failure>>> = Vec::new();
        sent.extend(begin.map(|sql| self.simple(sql).boxed()));
        for (call, statement) in calls.iter().zip(&statements) {
            sent.push(self.run(call, statement.as_ref()).boxed());
        }
        sent.extend(end.map(|sql| self.simple(sql).boxed()));
        let skipped = usize::from(begin.is_some());
        // Requests are sent in the order of their first poll, which is the order of the list.
        let mut answers = join_all(sent).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        answers.drain(..skipped);
        answers.truncate(calls.len());
        Ok(answers)
    }

    /// Runs statements that have no parameters and return no rows.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.simple(sql).await?;
        Ok(())
    }

    async fn prepare(&self, call: &Call<'_>) -> Result<Option<Statement>, Failure> {
        match self {
            Self::Own { client, prepared: true } => {
                let prepared = client.prepare_typed_cached(call.sql, &call.kinds()).await;
                Ok(Some(prepared.map_err(|e| Failure::from(e).unsent())?))
            }
            _ => Ok(None),
        }
    }

    async fn run(&self, call: &Call<'_>, statement: Option<&Statement>) -> Result<Vec<Row>, Failure> {
        if let (Self::Own { client, .. }, Some(statement)) = (self, statement) {
            let values: Vec<&(dyn ToSql + Sync)> =
                call.values.iter().map(|(value, _)| &**value as &(dyn ToSql + Sync)).collect();
            return Ok(rows(client.query(statement, &values).await?));
        }
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            call.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        match self {
            Self::Own { client, .. } => Ok(rows(client.query_typed(call.sql, &values).await?)),
            Self::Theirs(transaction) => Ok(rows(transaction.query_typed(call.sql, &values).await?)),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(connection) => connection.query(call.sql, &values).await,
        }
    }

    async fn simple(&self, sql: &str) -> Result<Vec<Row>, Failure> {
        match self {
            Self::Own { client, .. } => client.batch_execute(sql).await?,
            Self::Theirs(transaction) => transaction.batch_execute(sql).await?,
            #[cfg(feature = "sqlx")]
            Self::Sqlx(connection) => drop(connection.query(sql, &[]).await?),
        }
        Ok(Vec::new())
    }
}

fn rows(found: Vec<tokio_postgres::Row>) -> Vec<Row> {
    found.into_iter().map(Row::Tokio).collect()
}

/// Returns the statements that begin a transaction with this lock timeout, in milliseconds.
pub(crate) fn begin(lock_timeout: u128) -> String {
    format!("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock_timeout}")
}

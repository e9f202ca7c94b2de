//! Only here: a transaction of sqlx as a connection of the store.
//!
//! Values and rows keep the representation of `postgres-types`. Both drivers speak PostgreSQL's binary format, so this
//! file moves bytes and never converts a type. sqlx sends one statement at a time, and caches it as it caches the
//! statements of the caller.

use std::error::Error;

use futures_util::future::{BoxFuture, FutureExt as _};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgRow, PgTypeInfo, PgValueFormat};
use sqlx::{Arguments as _, AssertSqlSafe, Encode, Postgres, Row as _, Transaction, ValueRef as _};
use tokio::sync::Mutex;
use tokio_postgres::types::{FromSql, IsNull as Null, ToSql, Type, WrongType};

use crate::db::{Columns, Row};
use crate::error::Failure;

/// A connection that runs one statement at a time.
pub(crate) trait Statements: Send + Sync {
    /// Runs a statement.
    fn query<'a>(
        &'a self,
        sql: &'a str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> BoxFuture<'a, Result<Vec<Row>, Failure>>;
}

impl Statements for Mutex<Transaction<'_, Postgres>> {
    fn query<'a>(
        &'a self,
        sql: &'a str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> BoxFuture<'a, Result<Vec<Row>, Failure>> {
        let arguments = arguments(values);
        async move {
            let arguments = arguments.map_err(|error| Failure::from(sqlx::Error::Encode(error)))?;
            let mut transaction = self.lock().await;
            let query = sqlx::query_with(AssertSqlSafe(sql.to_owned()), arguments);
            let found = query.fetch_all(&mut **transaction).await?;
            Ok(found.into_iter().map(Row::Sqlx).collect())
        }
        .boxed()
    }
}

fn arguments(values: &[(&(dyn ToSql + Sync), Type)]) -> Result<PgArguments, BoxDynError> {
    let mut arguments = PgArguments::default();
    for (value, kind) in values {
        let mut bytes = bytes::BytesMut::new();
        let null = matches!(value.to_sql_checked(kind, &mut bytes)?, Null::Yes);
        arguments.add(Encoded { bytes: (!null).then_some(bytes), kind: Oid(kind.oid()) })?;
    }
    Ok(arguments)
}

/// A value in the binary format of its type. `None` is null.
struct Encoded {
    bytes: Option<bytes::BytesMut>,
    kind: Oid,
}

impl Encode<'_, Postgres> for Encoded {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        buffer.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(self.kind))
    }
}

impl sqlx::Type<Postgres> for Encoded {
    fn type_info() -> PgTypeInfo {
        // `produces` always names the type.
        PgTypeInfo::with_oid(Oid(Type::UNKNOWN.oid()))
    }
}

impl Columns for PgRow {
    fn column<'a, T: FromSql<'a>>(&'a self, index: usize) -> Result<T, Box<dyn Error + Send + Sync>> {
        let value = self.try_get_raw(index)?;
        if value.format() != PgValueFormat::Binary {
            return Err("the value is not in the binary format".into());
        }
        let kind = value.type_info().oid().and_then(|oid| Type::from_oid(oid.0)).unwrap_or(Type::UNKNOWN);
        if !T::accepts(&kind) {
            return Err(Box::new(WrongType::new::<T>(kind)));
        }
        if value.is_null() { T::from_sql_null(&kind) } else { T::from_sql(&kind, value.as_bytes()?) }
    }
}

//! Only here: transactions that hold readers of the log back. SQLite has one writer, and readers see its commits at
//! once.

use std::time::Duration;

use tidelock_core::id::Position;

use crate::db::Call;
use crate::error::Failure;
use crate::read::Reader;
use crate::rows::{get, uint};
use crate::store::LogBlocker;

/// Returns the transactions that have drawn positions and have not ended, oldest first.
pub(crate) async fn all(reader: &Reader<'_>) -> Result<Vec<LogBlocker>, Failure> {
    let s = &reader.sql.schema;
    let sql = format!(
        "SELECT coalesce(l.pid, 0), coalesce(a.application_name, ''), coalesce(a.state, CASE WHEN l.pid IS NULL THEN 'prepared' ELSE 'hidden' END), \
             coalesce(extract(epoch FROM clock_timestamp() - a.xact_start)::float8, 0), \
             m.highest + (l.objid::bigint - m.highest)::bit(32)::int \
         FROM pg_locks l CROSS JOIN (SELECT coalesce(pg_sequence_last_value('{s}.positions'), 0) AS highest) m \
         LEFT JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.classid = '{s}.positions'::regclass::oid AND l.objsubid = 2 \
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         ORDER BY a.xact_start NULLS FIRST"
    );
    let found = reader.db.query(Call::new(&sql)).await?;
    let stall = |row| {
        Ok(LogBlocker {
            pid: get(row, 0)?,
            application: get(row, 1)?,
            state: get(row, 2)?,
            since: Duration::from_secs_f64(get::<f64>(row, 3)?.max(0.0)),
            floor: Position(uint(get(row, 4)?)),
        })
    };
    found.iter().map(stall).collect()
}

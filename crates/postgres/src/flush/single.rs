//! Only here: the most common writes as a plain statement: one event on a stream that this process caches, alone or under
//! the guard of a lease, as the steps of a workflow are recorded. The general write functions cost the server two to four
//! times as much. SQLite has no such difference.

use tidelock_core::key::Key;
use tidelock_core::model::rows::Event;
use tokio_postgres::types::Type;

use super::{Drawn, Flush};
use crate::db::{Call, Db};
use crate::error::Failure;
use crate::rows::{Stamp, int, storable};
use crate::session::Session;
use crate::sql::Sql;

/// How far the server's clock may be behind and ahead of the believed time, in microseconds.
const BEHIND: i64 = 1_000;
const AHEAD: i64 = 1_000_000;

impl Flush {
    /// Sends the changes of one batch, as a separate transaction.
    pub(crate) async fn send_alone(
        &self,
        db: &Db<'_>,
        sql: &Sql,
        session: &Session,
    ) -> Result<Drawn, Failure> {
        let Some(call) = self.single(db, sql, session) else {
            return Ok(self.send(db, sql, session, None, Vec::new()).await?.0);
        };
        let rows = db.query(call).await?;
        if rows.is_empty() {
            return Err(Failure::stale());
        }
        Drawn::read(&rows).map_err(Failure::after_commit)
    }

    /// Returns the statement, if one event is the only change.
    fn single<'a>(&'a self, db: &Db<'_>, sql: &'a Sql, session: &'a Session) -> Option<Call<'a>> {
        let beliefs = &session.beliefs;
        let others = beliefs.documents.len() + session.operations.len() + self.changes.truncated.len();
        // Only the store's own connections have a lock timeout.
        if others > 0 || self.setting.is_some() || !db.keeps_settings() {
            return None;
        }
        let [event] = self.changes.events.as_slice() else { return None };
        let [key] = self.changes.streams.as_slice() else { return None };
        let was = beliefs.streams.get(key)?.as_ref()?.head?;
        let row = session.facts.stream(key)?;
        if beliefs.streams.len() > 1 || row.closed_at.is_some() || row.head != Some(event.version) {
            return None;
        }
        let guard = self.guard(session)?;
        let statement = if guard.is_some() { &sql.append_guarded } else { &sql.append_one };
        let call = self.with_event(Call::new(statement), int(was.0), event);
        let call = call.with(int(session.epoch().0), Type::INT8);
        Some(match guard {
            None => call,
            Some((key, stamp)) => call
                .with(key.canonical(), Type::TEXT)
                .with(stamp.seq, Type::INT8)
                .with(stamp.revision, Type::INT8),
        })
    }

    /// Returns the only work row, if it is compared and not written. The outer `None`: there are others.
    fn guard<'a>(&self, session: &'a Session) -> Option<Option<(&'a Key, Stamp)>> {
        if !self.changes.work.is_empty() {
            return None;
        }
        let mut work = session.beliefs.work.iter();
        match (work.next(), work.next()) {
            (None, _) => Some(None),
            (Some((key, stamp)), None) => Some(Some((key, (*stamp)?))),
            _ => None,
        }
    }

    fn with_event<'a>(&self, call: Call<'a>, was: i64, event: &'a Event) -> Call<'a> {
        let (from, until) = self
            .check
            .map_or((i64::MIN, i64::MAX), |now| (now.saturating_sub(BEHIND), now.saturating_add(AHEAD)));
        let meta = Some(event.meta.as_str()).filter(|meta| *meta != "null");
        call.with(event.stream.canonical(), Type::TEXT)
            .with(was, Type::INT8)
            .with(int(event.version.0), Type::INT8)
            .with(from, Type::INT8)
            .with(until, Type::INT8)
            .with(event.id.0, Type::UUID)
            .with(event.event_type.as_str(), Type::TEXT)
            .with(event.at.as_micros(), Type::INT8)
            .with(event.payload.as_str(), Type::TEXT)
            .with(meta, Type::TEXT)
            .with(event.correlation.as_deref().map(storable), Type::TEXT)
    }
}

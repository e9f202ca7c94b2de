//! Writes the changes of a group in one round trip. Each row is written once, however many batches changed it.

mod columns;
mod single;

use std::time::Instant;

use tidelock_core::id::Fence;
use tidelock_core::model::rows::WorkRow;
use tidelock_core::model::working_set::Changes;
use tidelock_core::store::{Receipt, Resolution, StoreErrorKind};
use tokio_postgres::types::Type;
use uuid::Uuid;

use self::columns::{Documents, Events, Streams, Work};
use crate::db::{Call, Db, Row};
use crate::error::Failure;
use crate::row_cache::{RowCache, Rows};
use crate::rows::{Stamp, get, uint};
use crate::session::{Operation, Session, Verdict, place_of, place_of_seq, with_places, with_positions};
use crate::sql::{Part, Sql};

/// The numbers that the server drew for a group.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// The server's clock.
    pub(crate) server_now: Option<i64>,
    positions: Vec<i64>,
    seqs: Vec<i64>,
    fences: Vec<i64>,
}

/// The changes of a group, ready to be written.
pub(crate) struct Flush {
    changes: Changes,
    /// The instant that the server compares with its clock.
    check: Option<i64>,
    /// The required `synchronous_commit` when the session does not have the store's settings.
    setting: Option<&'static str>,
    /// The instant at which it was made, before it is sent.
    pub(crate) made: Instant,
}

impl Flush {
    /// Collects all changes of the working set. The server compares `check` with its clock. `setting` is the required
    /// `synchronous_commit`.
    pub(crate) fn of(session: &mut Session, check: Option<i64>, setting: Option<&'static str>) -> Self {
        Self { changes: session.facts.take_changes(), check, setting, made: Instant::now() }
    }

    /// Sends the changes as one statement. The statement is its own transaction unless one is open; `end` ends that
    /// one. `more` are reads that are sent with it, before the end; the call returns their rows.
    pub(crate) async fn send(
        &self,
        db: &Db<'_>,
        sql: &Sql,
        session: &Session,
        end: Option<&str>,
        more: Vec<Call<'_>>,
    ) -> Result<(Drawn, Vec<Vec<Row>>), Failure> {
        let write = self.call(sql, session)?;
        let writes = write.is_some();
        let mut calls: Vec<Call<'_>> = write.into_iter().collect();
        calls.extend(more);
        let mut answers = db.pipeline(None, &calls, end).await?;
        let rest = answers.split_off(usize::from(writes).min(answers.len()));
        let drawn =
            answers.first().map(|rows| Drawn::read(rows)).transpose().map_err(Failure::after_commit)?;
        Ok((drawn.unwrap_or_default(), rest))
    }

    fn call<'a>(&'a self, sql: &'a Sql, session: &'a Session) -> Result<Option<Call<'a>>, Failure> {
        let beliefs = &session.beliefs;
        let mut parts = Vec::new();
        parts.extend((!beliefs.streams.is_empty()).then_some(Part::Streams));
        parts.extend((!beliefs.documents.is_empty()).then_some(Part::Documents));
        parts.extend((!beliefs.work.is_empty()).then_some(Part::Work));
        parts.extend((!session.operations.is_empty()).then_some(Part::Operations));
        parts.extend((!self.changes.truncated.is_empty()).then_some(Part::Truncations));
        if parts.is_empty() {
            return Ok(None);
        }
        let mut call = Call::new(sql.write(&parts));
        for part in parts {
            if !matches!(part, Part::Operations | Part::Truncations) {
                call = call.with(self.check, Type::INT8);
            }
            if part != Part::Truncations {
                let epoch = crate::rows::int(session.epoch().0);
                call = call.with(self.setting, Type::TEXT).with(epoch, Type::INT8);
            }
            call = match part {
                Part::Streams => {
                    let streams = Streams::of(session, &self.changes.streams);
                    Events::of(&self.changes.events).add_to(streams.add_to(call))
                }
                Part::Documents => {
                    let floor = crate::rows::int(session.facts.counters.document_floor.0);
                    let documents = Documents::of(session, &self.changes.documents);
                    documents.add_to(call.with(floor, Type::INT8))
                }
                Part::Work => Work::of(session, &self.changes.work).add_to(call),
                Part::Operations => operations(call, &session.operations)?,
                Part::Truncations => columns::truncations(call, &self.changes.truncated),
            };
        }
        Ok(Some(call))
    }

    /// Caches the written rows for the next decision.
    pub(crate) fn remember(&self, warm: &RowCache, session: &Session, drawn: &Drawn) {
        // Rows of a past epoch are not cached.
        let _ = warm.with(session.epoch(), |rows| {
            let mut bytes = 0;
            for key in session.beliefs.streams.keys() {
                rows.streams.insert(key.clone(), session.facts.stream(key).cloned());
                bytes += key.canonical().len();
            }
            for key in session.beliefs.documents.keys() {
                let row = session.facts.document(key).cloned();
                let value = row.as_ref().and_then(|row| row.value.as_ref());
                bytes += value.map_or(0, tidelock_core::payload::Payload::len);
                rows.documents.insert(key.clone(), row);
            }
            bytes += self.remember_work(rows, session, drawn);
            rows.floor = Some(session.facts.counters.document_floor);
            rows.weigh(bytes);
        });
        warm.bounds.committed(self.work_rows(session), session.now.as_micros());
    }

    /// Returns the work rows that are written, without the deleted ones.
    pub(crate) fn work_rows<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = &'a WorkRow> {
        self.changes.work.iter().filter_map(|key| session.facts.work(key))
    }

    fn remember_work(&self, rows: &mut Rows, session: &Session, drawn: &Drawn) -> usize {
        let mut bytes = 0;
        for (key, belief) in &session.beliefs.work {
            let changed = self.changes.work.binary_search(key).is_ok();
            let row = session.facts.work(key).map(|row| {
                bytes += row.payload.len();
                let row = drawn.work_row(row.clone(), session.turn);
                let revision = match belief {
                    None => 0,
                    Some(stamp) => stamp.revision + i64::from(changed),
                };
                let stamp = Stamp { seq: crate::rows::int(row.seq), revision };
                (row, stamp)
            });
            rows.work.insert(key.clone(), row);
        }
        bytes
    }
}

impl Drawn {
    fn read(rows: &[Row]) -> Result<Self, Failure> {
        let Some(row) = rows.first() else {
            return Err(Failure::new(StoreErrorKind::Bug, "writing a group", "the functions gave no answer"));
        };
        let array = |column| Ok::<_, Failure>(get::<Option<Vec<i64>>>(row, column)?.unwrap_or_default());
        Ok(Self { server_now: get(row, 0)?, positions: array(1)?, seqs: array(2)?, fences: array(3)? })
    }

    /// The highest position and the highest fence.
    pub(crate) fn highest(&self) -> (Option<i64>, Option<i64>) {
        (self.positions.iter().max().copied(), self.fences.iter().max().copied())
    }

    /// Returns a work row with its drawn numbers filled in.
    pub(crate) fn work_row(&self, mut row: WorkRow, turn: Fence) -> WorkRow {
        if let Some(place) = place_of_seq(row.seq) {
            row.seq = pick(&self.seqs, uint(place)).unwrap_or(row.seq);
        }
        if let Some(lease) = &mut row.lease {
            lease.fence = self.fence(lease.fence, turn);
        }
        row
    }

    /// Returns a fence as it was drawn.
    pub(crate) fn fence(&self, fence: Fence, turn: Fence) -> Fence {
        let drawn = place_of(fence, turn).and_then(|place| pick(&self.fences, uint(place)));
        drawn.map_or(fence, Fence)
    }

    /// Returns the verdict on a batch after its group's transaction was committed.
    pub(crate) fn verdict(&self, session: &Session, index: usize) -> Option<Verdict> {
        match session.verdicts.get(index)? {
            Verdict::Applied(receipt) => {
                Some(Verdict::Applied(with_positions(receipt.clone(), &self.positions)))
            }
            Verdict::Same(first) => {
                let receipt = match session.verdicts.get(*first)? {
                    Verdict::Applied(receipt) => with_positions(receipt.clone(), &self.positions),
                    Verdict::Repeated(receipt) => receipt.clone(),
                    _ => return None,
                };
                Some(Verdict::Repeated(receipt.into_repeated()))
            }
            other => Some(other.clone()),
        }
    }
}

/// Returns the number at a place, counted from 1.
fn pick(drawn: &[i64], place: u64) -> Option<u64> {
    let index = usize::try_from(place).ok()?.checked_sub(1)?;
    drawn.get(index).map(|number| uint(*number))
}

fn operations<'a>(call: Call<'a>, operations: &'a [Operation]) -> Result<Call<'a>, Failure> {
    let mut receipts = Vec::with_capacity(operations.len());
    let (mut events, mut of): (Vec<Uuid>, Vec<i64>) = (Vec::new(), Vec::new());
    for (n, operation) in operations.iter().enumerate() {
        let receipt = match operation.receipt.repeated {
            true => operation.receipt.clone(),
            false => with_places(operation.receipt.clone()),
        };
        let text = serde_json::to_string(&receipt)
            .map_err(|e| Failure::new(StoreErrorKind::Bug, "writing a receipt", e.to_string()))?;
        receipts.push(text);
        events.extend(operation.events.iter().map(|id| id.0));
        of.resize(events.len(), crate::rows::int(n as u64 + 1));
    }
    let ids: Vec<Uuid> = operations.iter().map(|operation| operation.id.0).collect();
    let at: Vec<i64> = operations.iter().map(|operation| operation.receipt.at.as_micros()).collect();
    Ok(call
        .with(ids, Type::UUID_ARRAY)
        .with(at, Type::INT8_ARRAY)
        .with(receipts, Type::TEXT_ARRAY)
        .with(events, Type::UUID_ARRAY)
        .with(of, Type::INT8_ARRAY))
}

/// Decodes the record of an operation. A receipt gets the positions of its events; a void operation has none.
pub(crate) fn stored_operation(row: &Row) -> Result<(tidelock_core::id::OpId, Resolution), Failure> {
    let id = tidelock_core::id::OpId(get(row, 0)?);
    let Some(text) = get::<Option<&str>>(row, 1)? else { return Ok((id, Resolution::NotApplied)) };
    let receipt: Receipt = serde_json::from_str(text).map_err(|e| {
        let detail = format!("the receipt of operation {id} does not read back: {e}");
        Failure::new(StoreErrorKind::Corrupt, "reading an operation", detail)
    })?;
    let receipt = match get::<Option<Vec<i64>>>(row, 2)? {
        Some(positions) => with_positions(receipt, &positions),
        None => receipt,
    };
    Ok((id, Resolution::Applied(receipt.into_repeated())))
}

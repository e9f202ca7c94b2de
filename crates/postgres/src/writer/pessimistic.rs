//! Only here: deciding a group with its rows locked. SQLite's one writer locks everything at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::{DocVersion, EventId, Fence};
use tidelock_core::key::Key;
use tidelock_core::model::limits;
use tidelock_core::model::working_set::Footprint;
use tidelock_core::store::{Batch, Effect, Refusal, Selection, StoreErrorKind};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Applying, Engine, NO_GRANTS, fail, pause};
use crate::db::{Call, Db, Row, begin};
use crate::error::{Failure, Meaning};
use crate::flush::{Flush, stored_operation};
use crate::rows::{self, get, int, uint};
use crate::session::{Session, Verdict};
use crate::sql::Sql;
use crate::work_filter::WorkCondition;

/// Attempts before each batch of a group gets its own transaction.
const ATTEMPTS: u32 = 3;

/// A group that was decided with its rows locked.
pub(crate) struct Decided {
    pub(crate) session: Session,
    /// The number of batches that were decided; the others need a separate transaction.
    pub(crate) count: usize,
}

/// The numbers of the store as a whole.
pub(crate) struct Numbers {
    /// The instant to use.
    pub(crate) now: Timestamp,
    /// The highest fence.
    pub(crate) turn: Fence,
    /// No document begins at or below this version.
    pub(crate) floor: DocVersion,
}

impl Engine {
    /// Decides batches with their rows locked, in as many transactions as needed, and replies to them.
    pub(super) async fn decide_locked(
        self: &Arc<Self>,
        mut jobs: Vec<Applying>,
        give_up: Instant,
        rows: &mut Vec<u64>,
    ) {
        let mut attempts = 0;
        while !jobs.is_empty() {
            match self.settle_some(&mut jobs, give_up).await {
                Ok(()) => attempts = 0,
                Err(failure) => {
                    attempts += 1;
                    match failure.meaning {
                        Meaning::Unsent if Instant::now() < give_up => pause(attempts).await,
                        Meaning::Stale | Meaning::Again | Meaning::Epoch if attempts < ATTEMPTS => {
                            pause(attempts).await;
                        }
                        Meaning::Lost | Meaning::Unclear | Meaning::Unsent => return fail(jobs, &failure),
                        Meaning::Failed if jobs.len() == 1 => return fail(jobs, &failure),
                        // One of the batches may have caused the failure, or may hold up the others.
                        _ => {
                            self.meter.isolated.fetch_add(1, Ordering::Relaxed);
                            return self.isolated(jobs, rows);
                        }
                    }
                }
            }
        }
    }

    /// Runs one transaction with as many of the batches as can share it. After a lost COMMIT they get an unknown
    /// outcome.
    async fn settle_some(&self, jobs: &mut Vec<Applying>, give_up: Instant) -> Result<(), Failure> {
        let client = self.writer(give_up).await?;
        let db = self.db(&client);
        let batches: Vec<&Batch> = jobs.iter().map(|job| job.batch.as_ref()).collect();
        let decided =
            self.bounded(&client, self.hold_and_decide(&db, &batches, self.group_lock_ms(), &[])).await;
        let Decided { mut session, count } = match decided {
            Ok(decided) => decided,
            Err(failure) => {
                self.roll_back(client, &failure).await;
                return Err(failure.unsent());
            }
        };
        let decided = batches.get(..count).unwrap_or_default();
        let _ = self.warm.with(session.epoch(), |rows| session.record_new(rows, decided));
        let flush = Flush::of(&mut session, None, self.flush_setting);
        let ended = Some("COMMIT");
        let sent = self.bounded(&client, flush.send(&db, &self.sql, &session, ended, Vec::new())).await;
        match sent {
            Ok((drawn, _)) => {
                let rest = jobs.split_off(count);
                self.committed(&flush, &session, &drawn, std::mem::replace(jobs, rest));
                Ok(())
            }
            Err(failure) if failure.meaning.is_open() => {
                self.lost(client);
                let rest = jobs.split_off(count);
                fail(std::mem::replace(jobs, rest), &failure);
                Ok(())
            }
            Err(failure) => {
                self.roll_back(client, &failure).await;
                Err(failure)
            }
        }
    }

    /// Begins a transaction, locks every row that the batches name, and decides them one after the other. `ids` are
    /// looked up in the log beforehand.
    pub(crate) async fn hold_and_decide(
        &self,
        db: &Db<'_>,
        batches: &[&Batch],
        lock_ms: u128,
        ids: &[EventId],
    ) -> Result<Decided, Failure> {
        let begin = begin(lock_ms);
        let mut session = self.hold(db, Some(&begin), batches, ids).await?;
        let count = decide_all(db, &self.sql, &mut session, batches).await?;
        Ok(Decided { session, count })
    }

    /// Locks and reads every row that the batches name.
    pub(crate) async fn hold(
        &self,
        db: &Db<'_>,
        begin: Option<&str>,
        batches: &[&Batch],
        ids: &[EventId],
    ) -> Result<Session, Failure> {
        // Read before any row: the server compares it when the rows are written.
        let epoch = self.epochs.current();
        let needs = needs_of(batches);
        let operations: Vec<Uuid> = batches.iter().filter_map(|batch| batch.id()).map(|id| id.0).collect();
        let mut calls = vec![
            Call::new(&self.sql.lock_streams).with(texts(&needs.streams), Type::TEXT_ARRAY),
            Call::new(&self.sql.lock_documents).with(texts(&needs.documents), Type::TEXT_ARRAY),
            Call::new(&self.sql.lock_work).with(texts(&needs.work), Type::TEXT_ARRAY),
            Call::new(&self.sql.operations).with(operations, Type::UUID_ARRAY),
            Call::new(&self.sql.events_by_id).with(uuids(ids), Type::UUID_ARRAY),
            Call::new(&self.sql.numbers),
        ];
        if db.is_theirs() {
            calls.push(Call::new(&self.sql.identity));
        }
        let sent = Instant::now();
        let answers = db.pipeline(begin, &calls, None).await?;
        let [streams, documents, work, operations, events, numbers, identity @ ..] = answers.as_slice()
        else {
            return Err(short_answer());
        };
        if let Some(row) = identity.iter().flatten().next() {
            self.check_identity(get(row, 0)?)?;
        }
        let numbers = self.read_numbers(numbers, sent)?;
        let mut session = Session::new(numbers.now, NO_GRANTS, numbers.floor, epoch);
        load_rows(&mut session, &needs, streams, documents, work)?;
        for row in operations {
            let (id, resolution) = stored_operation(row)?;
            session.recorded.insert(id, resolution);
        }
        let events = events.iter().map(rows::event).collect::<Result<Vec<_>, _>>()?;
        session.load_event_ids(ids, events);
        Ok(session)
    }

    /// Checks that a transaction of the caller is on the database of the store.
    fn check_identity(&self, found: &str) -> Result<(), Failure> {
        if self.epochs.is_identity(found) {
            return Ok(());
        }
        let detail = format!(
            "it is on another database, which has a schema {} of its own or a copy of the store's",
            self.sql.schema
        );
        Err(Failure::new(StoreErrorKind::ForeignTransaction, crate::transaction::WHAT, detail))
    }

    /// Decodes the numbers of the store as a whole, read after `sent`.
    pub(crate) fn read_numbers(&self, numbers: &[Row], sent: Instant) -> Result<Numbers, Failure> {
        let row = numbers.first().ok_or_else(short_answer)?;
        Ok(Numbers {
            now: self.time.hear(get(row, 0)?, sent),
            turn: Fence(uint(get(row, 1)?)),
            floor: DocVersion(uint(get(row, 2)?)),
        })
    }
}

/// Decides batches until one needs rows that the others have not written yet. Returns how many were decided.
pub(crate) async fn decide_all(
    db: &Db<'_>,
    sql: &Sql,
    session: &mut Session,
    batches: &[&Batch],
) -> Result<usize, Failure> {
    let before = session.facts.weight();
    for (index, batch) in batches.iter().enumerate() {
        // A merge writes as much as the size of its document, which the batch does not show.
        if session.facts.weight().saturating_sub(before) > super::GROUP.weight {
            return Ok(index);
        }
        let known = batch.id().is_some_and(|id| session.knows(id));
        let selected = if super::selects(batch) && !known {
            match select(db, sql, session, batch).await? {
                Some(selected) => selected,
                None => continue,
            }
        } else {
            Vec::new()
        };
        let Err(ids) = session.decide(batch, &selected) else { continue };
        if index > 0 {
            return Ok(index);
        }
        let found = db.query(Call::new(&sql.events_by_id).with(uuids(&ids), Type::UUID_ARRAY)).await?;
        let events = found.iter().map(rows::event).collect::<Result<Vec<_>, _>>()?;
        session.load_event_ids(&ids, events);
        if let Err(ids) = session.decide(batch, &selected) {
            let detail = format!("{} event ids are still unknown after they were loaded", ids.len());
            let kind = StoreErrorKind::Bug;
            return Err(Failure::new(kind, "deciding a batch", detail));
        }
        session.facts.forget_event_ids();
    }
    Ok(batches.len())
}

/// Locks and loads the rows that the batch's filters may match. `None` when they are too many and the batch is refused.
async fn select(
    db: &Db<'_>,
    sql: &Sql,
    session: &mut Session,
    batch: &Batch,
) -> Result<Option<Vec<Key>>, Failure> {
    let mut selected = Footprint::of(batch).work;
    for effect in batch.effects() {
        if let Effect::Operate { selection: Selection::Filter(filter), .. } = effect {
            let filter = filter.for_operation();
            let condition = WorkCondition::new(&filter, None);
            let (s, order) = (&sql.schema, condition.order());
            let sql = format!("SELECT key FROM {s}.work WHERE {} ORDER BY {order} LIMIT $5", condition.sql());
            let call = condition.add_to(Call::new(&sql));
            let found = db.query(call.with(int(limits::OPERATE_ROWS as u64 + 1), Type::INT8)).await?;
            for row in &found {
                let key = rows::key(row, 0)?;
                selected.push(key);
            }
        }
    }
    selected.sort_unstable();
    selected.dedup();
    let (found, limit) = (selected.len(), limits::OPERATE_ROWS);
    if let Err(e) = limits::within("the number of rows selected", "a filter", found, limit) {
        session.verdicts.push(Verdict::Refused(Box::new(Refusal::Invalid(e))));
        return Ok(None);
    }
    let missing: Vec<Key> = selected.iter().filter(|key| !session.facts.knows_work(key)).cloned().collect();
    let held = db.query(Call::new(&sql.lock_work).with(texts(&missing), Type::TEXT_ARRAY)).await?;
    load_rows(session, &Footprint { work: missing, ..Footprint::default() }, &[], &[], &held)?;
    Ok(Some(selected))
}

/// Fills the slots of the footprint with the rows that were found. A row that was not found does not exist.
pub(crate) fn load_rows(
    session: &mut Session,
    needs: &Footprint,
    streams: &[Row],
    documents: &[Row],
    work: &[Row],
) -> Result<(), Failure> {
    for key in &needs.streams {
        session.load_stream(key.clone(), None);
    }
    for row in streams {
        let (key, row) = rows::stream(row)?;
        session.load_stream(key, Some(row));
    }
    for key in &needs.documents {
        session.load_document(key.clone(), None);
    }
    for row in documents {
        let (key, row) = rows::document(row)?;
        session.load_document(key, Some(row));
    }
    for key in &needs.work {
        session.load_work(key.clone(), None);
    }
    for row in work {
        let (row, stamp) = rows::work(row)?;
        session.load_work(row.key.clone(), Some((row, stamp)));
    }
    Ok(())
}

fn needs_of(batches: &[&Batch]) -> Footprint {
    let mut all = Footprint::default();
    for batch in batches {
        let needs = Footprint::of(batch);
        all.streams.extend(needs.streams);
        all.documents.extend(needs.documents);
        all.work.extend(needs.work);
    }
    for keys in [&mut all.streams, &mut all.documents, &mut all.work] {
        keys.sort_unstable();
        keys.dedup();
    }
    all
}

/// Converts keys to the texts that the server stores.
pub(crate) fn texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| key.canonical().to_owned()).collect()
}

fn uuids(ids: &[EventId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
}

pub(crate) fn short_answer() -> Failure {
    let kind = StoreErrorKind::Bug;
    Failure::new(kind, "reading an answer", "PostgreSQL answered fewer statements than were sent")
}

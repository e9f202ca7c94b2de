//! Claims: an index scan finds ready rows, and the model chooses and grants. Claims that wait at the same time share a
//! transaction.
//!
//! The scan of a level starts where its first live row was (see [`scan_bounds`](crate::scan_bounds)). A claim locks
//! only the rows that it will be granted. Claimers of other processes skip locked rows, and would otherwise find
//! nothing.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Fence, QueueName};
use tidelock_core::key::Key;
use tidelock_core::model::claim::{self, Candidate, Granted};
use tidelock_core::model::lease;
use tidelock_core::model::working_set::Footprint;
use tidelock_core::store::report;
use tidelock_core::store::{Claim, ClaimDenied, ClaimTarget, Claimed, Gathering, Grant, StoreError};
use tokio_postgres::types::Type;

use crate::db::{Call, Db, Row, begin};
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::rows::{self, get, int, uint};
use crate::scan_bounds::{self, Levels, Scan, Scanned};
use crate::session::Session;
use crate::unreadable::Unreadable;
use crate::writer::pessimistic::{load_rows, short_answer, texts};
use crate::writer::{Claiming, Engine, pause};

/// Attempts before a claim fails as busy.
const ATTEMPTS: u32 = 20;
/// Choices among rows that other claimers may lock first. After them, the claim locks every row that it finds.
const CHOICES: u32 = 3;

/// The grants of a claim before the group is written.
struct Promise {
    granted: Vec<Granted>,
    claimed: Claimed,
    /// Lanes without a ready row: the server reports when the next one is ready.
    ask: Option<Vec<String>>,
}

/// A read that is sent with the grants, and the part of the answer that it completes.
enum Extra {
    /// The events that the grant of a claim follows.
    Events(usize, usize),
    /// When the next rows of a claim's levels are ready.
    Next(usize, Levels),
}

/// A transaction with the rows that its claims may be granted.
struct LockedRows<'a> {
    session: Session,
    open: Vec<Candidate>,
    scan: Scan<'a>,
    scanned: Scanned,
}

impl Engine {
    /// Executes claims in one shared transaction and replies to them. If that fails, each claim by name runs in its own
    /// task, and its row is removed from `rows`.
    pub(crate) async fn claims(self: &Arc<Self>, jobs: Vec<Claiming>, rows: &mut Vec<u64>) {
        self.meter.claims.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let give_up = Instant::now() + self.patience;
        let Some(jobs) = self.claim_together(jobs, give_up, true).await else { return };
        let (named, open): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| matches!(job.claim.pick, ClaimTarget::Named { .. }));
        for job in named {
            let mine = crate::writer::rows_of_claim(&job.claim);
            rows.retain(|row| !mine.contains(row));
            let engine = Arc::clone(self);
            self.tasks.spawn(async move {
                // The semaphore is never closed.
                let _turn = engine.alone.acquire().await;
                engine.claim_together(vec![job], give_up, false).await;
                engine.queue.done(&mine);
            });
        }
        if !open.is_empty() {
            self.claim_together(open, give_up, false).await;
        }
    }

    /// Executes claims in one transaction. With `give_back` it makes one attempt, and returns the claims if another
    /// attempt may succeed.
    async fn claim_together(
        &self,
        jobs: Vec<Claiming>,
        give_up: Instant,
        give_back: bool,
    ) -> Option<Vec<Claiming>> {
        let claims: Vec<&Claim> = jobs.iter().map(|job| job.claim.as_ref()).collect();
        let mut attempts = 0;
        let answers = loop {
            let failure = match self.grant(&claims, give_up).await {
                Ok(answers) => break Ok(answers),
                Err(failure) => failure,
            };
            attempts += 1;
            let worth = failure.meaning != Meaning::Failed && !failure.meaning.is_open();
            // One of the claims may need a row that does not decode.
            let to_blame = failure.meaning == Meaning::Failed && jobs.len() > 1;
            if (worth || to_blame) && give_back {
                return Some(jobs);
            }
            let spent = attempts >= ATTEMPTS && failure.meaning != Meaning::Unsent;
            if !worth || spent || Instant::now() >= give_up {
                break Err(StoreError::from(failure));
            }
            pause(attempts).await;
        };
        // A claim without grants wakes no other claimer: claimers that find nothing would wake each other endlessly.
        let granted = |answer: &ClaimResult| answer.as_ref().is_ok_and(|claimed| !claimed.grants.is_empty());
        if answers.as_ref().is_ok_and(|answers| answers.iter().any(granted)) {
            self.hints.changed();
        }
        answer(jobs, answers);
        None
    }

    async fn grant(&self, claims: &[&Claim], give_up: Instant) -> Result<Vec<ClaimResult>, Failure> {
        let client = self.writer(give_up).await?;
        let db = self.db(&client);
        let held = self.bounded(&client, self.hold_candidates(&db, claims)).await;
        let LockedRows { mut session, mut open, scan, scanned } = match held {
            Ok(held) => held,
            Err(failure) => {
                self.roll_back(client, &failure).await;
                return Err(failure.unsent());
            }
        };
        let mut promises: Vec<Promise> =
            claims.iter().map(|claim| promise(&mut session, &mut open, claim)).collect();
        session.forget_unused();
        let flush = Flush::of(&mut session, None, self.flush_setting);
        let extras = extras(claims, &mut promises, &scan, &scanned);
        let more = self.calls(claims, &promises, &extras, session.now);
        let ended = Some("COMMIT");
        match self.bounded(&client, flush.send(&db, &self.sql, &session, ended, more)).await {
            Ok((drawn, answers)) => {
                let (position, fence) = drawn.highest();
                self.epochs.saw(position, fence);
                flush.remember(&self.warm, &session, &drawn);
                finish(&mut promises, &session, &drawn);
                let mut told: Vec<ClaimResult> =
                    promises.into_iter().map(|promise| Ok(promise.claimed)).collect();
                let heard = add(&mut told, claims, &extras, &answers);
                for (levels, (ready, dead)) in heard {
                    scan.learn(levels, &ready, dead, scanned.at, Instant::now());
                }
                Ok(told)
            }
            Err(failure) => {
                self.roll_back(client, &failure).await;
                Err(failure)
            }
        }
    }

    /// Begins a transaction, locks the rows that are claimed by name, and then the oldest ready rows.
    async fn hold_candidates(&self, db: &Db<'_>, claims: &[&Claim]) -> Result<LockedRows<'_>, Failure> {
        let epoch = self.epochs.current();
        // Bounds of another epoch are dropped first: rows that were done in a lost history are ready again.
        let _ = self.warm.with(epoch, |_| ());
        let begin = begin(self.group_lock_ms());
        let (named, queues, limit) = wanted(claims);
        let sent = Instant::now();
        let scan = self.warm.bounds.begin(queues, Instant::now());
        let answers = {
            let lock_named = Call::new(&self.sql.lock_work).with(texts(&named), Type::TEXT_ARRAY);
            let candidates = self.candidates(&scan.levels, limit, false);
            let calls = [lock_named, candidates, Call::new(&self.sql.numbers)];
            db.pipeline(Some(&begin), &calls, None).await?
        };
        let [held, candidates, numbers] = answers.as_slice() else { return Err(short_answer()) };
        let numbers = self.read_numbers(numbers, sent)?;
        let mut session = Session::new(numbers.now, numbers.turn, numbers.floor, epoch);
        load_rows(&mut session, &Footprint { work: named, ..Footprint::default() }, &[], &[], held)?;
        let passed_over = self.unreadable.len();
        let Offer { scanned, locked, offered } = Offer::read(candidates, &scan.levels, &self.unreadable)?;
        scan.finish(&scanned, Instant::now());
        let mut open = hold(&mut session, locked, &self.unreadable);
        let mut lost =
            !offered.is_empty() && self.lock_choice(db, claims, &mut session, &mut open, offered).await?;
        // Rows that do not decode took the place of others.
        lost |= self.unreadable.len() > passed_over;
        while lost && open.len() < usize::try_from(limit).unwrap_or(usize::MAX) {
            let passed_over = self.unreadable.len();
            let found = db.query(self.candidates(&scan.levels, limit, true)).await?;
            let locked = Offer::read(&found, &scan.levels, &self.unreadable)?.locked;
            let more = hold(&mut session, locked, &self.unreadable);
            let known: HashSet<Key> = open.iter().map(|candidate| candidate.key.clone()).collect();
            open.extend(more.into_iter().filter(|candidate| !known.contains(&candidate.key)));
            lost = self.unreadable.len() > passed_over;
        }
        Ok(LockedRows { session, open, scan, scanned })
    }

    /// The scan of levels. The limit grows by the number of rows known not to decode. With `lock_all` the scan locks
    /// every row that it finds.
    fn candidates<'a>(&'a self, levels: &'a Levels, limit: i64, lock_all: bool) -> Call<'a> {
        let limit = if limit > 0 { limit.saturating_add(int(self.unreadable.len() as u64)) } else { limit };
        let given = self.time.fixed().map(Timestamp::as_micros);
        let call = levels.add_to(Call::new(&self.sql.candidates));
        call.with(limit, Type::INT8).with(given, Type::INT8).with(lock_all, Type::BOOL)
    }

    /// Locks the offered rows that the claims will be granted. Returns whether other claimers locked some of them
    /// first.
    async fn lock_choice(
        &self,
        db: &Db<'_>,
        claims: &[&Claim],
        session: &mut Session,
        open: &mut Vec<Candidate>,
        mut offered: Vec<Candidate>,
    ) -> Result<bool, Failure> {
        let mut lost = false;
        let given = self.time.fixed().map(Timestamp::as_micros);
        for _ in 0..CHOICES {
            let chosen = choice(claims, open, &offered, session.facts.counters.fence);
            if chosen.is_empty() {
                break;
            }
            let keys: Vec<Key> = chosen.iter().cloned().collect();
            let call = Call::new(&self.sql.lock_candidates).with(texts(&keys), Type::TEXT_ARRAY);
            let locked = db.query(call.with(given, Type::INT8)).await?;
            let held = hold(session, locked.iter(), &self.unreadable);
            lost |= held.len() < chosen.len();
            open.extend(held);
            offered.retain(|candidate| !chosen.contains(&candidate.key));
        }
        Ok(lost)
    }

    /// Returns the statements of the reads that are sent with the grants.
    fn calls<'a>(
        &'a self,
        claims: &[&Claim],
        promises: &[Promise],
        extras: &'a [Extra],
        now: Timestamp,
    ) -> Vec<Call<'a>> {
        let call = |extra: &'a Extra| match extra {
            Extra::Events(claim, grant) => {
                let row = &promises.get(*claim)?.granted.get(*grant)?.row;
                let call = Call::new(&self.sql.following)
                    .with(row.follow.as_ref()?.canonical().to_owned(), Type::TEXT)
                    .with(row.position.map_or(-1, |position| int(position.0)), Type::INT8);
                let call = call.with(int(claims.get(*claim)?.events as u64), Type::INT8);
                let share = Gathering::share(promises.get(*claim)?.granted.len());
                Some(call.with(int(share as u64), Type::INT8))
            }
            Extra::Next(_, levels) => {
                let call = levels.add_to(Call::new(&self.sql.next_ready));
                Some(call.with(now.as_micros(), Type::INT8))
            }
        };
        extras.iter().filter_map(call).collect()
    }
}

/// Returns the reads that are sent with the grants. Adds what is known about the next rows of a claim to its answer.
fn extras(claims: &[&Claim], promises: &mut [Promise], scan: &Scan<'_>, scanned: &Scanned) -> Vec<Extra> {
    let mut extras = Vec::new();
    for (index, (claim, promise)) in claims.iter().zip(promises).enumerate() {
        for (grant, Granted { row, .. }) in promise.granted.iter().enumerate() {
            if row.follow.is_some() && claim.events > 0 {
                extras.push(Extra::Events(index, grant));
            }
        }
        if let Some(queues) = &promise.ask {
            let known = scan.next_look(queues, scanned, Instant::now());
            promise.claimed.next_at = known.map(Timestamp::from_micros);
            let levels = scan.full_levels(queues);
            extras.extend((!levels.is_empty()).then_some(Extra::Next(index, levels)));
        }
    }
    extras
}

/// The rows that a scan offers to claims.
struct Offer<'r> {
    scanned: Scanned,
    /// Rows that are locked already.
    locked: Vec<&'r Row>,
    /// Rows to choose from.
    offered: Vec<Candidate>,
}

impl<'r> Offer<'r> {
    /// Decodes the answer of `candidates`, which documents the kinds of rows.
    fn read(found: &'r [Row], levels: &Levels, unreadable: &Unreadable) -> Result<Self, Failure> {
        let scanned = Scanned { lowest: vec![None; levels.queues.len()], ..Scanned::default() };
        let mut offer = Self { scanned, locked: Vec::new(), offered: Vec::new() };
        for row in found {
            let queue: Option<&str> = get(row, 2)?;
            if get::<Option<&str>>(row, 9)?.is_some() {
                offer.locked.push(row);
            } else if let Some(key) = get::<Option<&str>>(row, 1)? {
                match candidate(row) {
                    Ok(candidate) => offer.offered.push(candidate),
                    Err(failure) => unreadable.pass_over(key, &failure.error),
                }
            } else if let Some(queue) = queue {
                let lowest =
                    levels.place(queue, get(row, 3)?).and_then(|at| offer.scanned.lowest.get_mut(at));
                lowest.into_iter().for_each(|lowest| *lowest = get(row, 5).ok());
            } else {
                offer.scanned.at = get(row, 0)?;
                offer.scanned.dead = uint(get(row, 20)?);
            }
        }
        Ok(offer)
    }
}

/// A row that was found without a lock.
fn candidate(row: &Row) -> Result<Candidate, Failure> {
    Ok(Candidate {
        seq: uint(get(row, 0)?),
        key: rows::key(row, 1)?,
        queue: rows::text(row, 2)?,
        priority: rows::priority(row, 3)?,
        ready_at: Timestamp::from_micros(get(row, 5)?),
    })
}

/// Loads locked rows into the working set. A row that does not decode is skipped, so that it blocks no other.
fn hold<'r>(
    session: &mut Session,
    locked: impl IntoIterator<Item = &'r Row>,
    unreadable: &Unreadable,
) -> Vec<Candidate> {
    let mut open = Vec::new();
    for row in locked {
        let (row, stamp) = match rows::work(row) {
            Ok(read) => read,
            Err(failure) => {
                unreadable.pass_over(get::<&str>(row, 1).unwrap_or_default(), &failure.error);
                continue;
            }
        };
        unreadable.reads(row.key.canonical());
        // Claims use the actual ready time; the column may lag behind a renewed lease.
        if let Some(ready_at) = lease::ready_at(&row) {
            let (key, queue, priority, seq) = (row.key.clone(), row.queue.clone(), row.priority, row.seq);
            open.push(Candidate { key, queue, priority, ready_at, seq });
        }
        session.load_work(row.key.clone(), Some((row, stamp)));
    }
    open
}

/// Returns the offered rows that the claims would be granted in addition to the locked ones.
fn choice(claims: &[&Claim], held: &[Candidate], offered: &[Candidate], turn: Fence) -> HashSet<Key> {
    let mut pool: Vec<Candidate> = held.iter().chain(offered).cloned().collect();
    let mut granted = 0;
    for claim in claims {
        let ClaimTarget::Lanes { queues, limit } = &claim.pick else { continue };
        let mine = pool.iter().filter(|candidate| queues.contains(&candidate.queue)).cloned().collect();
        let turn = Fence(turn.0.saturating_add(granted));
        let chosen: HashSet<Key> = claim::choose(mine, *limit, turn).into_iter().collect();
        granted = granted.saturating_add(chosen.len() as u64);
        pool.retain(|candidate| !chosen.contains(&candidate.key));
    }
    let left: HashSet<&Key> = pool.iter().map(|candidate| &candidate.key).collect();
    let chosen = offered.iter().map(|candidate| &candidate.key).filter(|key| !left.contains(key));
    chosen.cloned().collect()
}

/// Returns the names, the queues and the number of rows that claims request.
fn wanted(claims: &[&Claim]) -> (Vec<Key>, Vec<String>, i64) {
    let mut named = BTreeSet::new();
    let mut all_lanes = BTreeSet::new();
    let mut rows = 0_usize;
    for claim in claims {
        match &claim.pick {
            ClaimTarget::Named { key, .. } => drop(named.insert(key.clone())),
            ClaimTarget::Lanes { queues, limit } => {
                all_lanes.extend(texts_of(queues));
                rows = rows.saturating_add(*limit);
            }
        }
    }
    (named.into_iter().collect(), all_lanes.into_iter().collect(), int(rows as u64))
}

pub(crate) fn texts_of(queues: &[QueueName]) -> Vec<String> {
    queues.iter().map(|queue| queue.as_str().to_owned()).collect()
}

/// Grants a claim the rows that it can have among the open ones.
fn promise(session: &mut Session, open: &mut Vec<Candidate>, claim: &Claim) -> Promise {
    let mut promise = Promise { granted: Vec::new(), claimed: Claimed::nothing(session.now), ask: None };
    let (owner, ttl, now) = (&claim.owner, claim.ttl, session.now);
    match &claim.pick {
        ClaimTarget::Named { key, create } => {
            match claim::grant_named(&mut session.facts, key, create.as_ref(), owner, ttl, now) {
                Ok(granted) => promise.granted.push(granted),
                Err(denied) => promise.claimed.denied = Some(denied),
            }
            open.retain(|candidate| candidate.key != *key);
        }
        ClaimTarget::Lanes { queues, limit } => {
            let mine = open.iter().filter(|candidate| queues.contains(&candidate.queue));
            let mine: Vec<Candidate> = mine.cloned().collect();
            if mine.is_empty() {
                promise.ask = Some(texts_of(queues));
            }
            let chosen = claim::choose(mine, *limit, session.facts.counters.fence);
            for key in &chosen {
                promise.granted.extend(claim::grant_chosen(&mut session.facts, key, owner, ttl, now));
            }
            open.retain(|candidate| !chosen.contains(&candidate.key));
        }
    }
    promise
}

/// Turns promises into grants, with the fences that the server drew.
fn finish(promises: &mut [Promise], session: &Session, drawn: &Drawn) {
    for promise in promises {
        if let Some(ClaimDenied::Held(lease)) = &mut promise.claimed.denied {
            lease.fence = drawn.fence(lease.fence, session.turn);
        }
        for Granted { row, taken_over } in promise.granted.drain(..) {
            let row = drawn.work_row(row, session.turn);
            let fence = row.lease.as_ref().map(|lease| lease.fence);
            let grant = |fence| Grant {
                row,
                fence,
                epoch: session.epoch(),
                taken_over,
                events: Vec::new(),
                more: false,
            };
            promise.claimed.grants.extend(fence.map(grant));
        }
    }
}

/// When rows of levels are ready, and how many dead index entries that took.
type NextReady = (Vec<Option<i64>>, u64);

/// Adds the reads that were sent with the grants. A grant whose events do not decode is left out: its lease expires,
/// and the claim keeps its other grants. Returns the ready times that the server reported for the next rows of levels.
fn add<'e>(
    told: &mut [ClaimResult],
    claims: &[&Claim],
    extras: &'e [Extra],
    answers: &[Vec<Row>],
) -> Vec<(&'e Levels, NextReady)> {
    let (mut heard, mut left_out) = (Vec::new(), Vec::new());
    for (extra, found) in extras.iter().zip(answers) {
        let (Extra::Events(claim, _) | Extra::Next(claim, _)) = extra;
        let Some(answer) = told.get_mut(*claim) else { continue };
        let Ok(claimed) = answer else { continue };
        match add_one(claimed, claims.get(*claim).map_or(0, |claim| claim.events), extra, found) {
            Ok(next) => heard.extend(next),
            Err(failure) => match extra {
                Extra::Events(claim, grant) if claimed.grants.len() > 1 => {
                    left_out.push((*claim, *grant, failure));
                }
                _ => *answer = Err(failure.into()),
            },
        }
    }
    // From the last to the first, so that the remaining indexes stay valid.
    for (claim, grant, failure) in left_out.into_iter().rev() {
        let Some(Ok(claimed)) = told.get_mut(claim) else { continue };
        if grant < claimed.grants.len() {
            let row = claimed.grants.remove(grant).row;
            report::unreadable_work(row.key.canonical(), &failure.error);
        }
    }
    heard
}

fn add_one<'e>(
    claimed: &mut Claimed,
    most: usize,
    extra: &'e Extra,
    found: &[Row],
) -> Result<Option<(&'e Levels, NextReady)>, Failure> {
    match extra {
        Extra::Events(_, grant) => {
            let mut gathering = Gathering::new(most, claimed.grants.len());
            for row in found {
                gathering.add(rows::event(row)?);
            }
            if let Some(grant) = claimed.grants.get_mut(*grant) {
                (grant.events, grant.more) = gathering.end();
            }
            Ok(None)
        }
        Extra::Next(_, levels) => {
            let next = scan_bounds::next_ready(found)?;
            let first = next.0.iter().flatten().min().copied().map(Timestamp::from_micros);
            claimed.next_at = [claimed.next_at, first].into_iter().flatten().min();
            Ok(Some((levels, next)))
        }
    }
}

/// The result of a claim.
type ClaimResult = Result<Claimed, StoreError>;

fn answer(jobs: Vec<Claiming>, answers: Result<Vec<ClaimResult>, StoreError>) {
    // The receiver is gone if the worker stopped; its lease expires.
    match answers {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                drop(job.reply.send(answer));
            }
        }
        Err(error) => {
            for job in jobs {
                drop(job.reply.send(Err(error.clone())));
            }
        }
    }
}

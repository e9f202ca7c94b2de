//! The committers: a few tasks, each with one connection at a time, that commit queued jobs in groups.
//!
//! A group is first decided on cached or guessed rows, and sent in one round trip. The server executes it only if all
//! of those rows are unchanged. Otherwise the group is decided again with its rows locked. If another transaction
//! holds one of the rows for long, or an event id is taken, each batch gets its own transaction. No batch then delays
//! the others.

mod engine;
mod fast_path;
mod isolated;
pub(crate) mod pessimistic;

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidelock_core::error::Outcome;
use tidelock_core::id::{Fence, OpId};
use tidelock_core::model::limits::TRUNCATE_EVENTS;
use tidelock_core::model::working_set::Footprint;
use tidelock_core::store::{
    ApplyError, Batch, Claim, ClaimTarget, Claimed, Effect, Receipt, Selection, StoreError, Sweep, Swept,
};
use tokio::sync::oneshot;

pub(crate) use self::engine::{Engine, WriterCounters, jittered, pause};
use crate::commit_delay::CommitDelay;
use crate::connect::Client;
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::queue::{self, Kind, Most};
use crate::row_cache::Noun;
use crate::session::{Session, Verdict};

/// The size limits of a group, however many jobs wait. Larger groups gain little from the shared flush and wait longer.
const GROUP: Most = Most { jobs: 256, weight: 4 * 1024 * 1024 };
/// The weight of an effect in addition to its payload.
const EFFECT_WEIGHT: usize = 64;
/// The weight of an event that may be removed.
const REMOVED_WEIGHT: usize = GROUP.weight / TRUNCATE_EVENTS as usize;
/// The longest time that a group takes on a server that flushes fast, and the time that each of its batches adds.
const FIXED: Duration = Duration::from_micros(1_500);
const PER_BATCH: Duration = Duration::from_micros(25);
/// A fence above all others: a group of batches grants none.
pub(crate) const NO_GRANTS: Fence = Fence(u64::MAX);

/// A batch that waits for its receipt.
#[derive(Debug)]
pub(crate) struct Applying {
    pub(crate) batch: Box<Batch>,
    /// The time of the call, from which the patience counts.
    since: Instant,
    reply: oneshot::Sender<Result<Receipt, ApplyError>>,
}

/// A claim that waits for its grants.
#[derive(Debug)]
pub(crate) struct Claiming {
    pub(crate) claim: Box<Claim>,
    pub(crate) reply: oneshot::Sender<Result<Claimed, StoreError>>,
}

/// The jobs of the committers.
#[derive(Debug)]
pub(crate) enum Job {
    Apply(Applying),
    Claim(Claiming),
    Sweep(Sweep, oneshot::Sender<Result<Swept, StoreError>>),
}

impl Job {
    pub(crate) fn apply(batch: Batch) -> (Self, oneshot::Receiver<Result<Receipt, ApplyError>>) {
        let (reply, answer) = oneshot::channel();
        (Self::Apply(Applying { batch: Box::new(batch), since: Instant::now(), reply }), answer)
    }
}

impl queue::Job for Job {
    fn rows(&self) -> Vec<u64> {
        match self {
            Self::Apply(applying) => rows_of(&applying.batch),
            Self::Claim(claiming) => rows_of_claim(&claiming.claim),
            Self::Sweep(..) => Vec::new(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Apply(applying) if selects(&applying.batch) => Kind::Alone,
            Self::Apply(_) => Kind::Batch,
            Self::Claim(_) => Kind::Claim,
            Self::Sweep(..) => Kind::Alone,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Apply(applying) => weight(&applying.batch),
            // Claims of one transaction take a thousand rows at most.
            Self::Claim(claiming) => asked_for(&claiming.claim) * (GROUP.weight / 1_000),
            Self::Sweep(..) => 0,
        }
    }
}

/// Returns the weight of a batch in a group. A group removes about as many events as one batch may.
fn weight(batch: &Batch) -> usize {
    let removed = usize::try_from(batch.removes_at_most()).unwrap_or(usize::MAX);
    batch.bytes() + batch.effects().len() * EFFECT_WEIGHT + removed.saturating_mul(REMOVED_WEIGHT)
}

/// Returns the number of rows that a claim requests.
fn asked_for(claim: &Claim) -> usize {
    match &claim.pick {
        ClaimTarget::Lanes { limit, .. } => *limit,
        ClaimTarget::Named { .. } => 1,
    }
}

fn number(what: &impl std::hash::Hash) -> u64 {
    foldhash::fast::FixedState::default().hash_one(what)
}

/// Returns the number of the row that a claim names.
pub(crate) fn rows_of_claim(claim: &Claim) -> Vec<u64> {
    match &claim.pick {
        ClaimTarget::Named { key, .. } => vec![number(&(Noun::Work, key))],
        ClaimTarget::Lanes { .. } => Vec::new(),
    }
}

/// Returns the numbers of all rows that a batch names.
fn rows_of(batch: &Batch) -> Vec<u64> {
    let needs = Footprint::of(batch);
    let streams = needs.streams.iter().map(|key| number(&(Noun::Stream, key)));
    let documents = needs.documents.iter().map(|key| number(&(Noun::Document, key)));
    let work = needs.work.iter().map(|key| number(&(Noun::Work, key)));
    let id = batch.id().map(|id| number(&id));
    let mut rows: Vec<u64> = streams.chain(documents).chain(work).chain(id).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Returns whether an operator's command in the batch selects rows by a filter.
pub(crate) fn selects(batch: &Batch) -> bool {
    let by_filter =
        |effect: &Effect| matches!(effect, Effect::Operate { selection: Selection::Filter(_), .. });
    batch.effects().iter().any(by_filter)
}

impl Applying {
    fn answer(self, result: Result<Receipt, ApplyError>) {
        // The receiver is gone if the caller stopped waiting. The batch is applied all the same.
        drop(self.reply.send(result));
    }

    /// Replies with the verdict of a group that was committed.
    fn verdict(self, verdict: Option<Verdict>) {
        let result = answer_of(verdict, self.batch.id());
        self.answer(result);
    }

    /// Replies with a failure and its meaning for the batch.
    fn failed(self, failure: &Failure) {
        let id = self.batch.id();
        self.answer(Err(failed(failure.clone(), id)));
    }
}

/// Converts a verdict into the result for the caller.
fn answer_of(verdict: Option<Verdict>, id: Option<OpId>) -> Result<Receipt, ApplyError> {
    match verdict {
        Some(Verdict::Applied(receipt) | Verdict::Repeated(receipt)) => Ok(receipt),
        Some(Verdict::Refused(refusal)) => Err(ApplyError::Refused(refusal)),
        Some(Verdict::Same(_)) | None => {
            let kind = tidelock_core::store::StoreErrorKind::Bug;
            let error = StoreError::new(kind, "answering a batch", "it was committed without a verdict");
            Err(ApplyError::unknown(error, id))
        }
    }
}

/// Returns the error of a batch that this call did not apply. Without an id, its outcome is "not applied". Under an id,
/// an earlier call may have applied it.
pub(crate) fn not_decided(error: StoreError, id: Option<OpId>) -> ApplyError {
    let outcome = id.map_or(Outcome::NotApplied, |id| Outcome::Unknown(Some(id)));
    ApplyError::Store { error, outcome }
}

/// Returns the error of a batch whose transaction failed. Its outcome is unknown if the transaction may have been
/// committed.
fn failed(failure: Failure, id: Option<OpId>) -> ApplyError {
    if failure.meaning.is_open() {
        return ApplyError::unknown(failure.error, id);
    }
    not_decided(failure.error, id)
}

/// Returns whether a group spent its time on the flush and the network rather than on its batches. A second group at
/// the same time would then only split the callers: flushes of one server are serialized.
fn flushes_most(took: Duration, batches: usize) -> bool {
    took > FIXED + PER_BATCH * u32::try_from(batches).unwrap_or(u32::MAX)
}

/// Runs one committer.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut company = CommitDelay::default();
    while let Some(mut group) = engine.queue.take(GROUP).await {
        let (jobs, begun) = (std::mem::take(&mut group.jobs), Instant::now());
        let answered = jobs.len();
        engine.run_group(jobs, &mut group.rows).await;
        let took = begun.elapsed();
        engine.queue.finish(&group, answered, flushes_most(took, answered));
        company.anticipate(answered, engine.queue.len());
        company.wait(|| engine.queue.len(), took).await;
    }
}

impl Engine {
    async fn run_group(self: &Arc<Self>, jobs: Vec<Job>, rows: &mut Vec<u64>) {
        let (mut batches, mut claims) = (Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Apply(applying) => batches.push(applying),
                Job::Claim(claiming) => claims.push(claiming),
                Job::Sweep(sweep, reply) => drop(reply.send(self.sweep(&sweep).await)),
            }
        }
        if !batches.is_empty() {
            self.batches(batches, rows).await;
        }
        if !claims.is_empty() {
            self.claims(claims, rows).await;
        }
    }

    /// Executes a group of batches to completion. Removes the rows of batches that take longer from `rows`.
    async fn batches(self: &Arc<Self>, jobs: Vec<Applying>, rows: &mut Vec<u64>) {
        self.meter.groups.fetch_add(1, Ordering::Relaxed);
        self.meter.batches.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let oldest = jobs.iter().map(|job| job.since).min().unwrap_or_else(Instant::now);
        let give_up = oldest + self.patience;
        let jobs = match self.predict(jobs.iter().map(|job| job.batch.as_ref())) {
            Some(session) => match self.guess(jobs, session, give_up).await {
                Some(jobs) => jobs,
                None => return,
            },
            None => jobs,
        };
        self.decide_locked(jobs, give_up, rows).await;
    }

    /// Returns the working set of a group as far as this process can predict it. `None`: a row must be looked up.
    fn predict<'a>(&self, batches: impl Iterator<Item = &'a Batch> + Clone) -> Option<Session> {
        if !self.guesses {
            return None;
        }
        let now = self.time.now()?;
        let epoch = self.epochs.current();
        let mut session = self.warm.with(epoch, |rows| {
            let mut session = Session::new(now, NO_GRANTS, rows.floor?, epoch);
            batches.clone().all(|batch| session.predict(rows, batch)).then_some(session)
        })??;
        let mut batches = batches;
        let before = session.facts.weight();
        let mut fits = |batch| {
            let decided = session.decide_by_guess(batch);
            // A merge writes as much as the size of its document. A heavy group is settled in parts.
            decided && session.facts.weight().saturating_sub(before) <= 2 * GROUP.weight
        };
        batches.all(&mut fits).then_some(session)
    }

    /// Sends a group that was decided on beliefs. Returns the batches when they must be decided again.
    async fn guess(
        &self,
        jobs: Vec<Applying>,
        mut session: Session,
        give_up: Instant,
    ) -> Option<Vec<Applying>> {
        let client = match self.writer(give_up).await {
            Ok(client) => client,
            Err(failure) => {
                fail(jobs, &failure);
                return None;
            }
        };
        let check = self.time.to_check(session.now);
        let flush = Flush::of(&mut session, check, self.flush_setting);
        let db = self.db(&client);
        match self.bounded(&client, flush.send(&db, &self.sql, &session, None, Vec::new())).await {
            Ok((drawn, _)) => {
                self.committed(&flush, &session, &drawn, jobs);
                None
            }
            Err(failure) => {
                if failure.meaning == Meaning::Epoch {
                    self.reconfirm(&client).await;
                }
                self.after_guess(jobs, &failure, client)
            }
        }
    }

    /// Returns the batches of a failed guess that must be decided again.
    fn after_guess(&self, jobs: Vec<Applying>, failure: &Failure, client: Client) -> Option<Vec<Applying>> {
        match failure.meaning {
            // They may have been committed. Applying them again would apply them twice.
            Meaning::Lost | Meaning::Unclear => {
                self.lost(client);
                fail(jobs, failure);
                None
            }
            Meaning::Unsent => {
                self.lost(client);
                Some(jobs)
            }
            Meaning::Failed if jobs.len() == 1 => {
                fail(jobs, failure);
                None
            }
            // One of the batches may have caused the failure, and the others must not fail with it.
            Meaning::Failed => Some(jobs),
            Meaning::Clock => {
                self.time.forget();
                Some(jobs)
            }
            Meaning::Epoch => Some(jobs),
            Meaning::Stale | Meaning::TakenEventId | Meaning::Locked | Meaning::Again => {
                self.meter.stale.fetch_add(1, Ordering::Relaxed);
                for job in &jobs {
                    self.warm.invalidate(&Footprint::of(&job.batch));
                }
                Some(jobs)
            }
        }
    }

    /// Caches the committed rows, and wakes waiters for changes.
    fn remember(&self, flush: &Flush, session: &Session, drawn: &Drawn) {
        if let Some(said) = drawn.server_now {
            self.time.hear(said, flush.made);
        }
        let (position, fence) = drawn.highest();
        self.epochs.saw(position, fence);
        flush.remember(&self.warm, session, drawn);
        self.hints.changed();
    }

    /// Handles the commit of a group: caches its rows, wakes waiters, and replies to the callers.
    fn committed(&self, flush: &Flush, session: &Session, drawn: &Drawn, jobs: Vec<Applying>) {
        self.remember(flush, session, drawn);
        for (index, job) in jobs.into_iter().enumerate() {
            job.verdict(drawn.verdict(session, index));
        }
    }
}

/// Replies to batches whose transaction failed.
fn fail(jobs: Vec<Applying>, failure: &Failure) {
    for job in jobs {
        job.failed(failure);
    }
}

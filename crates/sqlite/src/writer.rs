//! The writer thread: takes the queued jobs as one group, decides each job separately, flushes once, and replies to all
//! callers.
//!
//! The writer replies after the flush, never before. If the process dies in the middle of a group, the whole group is
//! rolled back, and no caller has received a reply that says otherwise.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tidelock_core::clock::Clock;
use tidelock_core::id::OpId;
use tidelock_core::model::limits::TRUNCATE_EVENTS;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Claimed, HistoryCut, Receipt, Resolution, StoreError, StoreErrorKind, Sweep,
    Swept, Watcher,
};
use tokio::sync::oneshot;

use crate::checkpoint::Checkpointer;
use crate::clock::FileClock;
use crate::commit_delay::CommitDelay;
use crate::epoch;
use crate::error::{self, Failure};
use crate::file_identity::FileIdentity;
use crate::index_merge::IndexMerger;
use crate::queue::Queue;
use crate::session::{self, Session};

/// The most jobs that share a flush. A group must not delay its first caller for long.
const GROUP_JOBS: usize = 512;
/// The most payload bytes that share a flush.
const GROUP_BYTES: usize = 8 * 1024 * 1024;
/// The weight of an event that may be removed. A group removes about the same number of events as one batch may.
const REMOVED_BYTES: u64 = GROUP_BYTES as u64 / TRUNCATE_EVENTS;
/// How long the writer sleeps between two attempts when another process holds the database: about one flush.
const BUSY_PAUSE: Duration = Duration::from_micros(100);

/// A write request with its reply channel.
#[derive(Debug)]
pub(crate) enum Job {
    Apply(Box<Batch>, oneshot::Sender<Result<Receipt, ApplyError>>),
    Claim(Box<Claim>, oneshot::Sender<Result<Claimed, StoreError>>),
    Resolve(OpId, oneshot::Sender<Result<Resolution, StoreError>>),
    Sweep(Sweep, oneshot::Sender<Result<Swept, StoreError>>),
    DeclareCut(String, oneshot::Sender<Result<HistoryCut, StoreError>>),
}

/// A decided job that waits for the flush.
enum Done {
    Apply(oneshot::Sender<Result<Receipt, ApplyError>>, Result<Receipt, ApplyError>),
    Claim(oneshot::Sender<Result<Claimed, StoreError>>, Claimed),
    Resolve(oneshot::Sender<Result<Resolution, StoreError>>, Resolution),
    Sweep(oneshot::Sender<Result<Swept, StoreError>>, Swept),
    DeclareCut(oneshot::Sender<Result<HistoryCut, StoreError>>, HistoryCut),
}

/// Counters of the writer's work, for statistics and the benchmark.
#[derive(Debug, Default)]
pub(crate) struct WriterCounters {
    pub(crate) groups: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) careful: AtomicU64,
    pub(crate) foreign: AtomicU64,
}

impl WriterCounters {
    fn count(&self, jobs: &[Job]) {
        let batches = jobs.iter().filter(|job| matches!(job, Job::Apply(..))).count();
        let claims = jobs.iter().filter(|job| matches!(job, Job::Claim(..))).count();
        self.batches.fetch_add(batches as u64, Ordering::Relaxed);
        self.claims.fetch_add(claims as u64, Ordering::Relaxed);
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    pub(crate) session: Session,
    pub(crate) queue: Arc<Queue<Job>>,
    pub(crate) watcher: Arc<Watcher>,
    pub(crate) clock: Arc<FileClock>,
    pub(crate) busy_timeout: Duration,
    pub(crate) meter: Arc<WriterCounters>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) merger: IndexMerger,
    /// The number that SQLite changes when another connection has committed.
    pub(crate) data_version: i64,
    pub(crate) identity: FileIdentity,
    /// The epoch as the store's handles see it.
    pub(crate) epoch: Arc<AtomicU64>,
    /// How long the last commit took.
    pub(crate) last_flush: Duration,
}

/// The jobs of a group that were decided, and those that are left for the next group.
type Decided = (Vec<Done>, Vec<Job>);

/// A group that failed as a whole, with its jobs.
struct Undecided {
    failure: Box<Failure>,
    jobs: Vec<Job>,
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        // However the writer ends, even by a panic, no caller waits for it forever.
        let _last = Abandon(Arc::clone(&self.queue));
        let mut company = CommitDelay::default();
        while let Some(jobs) = self.queue.take(GROUP_JOBS) {
            let answered = jobs.len();
            self.meter.count(&jobs);
            for group in split(jobs) {
                self.write(group);
            }
            company.anticipate(answered, self.queue.len());
            self.checkpointer.after_group(&self.connection);
            company.wait(|| self.queue.len(), self.last_flush);
        }
        tracing::debug!(path = %self.path.display(), "the SQLite writer has ended");
    }

    /// Executes a group. Falls back to one job at a time when one of them breaks the common transaction.
    fn write(&mut self, jobs: Vec<Job>) {
        if let Err(failure) = self.begin_and_merge() {
            return refuse_all(jobs, &failure.error);
        }
        match self.decide(jobs) {
            Ok((done, rest)) => {
                self.finish(done);
                if !rest.is_empty() {
                    self.write(rest);
                }
            }
            Err(Undecided { failure, jobs }) if failure.local => self.write_carefully(jobs),
            Err(Undecided { failure, jobs }) => {
                self.roll_back();
                if failure.error.kind == StoreErrorKind::Full && jobs.len() > 1 {
                    // A job that is too large for the remaining room must not keep out the smaller ones.
                    return jobs.into_iter().for_each(|job| self.write(vec![job]));
                }
                refuse_all(jobs, &failure.error);
            }
        }
    }

    /// Opens the transaction, waits for other processes, and detects whether they wrote.
    fn begin(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.busy_timeout;
        loop {
            match self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([])) {
                Ok(_) => break,
                Err(e) if error::is_busy(&e) && Instant::now() < deadline => std::thread::sleep(BUSY_PAUSE),
                Err(e) if error::is_busy(&e) => {
                    let detail = format!("another process held it for {:?}", self.busy_timeout);
                    return Err(Failure::new(
                        StoreErrorKind::Busy,
                        "waiting to write the SQLite database",
                        detail,
                    ));
                }
                Err(e) => return Err(e.into()),
            }
        }
        let noticed = self.identity.check().and_then(|()| self.notice_others());
        if noticed.is_err() {
            self.roll_back();
        }
        noticed
    }

    /// Opens the transaction and merges a slice of the tail first, while it holds nothing else that could be lost.
    fn begin_and_merge(&mut self) -> Result<(), Failure> {
        let events = self.session.written();
        self.begin()?;
        let Err(failure) = self.session.merge(&self.connection, &mut self.merger, events) else {
            return Ok(());
        };
        tracing::warn!(error = %failure.error, "the index of streams could not be merged; it is tried again later");
        self.roll_back();
        self.merger.failed();
        self.begin()
    }

    fn notice_others(&mut self) -> Result<(), Failure> {
        let version: i64 =
            self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version != self.data_version {
            self.data_version = version;
            self.meter.foreign.fetch_add(1, Ordering::Relaxed);
            self.session.reload(&self.connection)?;
            self.clock.advance_to(self.session.time.stored);
            if let Some(reason) = epoch::went_back(&self.session.known, &self.session.facts.counters) {
                self.begin_epoch(reason)?;
            }
            self.session.known = self.session.facts.counters;
            self.publish_epoch();
        }
        self.session.begun();
        Ok(())
    }

    /// Begins a new epoch in a separate transaction, and opens the next one.
    fn begin_epoch(&mut self, reason: &str) -> Result<HistoryCut, Failure> {
        let cut = epoch::begin(&self.connection, self.session.known.epoch, self.clock.now(), reason)?;
        self.connection.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
        self.merger.stop();
        self.session.reload(&self.connection)?;
        self.session.known = self.session.facts.counters;
        self.publish_epoch();
        Ok(cut)
    }

    /// Begins a new epoch inside the open transaction, after everything that was decided in it.
    fn declare_cut(
        &mut self,
        reason: &str,
        now: tidelock_core::clock::Timestamp,
    ) -> Result<HistoryCut, Failure> {
        self.session.flush(&self.connection)?;
        let cut = epoch::begin(&self.connection, self.session.known.epoch, now, reason)?;
        self.session.reload(&self.connection)?;
        Ok(cut)
    }

    fn publish_epoch(&self) {
        self.epoch.store(self.session.facts.counters.epoch.0, Ordering::Release);
    }

    /// Decides the jobs until the rows that they write become too heavy together; the others are left for the next
    /// group. On a failure it returns the jobs, so that they can be retried or refused.
    fn decide(&mut self, jobs: Vec<Job>) -> Result<Decided, Undecided> {
        let now = self.clock.now();
        self.session.time.now = now;
        // Claims come last: they see the work that the group's batches enqueued, and the rows are written once.
        let (batches, others): (Vec<Job>, Vec<Job>) =
            jobs.into_iter().partition(|job| matches!(job, Job::Apply(..)));
        let mut answers = Vec::with_capacity(batches.len() + others.len());
        let (mut failed, before) = (None, self.session.facts.weight());
        for job in batches.iter().chain(&others) {
            // A merge writes as much as the size of its document, which the batch does not show.
            if self.session.facts.weight().saturating_sub(before) > GROUP_BYTES {
                break;
            }
            match self.decide_one(job, now, false) {
                Ok(answer) => answers.push(answer),
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            }
        }
        if failed.is_none() {
            failed = self.session.flush(&self.connection).err();
        }
        let mut jobs: Vec<Job> = batches.into_iter().chain(others).collect();
        if let Some(failure) = failed {
            return Err(Undecided { failure: Box::new(failure), jobs });
        }
        let rest = jobs.split_off(answers.len());
        Ok((jobs.into_iter().zip(answers).filter_map(|(job, answer)| pair(job, answer)).collect(), rest))
    }

    fn decide_one(
        &mut self,
        job: &Job,
        now: tidelock_core::clock::Timestamp,
        carefully: bool,
    ) -> Result<JobReply, Failure> {
        Ok(match job {
            Job::Apply(batch, _) if carefully => JobReply::Apply(session::answer(
                self.session.apply_carefully(&self.connection, batch, now)?,
            )),
            Job::Apply(batch, _) => {
                JobReply::Apply(session::answer(self.session.apply(&self.connection, batch, now)?))
            }
            Job::Claim(claim, _) => JobReply::Claim(self.session.claim(&self.connection, claim, now)?),
            Job::Resolve(id, _) => JobReply::Resolve(self.session.resolve(&self.connection, *id, now)?),
            Job::Sweep(sweep, _) => JobReply::Sweep(self.session.sweep(&self.connection, sweep, now)?),
            Job::DeclareCut(reason, _) => JobReply::DeclareCut(self.declare_cut(reason, now)?),
        })
    }

    /// Executes one job at a time in the open transaction, each behind a savepoint and with its event ids looked up. A
    /// failure of one job does not affect the others.
    fn write_carefully(&mut self, jobs: Vec<Job>) {
        self.meter.careful.fetch_add(1, Ordering::Relaxed);
        self.roll_back();
        if let Err(failure) = self.begin() {
            return refuse_all(jobs, &failure.error);
        }
        let now = self.clock.now();
        self.session.time.now = now;
        let mut done = Vec::with_capacity(jobs.len());
        let mut rest = jobs.into_iter();
        while let Some(job) = rest.next() {
            match self.decide_behind_savepoint(&job, now) {
                Ok(answer) => done.extend(pair(job, answer)),
                Err(failure) if failure.local => refuse_all(vec![job], &failure.error),
                Err(failure) => {
                    self.roll_back();
                    refuse_all(std::iter::once(job).chain(rest).collect(), &failure.error);
                    return done.into_iter().for_each(|d| d.fail(&failure.error));
                }
            }
        }
        self.finish(done);
    }

    fn decide_behind_savepoint(
        &mut self,
        job: &Job,
        now: tidelock_core::clock::Timestamp,
    ) -> Result<JobReply, Failure> {
        self.connection.prepare_cached("SAVEPOINT one")?.execute([])?;
        let before = self.session.written();
        let decided = self.decide_one(job, now, true).and_then(|answer| {
            self.session.flush(&self.connection)?;
            Ok(answer)
        });
        if decided.is_err() {
            if self.connection.is_autocommit() {
                // SQLite has rolled back everything, as it does when the disk is full.
                return decided;
            }
            self.connection.prepare_cached("ROLLBACK TO one")?.execute([])?;
            self.session.unwrite(before);
            self.session.reload(&self.connection)?;
        }
        self.connection.prepare_cached("RELEASE one")?.execute([])?;
        decided
    }

    /// Flushes and replies. The replies go out only after the commit.
    fn finish(&mut self, done: Vec<Done>) {
        if let Err(e) = self.commit() {
            let unknown = error::commit_may_have_happened(&e);
            let failure = error::map("committing to the SQLite database", &e);
            self.roll_back();
            self.checkpointer.make_room(&self.connection);
            return done
                .into_iter()
                .for_each(|d| if unknown { d.unknown(&failure) } else { d.fail(&failure) });
        }
        self.meter.groups.fetch_add(1, Ordering::Relaxed);
        self.session.committed(&mut self.merger);
        self.publish_epoch();
        self.session.trim();
        let changed = done.iter().any(Done::changed);
        for job in done {
            job.answer();
        }
        if changed {
            self.watcher.hint();
        }
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        let begun = Instant::now();
        let deadline = begun + self.busy_timeout;
        let committed = loop {
            match self.connection.prepare_cached("COMMIT").and_then(|mut s| s.execute([])) {
                Err(e) if error::is_busy(&e) && Instant::now() < deadline => std::thread::sleep(BUSY_PAUSE),
                other => break other.map(drop),
            }
        };
        self.last_flush = begun.elapsed();
        committed
    }

    /// Rolls back the open transaction, and drops everything that was decided in it.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(e) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(error = %e, "a SQLite transaction could not be rolled back");
        }
        self.merger.stop();
        if let Err(failure) = self.session.reload(&self.connection) {
            tracing::error!(error = %failure.error, "the SQLite store cannot read its counters");
            // An impossible version makes the next group read them again.
            self.data_version = -1;
        }
    }
}

struct Abandon(Arc<Queue<Job>>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

enum JobReply {
    Apply(Result<Receipt, ApplyError>),
    Claim(Claimed),
    Resolve(Resolution),
    Sweep(Swept),
    DeclareCut(HistoryCut),
}

fn pair(job: Job, answer: JobReply) -> Option<Done> {
    match (job, answer) {
        (Job::Apply(batch, reply), JobReply::Apply(result)) => {
            drop(batch);
            Some(Done::Apply(reply, result))
        }
        (Job::Claim(_, reply), JobReply::Claim(claimed)) => Some(Done::Claim(reply, claimed)),
        (Job::Resolve(_, reply), JobReply::Resolve(resolution)) => Some(Done::Resolve(reply, resolution)),
        (Job::Sweep(_, reply), JobReply::Sweep(swept)) => Some(Done::Sweep(reply, swept)),
        (Job::DeclareCut(_, reply), JobReply::DeclareCut(cut)) => Some(Done::DeclareCut(reply, cut)),
        _ => None,
    }
}

impl Done {
    /// Returns whether to wake waiters. A claim without grants wakes none: claimers that find nothing would wake each
    /// other endlessly.
    fn changed(&self) -> bool {
        match self {
            Self::Apply(_, result) => result.is_ok(),
            Self::Claim(_, claimed) => !claimed.grants.is_empty(),
            Self::Resolve(..) => false,
            Self::Sweep(..) | Self::DeclareCut(..) => true,
        }
    }

    /// Sends the reply. A caller that went away does not receive it; the write remains.
    fn answer(self) {
        match self {
            Self::Apply(reply, result) => drop(reply.send(result)),
            Self::Claim(reply, claimed) => drop(reply.send(Ok(claimed))),
            Self::Resolve(reply, resolution) => drop(reply.send(Ok(resolution))),
            Self::Sweep(reply, swept) => drop(reply.send(Ok(swept))),
            Self::DeclareCut(reply, cut) => drop(reply.send(Ok(cut))),
        }
    }

    fn fail(self, error: &StoreError) {
        match self {
            // Neither a refusal nor a repetition is valid: both may have been decided on neighbours that were rolled
            // back. A repeated batch, however, may have been applied long ago.
            Self::Apply(reply, Ok(receipt)) if receipt.repeated => {
                drop(reply.send(Err(ApplyError::unknown(error.clone(), None))));
            }
            Self::Apply(reply, _) => drop(reply.send(Err(ApplyError::not_applied(error.clone())))),
            Self::Claim(reply, _) => drop(reply.send(Err(error.clone()))),
            Self::Resolve(reply, _) => drop(reply.send(Err(error.clone()))),
            Self::Sweep(reply, _) => drop(reply.send(Err(error.clone()))),
            Self::DeclareCut(reply, _) => drop(reply.send(Err(error.clone()))),
        }
    }

    fn unknown(self, error: &StoreError) {
        match self {
            Self::Apply(reply, Ok(_)) => drop(reply.send(Err(ApplyError::unknown(error.clone(), None)))),
            other => other.fail(error),
        }
    }
}

fn refuse_all(jobs: Vec<Job>, error: &StoreError) {
    for job in jobs {
        match job {
            Job::Apply(batch, reply) => {
                drop(reply.send(Err(ApplyError::not_decided(error.clone(), batch.id()))));
            }
            Job::Claim(_, reply) => drop(reply.send(Err(error.clone()))),
            Job::Resolve(_, reply) => drop(reply.send(Err(error.clone()))),
            Job::Sweep(_, reply) => drop(reply.send(Err(error.clone()))),
            Job::DeclareCut(_, reply) => drop(reply.send(Err(error.clone()))),
        }
    }
}

/// Splits the queued jobs into groups of bounded size.
fn split(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut groups = Vec::new();
    let mut group = Vec::with_capacity(jobs.len());
    let mut bytes = 0;
    for job in jobs {
        if let Job::Apply(batch, _) = &job {
            bytes += batch.bytes()
                + usize::try_from(batch.removes_at_most() * REMOVED_BYTES).unwrap_or(GROUP_BYTES);
        }
        group.push(job);
        if bytes >= GROUP_BYTES {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

//! The bounded job queue in front of the committers. Callers wait outside while it is full; a committer takes the jobs
//! that are queued.
//!
//! Two committers never work on the same row at once. A job whose rows are in flight waits, and so does every later job
//! that needs one of its rows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::HashSet;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

/// The queue is closed because the store was shut down.
#[derive(Debug)]
pub(crate) struct QueueClosed;

/// A job that can be queued.
pub(crate) trait Job {
    /// Returns numbers of the rows that the job needs. Two jobs with a number in common do not run at once.
    fn rows(&self) -> Vec<u64>;
    /// Returns the kind of the job. Jobs of one kind may share a transaction.
    fn kind(&self) -> Kind;
    /// Returns the share of a group that the job takes up.
    fn weight(&self) -> usize;
}

/// The kind of a job, which decides what it may share a transaction with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Batch,
    Claim,
    Alone,
}

/// The size limits of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) jobs: usize,
    pub(crate) weight: usize,
}

/// Jobs that were taken together, with their rows.
#[derive(Debug)]
pub(crate) struct Group<T> {
    pub(crate) jobs: Vec<T>,
    pub(crate) rows: Vec<u64>,
    kind: Kind,
}

/// How long an idle committer leaves batches to the busy one.
const TOO_LONG: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Waiting<T> {
    job: T,
    rows: Vec<u64>,
}

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<Waiting<T>>,
    under_way: HashSet<u64>,
    idle: usize,
    closed: bool,
    /// Whether one group of batches at a time is best.
    narrow: bool,
    /// Whether the last group had several jobs. The next group then probably has several as well.
    crowded: bool,
    batches_under_way: usize,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
    room: Semaphore,
    /// The number of jobs, readable without the lock.
    length: AtomicUsize,
}

impl<T: Job> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State {
            jobs: VecDeque::new(),
            under_way: HashSet::default(),
            idle: 0,
            closed: false,
            narrow: false,
            crowded: false,
            batches_under_way: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            room: Semaphore::new(capacity.max(1)),
            length: AtomicUsize::new(0),
        }
    }

    /// Adds a job, waiting while the queue is full.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits, the job is not queued.
    pub(crate) async fn push(&self, job: T) -> Result<(), QueueClosed> {
        self.room.acquire().await.map_err(|_| QueueClosed)?.forget();
        let rows = job.rows();
        let mut state = self.state.lock();
        if state.closed {
            return Err(QueueClosed);
        }
        state.jobs.push_back(Waiting { job, rows });
        self.length.store(state.jobs.len(), Ordering::Release);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Takes jobs that may share a transaction, and waits for the first one. `None` once the queue is closed and empty.
    pub(crate) async fn take(&self, most: Most) -> Option<Group<T>> {
        let mut patient = true;
        loop {
            let changed = self.changed.notified();
            let left;
            {
                let mut state = self.state.lock();
                if let Some(group) = state.take(most, patient) {
                    let more = !state.jobs.is_empty() && state.idle > 0;
                    self.length.store(state.jobs.len(), Ordering::Release);
                    drop(state);
                    self.room.add_permits(group.jobs.len());
                    if more {
                        self.changed.notify_one();
                    }
                    return Some(group);
                }
                if state.closed && state.jobs.is_empty() {
                    // Wakes the next committer that sleeps, so that it notices the close.
                    self.changed.notify_one();
                    return None;
                }
                state.idle += 1;
                left = state.narrow && state.batches_under_way > 0 && !state.jobs.is_empty();
            }
            if left {
                // A group that takes this long is not flushing but waiting for a lock, and other jobs need not wait for
                // it.
                patient = tokio::time::timeout(TOO_LONG, changed).await.is_ok();
            } else {
                changed.await;
                patient = true;
            }
            self.state.lock().idle -= 1;
        }
    }

    /// Reserves a place for one batch when no job waits, no other batch is in flight, and the last batch was alone.
    /// After a group of several, the first caller to return would use a flush for itself. Dropping the place releases
    /// its rows.
    pub(crate) fn place(&self, rows: Vec<u64>) -> Option<RowReservation<'_, T>> {
        let mut state = self.state.lock();
        let busy = state.closed || state.crowded || !state.jobs.is_empty() || state.batches_under_way > 0;
        if busy || rows.iter().any(|row| state.under_way.contains(row)) {
            return None;
        }
        state.batches_under_way += 1;
        state.under_way.extend(rows.iter().copied());
        Some(RowReservation { queue: self, rows })
    }

    /// Marks a group of `jobs` jobs as done and releases its rows. `narrow` says whether one group of batches at a time
    /// is best.
    pub(crate) fn finish(&self, group: &Group<T>, jobs: usize, narrow: bool) {
        {
            let mut state = self.state.lock();
            if group.kind == Kind::Batch {
                state.batches_under_way = state.batches_under_way.saturating_sub(1);
                state.narrow = narrow;
                state.crowded = jobs > 1;
            }
        }
        self.done(&group.rows);
    }

    /// Releases rows that were in flight.
    pub(crate) fn done(&self, rows: &[u64]) {
        let mut state = self.state.lock();
        for row in rows {
            state.under_way.remove(row);
        }
        let wake = state.idle > 0 && !state.jobs.is_empty();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Rejects new jobs. Committers still take the queued jobs.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Returns the number of jobs that wait.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Returns whether the queue was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

/// The reservation of a batch that runs without being queued.
pub(crate) struct RowReservation<'a, T: Job> {
    queue: &'a Queue<T>,
    rows: Vec<u64>,
}

impl<T: Job> Drop for RowReservation<'_, T> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.batches_under_way = state.batches_under_way.saturating_sub(1);
        drop(state);
        self.queue.done(&self.rows);
    }
}

impl<T: Job> State<T> {
    fn take(&mut self, most: Most, patient: bool) -> Option<Group<T>> {
        let leave_batches = patient && self.narrow && self.batches_under_way > 0;
        let mut group = Group { jobs: Vec::new(), rows: Vec::new(), kind: Kind::Alone };
        let mut passed: HashSet<u64> = HashSet::default();
        let mut kind = None;
        let mut weight = 0;
        let mut at = 0;
        while let Some(waiting) = self.jobs.get(at) {
            let (this, heavy) = (waiting.job.kind(), waiting.job.weight());
            let fits = group.jobs.is_empty() || (weight + heavy <= most.weight && this != Kind::Alone);
            if group.jobs.len() >= most.jobs || !fits || kind == Some(Kind::Alone) {
                break;
            }
            let taken = waiting.rows.iter().any(|row| self.under_way.contains(row) || passed.contains(row));
            let left = leave_batches && this == Kind::Batch;
            if taken || left || kind.is_some_and(|kind| kind != this) {
                passed.extend(waiting.rows.iter().copied());
                at += 1;
                continue;
            }
            let Some(waiting) = self.jobs.remove(at) else { break };
            kind = Some(this);
            weight += heavy;
            group.rows.extend(waiting.rows);
            group.jobs.push(waiting.job);
        }
        if group.jobs.is_empty() {
            return None;
        }
        group.kind = kind?;
        self.batches_under_way += usize::from(group.kind == Kind::Batch);
        self.under_way.extend(group.rows.iter().copied());
        Some(group)
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests fail by panicking")]
mod tests;

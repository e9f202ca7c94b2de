//! The bounded queue in front of the committers: callers wait outside when it is full, a committer takes what there is.
//!
//! Two committers never work on the same row at once: a job whose rows are under way waits, and so does every later job
//! that needs one of its rows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::HashSet;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

/// The queue is closed: the store was shut down.
#[derive(Debug)]
pub(crate) struct Closed;

/// Something that can be queued.
pub(crate) trait Job {
    /// Numbers of the rows that the job needs. Two jobs with a number in common do not run at once.
    fn rows(&self) -> Vec<u64>;
    /// What may share a transaction with it: jobs of one kind do.
    fn kind(&self) -> Kind;
    /// How much of a group it takes up.
    fn weight(&self) -> usize;
}

/// What a job may share a transaction with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Batch,
    Claim,
    Alone,
}

/// How large a group may become.
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

/// How long an idle committer leaves batches to the one that is busy.
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
    /// Whether the last group had several jobs: then the next one will, too.
    crowded: bool,
    batches_under_way: usize,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
    room: Semaphore,
    /// The number of jobs, for those who only look.
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
    /// Dropped while it waits, the job is not queued.
    pub(crate) async fn push(&self, job: T) -> Result<(), Closed> {
        self.room.acquire().await.map_err(|_| Closed)?.forget();
        let rows = job.rows();
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed);
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

    /// Takes jobs that may share a transaction, waiting for the first. `None` once the queue is closed and empty.
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
                    // The next committer that sleeps hears it from this one.
                    self.changed.notify_one();
                    return None;
                }
                state.idle += 1;
                left = state.narrow && state.batches_under_way > 0 && !state.jobs.is_empty();
            }
            if left {
                // A group that takes this long does not flush: it waits for somebody, and others need not wait for it.
                patient = tokio::time::timeout(TOO_LONG, changed).await.is_ok();
            } else {
                changed.await;
                patient = true;
            }
            self.state.lock().idle -= 1;
        }
    }

    /// A place for one batch, when nobody waits, no other batch is under way, and the last one was alone, too: the first
    /// that returns of a crowd would take a flush for itself. Its rows are free again when it is dropped.
    pub(crate) fn place(&self, rows: Vec<u64>) -> Option<Place<'_, T>> {
        let mut state = self.state.lock();
        let busy = state.closed || state.crowded || !state.jobs.is_empty() || state.batches_under_way > 0;
        if busy || rows.iter().any(|row| state.under_way.contains(row)) {
            return None;
        }
        state.batches_under_way += 1;
        state.under_way.extend(rows.iter().copied());
        Some(Place { queue: self, rows })
    }

    /// A group of that many jobs is done, and its rows are free again. `narrow` says whether one group of batches at a
    /// time is best.
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

    /// Rows that were under way are free again.
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

    /// Refuses new jobs. What is queued is still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Whether the queue was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

/// A batch that is carried out without having been queued.
pub(crate) struct Place<'a, T: Job> {
    queue: &'a Queue<T>,
    rows: Vec<u64>,
}

impl<T: Job> Drop for Place<'_, T> {
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

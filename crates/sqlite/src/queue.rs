//! The bounded job queue in front of the threads. Callers wait outside while it is full; a thread takes the jobs that
//! are queued.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Semaphore;

/// The queue is closed because the store was shut down.
#[derive(Debug)]
pub(crate) struct QueueClosed;

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<T>,
    closed: bool,
    /// The number of consumers that sleep and can be woken. While all of them work, pushing costs no system call.
    idle: usize,
}

/// A queue between tasks and the threads that serve them.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    room: Semaphore,
    /// The number of jobs, readable without the lock.
    length: AtomicUsize,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { jobs: VecDeque::new(), closed: false, idle: 0 };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
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
        let mut state = self.state.lock();
        if state.closed {
            return Err(QueueClosed);
        }
        state.jobs.push_back(job);
        self.length.store(state.jobs.len(), Ordering::Release);
        if state.idle > 0 {
            drop(state);
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Takes up to `most` jobs, and waits for the first one. `None` once the queue is closed and empty.
    pub(crate) fn take(&self, most: usize) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        while state.jobs.is_empty() {
            if state.closed {
                return None;
            }
            state.idle += 1;
            self.filled.wait(&mut state);
            state.idle -= 1;
        }
        let count = state.jobs.len().min(most);
        let jobs: Vec<T> = state.jobs.drain(..count).collect();
        self.length.store(state.jobs.len(), Ordering::Release);
        drop(state);
        self.room.add_permits(count);
        Some(jobs)
    }

    /// Returns the number of jobs that wait, without taking the lock.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    /// Rejects new jobs. Consumers still take the queued jobs.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.filled.notify_all();
    }

    /// Rejects new jobs and drops the queued ones, because no consumer remains.
    pub(crate) fn abandon(&self) {
        self.close();
        let left = std::mem::take(&mut self.state.lock().jobs);
        drop(left);
    }
}

#[cfg(test)]
mod tests;

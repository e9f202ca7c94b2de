//! Helpers for workflow cases: workers that poll often, counters of step executions, and gates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock_core::workflow::{Worker, WorkflowClient};
use tokio::sync::Semaphore;

use crate::Env;
use crate::conn::Conn;
use crate::reacting::LEASE;

/// Returns a worker as the cases run it. It polls often, because the clock of the store gives no hints.
pub(crate) fn worker(conn: &Conn) -> Worker {
    Worker::new(Arc::clone(&conn.0)).poll_interval(Duration::from_millis(5)).lease_ttl(LEASE)
}

/// Returns a worker that skips time while nothing happens.
pub(crate) fn skipping(env: &Env, conn: &Conn) -> Worker {
    worker(conn).skip_time(Arc::clone(&env.clock))
}

pub(crate) fn client(conn: &Conn) -> WorkflowClient {
    WorkflowClient::new(Arc::clone(&conn.0))
}

/// Counters by name.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<String, usize>>>);

impl Tally {
    pub(crate) fn add(&self, name: &str) {
        *self.0.lock().unwrap().entry(name.to_owned()).or_default() += 1;
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }

    pub(crate) fn of(&self, name: &str) -> usize {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> Vec<(String, usize)> {
        self.0.lock().unwrap().iter().map(|(name, count)| (name.clone(), *count)).collect()
    }
}

/// A gate that lets through the number of tasks for which it was opened.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(crate) async fn pass(&self) {
        self.0.acquire().await.unwrap().forget();
    }

    pub(crate) fn open(&self, times: usize) {
        self.0.add_permits(times);
    }
}

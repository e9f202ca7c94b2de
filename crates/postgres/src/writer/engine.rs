//! Only here: the shared state of all committers, and how they acquire and release connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use deadpool::managed::Object;
use tokio_util::task::TaskTracker;

use super::Job;
use crate::clock::Time;
use crate::connect::{self, Client, Pool};
use crate::db::Db;
use crate::epoch::Epochs;
use crate::error::{Failure, Meaning};
use crate::queue::Queue;
use crate::row_cache::RowCache;
use crate::sql::Sql;
use crate::unreadable::Unreadable;
use crate::watch::Hints;

/// How long a group waits for a row that another transaction holds before its batches get their own transactions.
const GROUP_LOCK: Duration = Duration::from_millis(250);
/// The first and the longest backoff before a reconnect.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The state that all committers share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) sql: Sql,
    pub(crate) queue: Queue<Job>,
    pub(crate) writers: Pool,
    pub(crate) warm: RowCache,
    pub(crate) time: Time,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) hints: Hints,
    pub(crate) meter: WriterCounters,
    /// Permits of jobs that run in their own transactions.
    pub(crate) alone: tokio::sync::Semaphore,
    /// Committers and jobs in their own transactions, so that closing can wait for them.
    pub(crate) tasks: TaskTracker,
    pub(crate) unreadable: Unreadable,
    pub(crate) prepared: bool,
    /// How long a job waits for a connection, for a lock and for a response.
    pub(crate) patience: Duration,
    /// Whether a single statement runs at read committed, so that a batch may be one.
    pub(crate) guesses: bool,
    /// The required `synchronous_commit` of each transaction, when the session does not have the store's settings.
    pub(crate) flush_setting: Option<&'static str>,
}

/// Counters of the work done.
#[derive(Debug, Default)]
pub(crate) struct WriterCounters {
    pub(crate) groups: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) isolated: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) reconnects: AtomicU64,
}

impl Engine {
    /// Wraps a connection for running statements.
    pub(crate) fn db<'a>(&self, client: &'a Client) -> Db<'a> {
        Db::Own { client, prepared: self.prepared }
    }

    /// Returns the lock timeout of a group, in milliseconds.
    pub(crate) fn group_lock_ms(&self) -> u128 {
        GROUP_LOCK.as_millis()
    }

    /// Returns a connection for writing. Reconnects until the patience is used up.
    pub(crate) async fn writer(&self, give_up: Instant) -> Result<Client, Failure> {
        let mut pause = PAUSE.0;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let failure = match tokio::time::timeout(left, self.writers.get()).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::unreachable(format!("no connection within {:?}", self.patience)),
            };
            self.meter.reconnects.fetch_add(1, Ordering::Relaxed);
            let pause_now = jittered(pause);
            if Instant::now() + pause_now >= give_up || self.queue.is_closed() || is_final(&failure) {
                return Err(failure);
            }
            tracing::warn!(error = %failure.error, "cannot connect to PostgreSQL; trying again");
            tokio::time::sleep(pause_now).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Waits for a response on a connection, with a time limit. A connection that stays silent longer is lost.
    pub(crate) async fn bounded<T>(
        &self,
        client: &Client,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.patience.saturating_add(Duration::from_secs(1));
        client.answer(limit, answer).await?
    }

    /// Discards a connection that failed, and clears the cache: the server may be another one now. Idle connections to
    /// a host that went silent are closed, so that they do not linger there when it comes back.
    pub(crate) fn lost(&self, client: Client) {
        drop(Object::take(client));
        self.writers.retain(|connection, _| connection.is_trusted());
        self.warm.clear();
        self.time.forget();
    }

    /// Rolls back an open transaction after a failure. A connection on which that fails is not used again.
    pub(crate) async fn roll_back(&self, client: Client, failure: &Failure) {
        if matches!(failure.meaning, Meaning::Lost | Meaning::Unsent) {
            self.lost(client);
            return;
        }
        let rolled_back = self.bounded(&client, self.db(&client).execute("ROLLBACK")).await;
        match rolled_back {
            Err(_) => self.lost(client),
            Ok(()) if failure.meaning == Meaning::Epoch => self.reconfirm(&client).await,
            Ok(()) => {}
        }
    }

    /// Asks the server for its epoch after the server rejected the one that this process knows.
    pub(crate) async fn reconfirm(&self, client: &Client) {
        let confirmed = self.bounded(client, self.epochs.confirm(client)).await;
        if let Err(Failure { error, .. }) = confirmed {
            tracing::warn!(%error, "epoch confirmation failed");
        }
        // Waiters must read again: their positions may belong to another epoch.
        self.hints.changed();
    }
}

/// Returns whether a retry cannot help because the server responds and rejects.
fn is_final(failure: &Failure) -> bool {
    connect::is_final(failure.error.kind)
}

/// Returns between half the pause and all of it, so that clients that were disconnected together do not reconnect
/// together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    tidelock_core::runtime::jitter::spread(pause, 0.5..1.0)
}

/// Sleeps before the next attempt, longer after each.
pub(crate) async fn pause(attempts: u32) {
    let pause = Duration::from_millis(1) * 2_u32.saturating_pow(attempts.min(8));
    tokio::time::sleep(jittered(pause)).await;
}

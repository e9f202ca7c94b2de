//! Only here: what all committers share, and how they come by connections and part with them.

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
use crate::sql::Sql;
use crate::unreadable::Unreadable;
use crate::warm::Warm;
use crate::watch::Hints;

/// How long a group waits for a row that somebody holds before its batches go their own ways.
const GROUP_LOCK: Duration = Duration::from_millis(250);
/// The first pause before connecting again, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// What all committers share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) sql: Sql,
    pub(crate) queue: Queue<Job>,
    pub(crate) writers: Pool,
    pub(crate) warm: Warm,
    pub(crate) time: Time,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) hints: Hints,
    pub(crate) meter: Meter,
    /// Turns of jobs that go their own way.
    pub(crate) alone: tokio::sync::Semaphore,
    /// Committers and jobs that go their own way, so that closing can wait for them.
    pub(crate) tasks: TaskTracker,
    pub(crate) unreadable: Unreadable,
    pub(crate) prepared: bool,
    /// How long a job waits for a connection, for a lock and for an answer.
    pub(crate) patience: Duration,
    /// Whether a statement on its own runs at read committed, so that a batch may be one.
    pub(crate) guesses: bool,
    /// What `synchronous_commit` must be set to in each transaction, because the session is not the store's own.
    pub(crate) flush_setting: Option<&'static str>,
}

/// How much was done.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) groups: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) careful: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) reconnects: AtomicU64,
}

impl Engine {
    /// A connection as statements are run on it.
    pub(crate) fn db<'a>(&self, client: &'a Client) -> Db<'a> {
        Db::Own { client, prepared: self.prepared }
    }

    /// How long a group waits for a lock, in milliseconds.
    pub(crate) fn group_lock_ms(&self) -> u128 {
        GROUP_LOCK.as_millis()
    }

    /// A connection to write on, connecting again and again until patience ends.
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

    /// Waits for an answer on a connection, but not for ever: one that is silent for so long is lost.
    pub(crate) async fn bounded<T>(
        &self,
        client: &Client,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.patience.saturating_add(Duration::from_secs(1));
        client.answer(limit, answer).await?
    }

    /// Parts with a connection that failed, and forgets what was remembered: the server may be another one now. Idle connections
    /// to a host that went silent are closed, so that they do not linger there when it comes back.
    pub(crate) fn lost(&self, client: Client) {
        drop(Object::take(client));
        self.writers.retain(|connection, _| connection.is_trusted());
        self.warm.clear();
        self.time.forget();
    }

    /// Ends an open transaction after a failure; a connection on which that fails is not used again.
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

    /// Asks the server for its epoch after it refused the one that this process knows.
    pub(crate) async fn reconfirm(&self, client: &Client) {
        let confirmed = self.bounded(client, self.epochs.confirm(client)).await;
        if let Err(Failure { error, .. }) = confirmed {
            tracing::warn!(%error, "epoch confirmation failed");
        }
        // Sleepers look for themselves: their positions may be of another epoch.
        self.hints.changed();
    }
}

/// Whether trying again cannot help: the server answers, and says no.
fn is_final(failure: &Failure) -> bool {
    connect::is_final(failure.error.kind)
}

/// Between half the pause and all of it, so that those who were cut off together do not come back together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    tidelock_core::runtime::jitter::spread(pause, 0.5..1.0)
}

/// A moment before the next attempt, longer after each.
pub(crate) async fn pause(attempts: u32) {
    let pause = Duration::from_millis(1) * 2_u32.saturating_pow(attempts.min(8));
    tokio::time::sleep(jittered(pause)).await;
}

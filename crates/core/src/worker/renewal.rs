//! Lease renewal: every third of the lease time, until the lease is lost or released.
//!
//! One thread renews the leases and does nothing else, and their tokens fire there in time. Another one acquires, waits and
//! releases, and renews the places in wait queues. Thousands of waiters, or a store whose futures block their thread, never
//! delay the renewal of a lease. If the process dies, its leases expire in the store.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use super::local_lease::{LocalLease, LostReason};
use super::local_notify;
use crate::key::Key;
use crate::process::{self, PerProcess};
use crate::runtime::background::Background;
use crate::runtime::jitter::spread;
use crate::store::{ApplyError, Batch, Refusal, SharedStore};
use crate::telemetry::WORKER;

static RENEWAL: Background = Background::new("tidelock-leases");
/// The thread that acquires, waits and releases.
pub(crate) static TASKS: Background = Background::new("tidelock-lease-tasks");
/// The renewer of the leases of this process.
pub(crate) static LEASES: PerProcess<Arc<Renewer>> = PerProcess::new(|| Renewer::new(&RENEWAL));

/// The failure to start a background thread.
#[derive(Debug, Error)]
#[error("cannot start a background thread: {0}")]
pub(crate) struct NoThread(#[from] std::io::Error);

/// A set of leases that one thread renews.
pub(crate) struct Renewer {
    thread: &'static Background,
    young: Mutex<Young>,
    earlier: Notify,
}

/// Leases before their first renewal, by its time. Most are released before, and cost no task.
struct Young {
    leases: BTreeMap<(Instant, u64), Weak<LocalLease>>,
    count: u64,
    /// Whether the task that renews them has started.
    watched: bool,
}

impl Renewer {
    pub(crate) fn new(thread: &'static Background) -> Arc<Self> {
        let young = Young { leases: BTreeMap::new(), count: 0, watched: false };
        Arc::new(Self { thread, young: Mutex::new(young), earlier: Notify::new() })
    }

    /// Renews a lease from now on, first after a third of its time.
    pub(super) fn adopt(self: &Arc<Self>, kept: &Arc<LocalLease>) -> Result<(), NoThread> {
        let due = process::now() + jittered(kept.ttl() / 3);
        let mut young = self.young.lock();
        if !young.watched {
            drop(self.thread.spawn(Arc::clone(self).watch_over())?);
            young.watched = true;
        }
        let earliest = young.leases.first_key_value().is_none_or(|((first, _), _)| due < *first);
        young.count += 1;
        let key = (due, young.count);
        young.leases.insert(key, Arc::downgrade(kept));
        drop(young);
        if earliest {
            self.earlier.notify_one();
        }
        kept.adopted(key);
        Ok(())
    }

    /// Removes a lease that was released before its first renewal.
    pub(super) fn disown(&self, key: (Instant, u64)) {
        self.young.lock().leases.remove(&key);
    }

    /// Starts a task for each lease at its first renewal.
    async fn watch_over(self: Arc<Self>) {
        loop {
            let (grown, next) = {
                let mut young = self.young.lock();
                let later = young.leases.split_off(&(process::now(), u64::MAX));
                let grown = std::mem::replace(&mut young.leases, later);
                (grown, young.leases.first_key_value().map(|((due, _), _)| *due))
            };
            for kept in grown.into_values().filter_map(|kept| kept.upgrade()) {
                process::spawn(keep(kept));
            }
            match next {
                None => self.earlier.notified().await,
                Some(due) => tokio::select! {
                    biased;
                    () = self.earlier.notified() => {}
                    () = sleep_until(due.into()) => {}
                },
            }
        }
    }
}

impl fmt::Debug for Renewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewer").finish_non_exhaustive()
    }
}

/// Renews a lease until it is lost or released.
async fn keep(kept: Arc<LocalLease>) {
    // Dropped on every return and on panic: a lease without renewal is lost.
    let _last = LoseLast(Arc::clone(&kept));
    while !kept.token().is_cancelled() {
        if let Err(reason) = renew(&kept).await {
            kept.lose(reason);
            return;
        }
        tokio::select! {
            biased;
            () = kept.token().cancelled() => return,
            () = sleep(jittered(kept.ttl() / 3)) => {}
        }
    }
}

struct LoseLast(Arc<LocalLease>);

impl Drop for LoseLast {
    fn drop(&mut self) {
        self.0.lose(LostReason::CouldNotRenew { error: "the thread that keeps leases failed".to_owned() });
    }
}

/// Renews once, with retries until the holder's deadline.
async fn renew(kept: &LocalLease) -> Result<(), LostReason> {
    let mut met = None;
    loop {
        // A process that was suspended arrives late: it must not renew a lease that it has given up.
        if kept.is_over() {
            return Err(met.map_or_else(LostReason::too_late, |error| LostReason::CouldNotRenew { error }));
        }
        let attempt = timeout(kept.ttl() / 3, attempt(kept));
        tokio::select! {
            biased;
            () = kept.token().cancelled() => return Ok(()),
            () = sleep_until(kept.deadline().into()) => {
                met.get_or_insert_with(|| "the store did not answer".to_owned());
                continue;
            }
            attempt = attempt => match attempt {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Failed::Lost(reason))) => return Err(reason),
                Ok(Err(Failed::ForNow(error))) => met = Some(error),
                Err(_) => met = Some("the store did not answer".to_owned()),
            },
        }
        tracing::debug!(target: WORKER, lease = %kept.lease().key, error = met, "lease renewal failed");
        let pause = jittered((kept.ttl() / 20).clamp(Duration::from_millis(5), Duration::from_secs(1)));
        sleep_until((process::now() + pause).min(kept.deadline()).into()).await;
    }
}

/// The failure of one renewal attempt.
enum Failed {
    ForNow(String),
    Lost(LostReason),
}

async fn attempt(kept: &LocalLease) -> Result<(), Failed> {
    let sent = process::now();
    let renewal = Batch::new().renew(kept.lease(), kept.ttl());
    let receipt = kept.store().apply(renewal).await.map_err(|error| match error {
        ApplyError::Refused(refusal) => match *refusal {
            Refusal::Fenced { holder, .. } => Failed::Lost(LostReason::of(&holder)),
            other => Failed::Lost(LostReason::CouldNotRenew { error: other.to_string() }),
        },
        ApplyError::Store { error, .. } => Failed::ForNow(error.to_string()),
    })?;
    // A store may use an estimate of its clock that is a little behind. The remaining time counts by the clock that decides
    // expiry for other workers, read after the renewal.
    let asked = process::now();
    let now = kept.store().now().await.map_err(|error| Failed::ForNow(error.to_string()))?;
    let left = receipt.at.after(kept.ttl()).since(now);
    kept.renewed(sent, asked, left);
    Ok(())
}

/// Applies a batch that releases a lease. Returns the first failure at once, and retries in the background until the lease
/// would have expired.
pub(crate) async fn apply_release(
    store: SharedStore,
    row: Key,
    batch: Batch,
    within: Duration,
) -> Result<(), ApplyError> {
    let answer = store.apply(batch.clone()).await;
    local_notify::notify(&row);
    match answer {
        Ok(_) => Ok(()),
        Err(ApplyError::Refused(refusal)) => Err(ApplyError::Refused(refusal)),
        Err(failed) => {
            drop(TASKS.spawn(settle_later(store, row, batch, process::now() + within)));
            Err(failed)
        }
    }
}

async fn settle_later(store: SharedStore, row: Key, batch: Batch, until: Instant) {
    let mut pause = Duration::from_millis(20);
    while process::now() < until {
        sleep(jittered(pause)).await;
        match store.apply(batch.clone()).await {
            Ok(_) | Err(ApplyError::Refused(_)) => return local_notify::notify(&row),
            Err(error) => tracing::debug!(target: WORKER, %error, "lease release failed"),
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Varies a duration by up to a tenth, so that leases acquired together are not renewed together.
fn jittered(duration: Duration) -> Duration {
    spread(duration, 0.9..1.1)
}

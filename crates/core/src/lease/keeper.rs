//! Renewal of leases: every third of their time, until they are lost or released.
//!
//! The leases that are held are renewed on a thread that does nothing else, and their tokens fire there in time. Places in
//! lines are renewed on the thread of the waiters: however many there are, they never delay a lease.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use super::background::{RENEWAL, TASKS, no_thread};
use super::error::{LeaseError, LostReason};
use super::kept::Kept;
use super::signal;
use crate::key::Key;
use crate::runtime::background::Background;
use crate::runtime::jitter::spread;
use crate::store::{ApplyError, Batch, Refusal, SharedStore};

/// Renews what this process holds.
pub(super) static LEASES: Renewer = Renewer::new(&RENEWAL);
/// Renews the places of this process in lines.
pub(super) static PLACES: Renewer = Renewer::new(&TASKS);

/// Renews leases on one thread.
pub(super) struct Renewer {
    thread: &'static Background,
    young: Mutex<Young>,
    earlier: Notify,
}

/// Leases that are not to be renewed yet, by when that must be. Most are released before: they cost no task.
struct Young {
    leases: BTreeMap<(Instant, u64), Weak<Kept>>,
    count: u64,
    /// Whether the task that watches over them was started.
    watched: bool,
}

impl Renewer {
    const fn new(thread: &'static Background) -> Self {
        let young = Young { leases: BTreeMap::new(), count: 0, watched: false };
        Self { thread, young: Mutex::new(young), earlier: Notify::const_new() }
    }

    /// Renews a lease from now on, first when a third of its time is over, if it is still held then.
    pub(super) fn adopt(&'static self, kept: &Arc<Kept>) -> Result<(), LeaseError> {
        let due = Instant::now() + jittered(kept.ttl() / 3);
        let mut young = self.young.lock();
        if !young.watched {
            drop(self.thread.spawn(self.watch_over()).map_err(no_thread)?);
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

    /// Forgets a lease that was released before its first renewal.
    pub(super) fn disown(&self, key: (Instant, u64)) {
        self.young.lock().leases.remove(&key);
    }

    /// Gives leases a task of their own when it is time to renew them.
    async fn watch_over(&'static self) {
        loop {
            let (grown, next) = {
                let mut young = self.young.lock();
                let later = young.leases.split_off(&(Instant::now(), u64::MAX));
                let grown = std::mem::replace(&mut young.leases, later);
                (grown, young.leases.first_key_value().map(|((due, _), _)| *due))
            };
            for kept in grown.into_values().filter_map(|kept| kept.upgrade()) {
                tokio::spawn(keep(kept));
            }
            match next {
                None => self.earlier.notified().await,
                Some(due) => tokio::select! {
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

/// Renews a lease until it is lost or let go.
async fn keep(kept: Arc<Kept>) {
    // Dropped on every way out, by panic too: a lease that nobody renews is lost.
    let _last = LoseLast(Arc::clone(&kept));
    while !kept.token().is_cancelled() {
        if let Err(reason) = renew(&kept).await {
            kept.lose(reason);
            return;
        }
        tokio::select! {
            () = kept.token().cancelled() => return,
            () = sleep(jittered(kept.ttl() / 3)) => {}
        }
    }
}

struct LoseLast(Arc<Kept>);

impl Drop for LoseLast {
    fn drop(&mut self) {
        self.0.lose(LostReason::CouldNotRenew { error: "the thread that keeps leases failed".to_owned() });
    }
}

/// Renews once, trying again until the holder's time is over.
async fn renew(kept: &Kept) -> Result<(), LostReason> {
    let mut met = None;
    loop {
        // A process that was stopped comes here late: it must not renew what it has given up.
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
        tracing::debug!(lease = %kept.lease().key, error = met, "a lease was not renewed yet");
        let pause = jittered((kept.ttl() / 20).clamp(Duration::from_millis(5), Duration::from_secs(1)));
        sleep_until((Instant::now() + pause).min(kept.deadline()).into()).await;
    }
}

/// Why one attempt to renew did not succeed.
enum Failed {
    ForNow(String),
    Lost(LostReason),
}

async fn attempt(kept: &Kept) -> Result<(), Failed> {
    let sent = Instant::now();
    let renewal = Batch::new().renew(kept.lease(), kept.ttl());
    let receipt = kept.store().apply(renewal).await.map_err(|error| match error {
        ApplyError::Refused(refusal) => match *refusal {
            Refusal::Fenced { holder, .. } => Failed::Lost(LostReason::of(&holder)),
            other => Failed::Lost(LostReason::CouldNotRenew { error: other.to_string() }),
        },
        ApplyError::Store { error, .. } => Failed::ForNow(error.to_string()),
    })?;
    // A store may go by a guess of its clock that is a little behind. What counts is how long the lease has left by
    // the clock that others are judged by, read after the renewal.
    let asked = Instant::now();
    let now = kept.store().now().await.map_err(|error| Failed::ForNow(error.to_string()))?;
    let left = receipt.at.after(kept.ttl()).since(now);
    kept.renewed(sent, asked, left);
    Ok(())
}

/// Applies a batch that ends something. Returns the first failure at once, and retries in the background while the store
/// fails, until it would have ended by itself.
pub(crate) async fn settle(
    store: SharedStore,
    row: Key,
    batch: Batch,
    within: Duration,
) -> Result<(), ApplyError> {
    let answer = store.apply(batch.clone()).await;
    signal::changed(&row);
    match answer {
        Ok(_) => Ok(()),
        Err(ApplyError::Refused(refusal)) => Err(ApplyError::Refused(refusal)),
        Err(failed) => {
            drop(TASKS.spawn(settle_later(store, row, batch, Instant::now() + within)));
            Err(failed)
        }
    }
}

async fn settle_later(store: SharedStore, row: Key, batch: Batch, until: Instant) {
    let mut pause = Duration::from_millis(20);
    while Instant::now() < until {
        sleep(jittered(pause)).await;
        match store.apply(batch.clone()).await {
            Ok(_) | Err(ApplyError::Refused(_)) => return signal::changed(&row),
            Err(error) => tracing::debug!(%error, "the end of a lease was not written yet"),
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// A duration that differs by up to a tenth, so that leases taken together are not renewed together.
fn jittered(duration: Duration) -> Duration {
    spread(duration, 0.9..1.1)
}

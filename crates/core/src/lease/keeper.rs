//! The one thread of a process that keeps its leases: it renews them, fires their tokens, and waits in lines.
//!
//! The thread has a runtime of its own, so a program whose executor is blocked keeps its leases, and a token fires in
//! time. It starts with the first lease and sleeps while there is nothing to keep. A store whose futures block their
//! thread would block this one, too.
//!
//! If the process dies, the thread dies with it, and what it kept ends in the store by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

use super::error::{LeaseError, LostReason};
use super::kept::Kept;
use super::signal;
use crate::key::Key;
use crate::random::spread;
use crate::store::{ApplyError, Batch, Refusal, SharedStore};

static KEEPER: Mutex<Option<Handle>> = Mutex::new(None);

/// Runs something on the keeper's thread, starting it where needed. The work goes on when the handle is dropped; its
/// output is then dropped as well.
pub(super) fn spawn<F>(work: F) -> Result<JoinHandle<F::Output>, LeaseError>
where
    F: Future<Output: Send> + Send + 'static,
{
    Ok(handle()?.spawn(work))
}

/// Runs something on the keeper's thread and waits for its answer.
pub(crate) async fn done<F>(work: F) -> Result<F::Output, LeaseError>
where
    F: Future<Output: Send> + Send + 'static,
{
    spawn(work)?.await.map_err(|ended| LeaseError::NoKeeper { reason: ended.to_string() })
}

fn handle() -> Result<Handle, LeaseError> {
    let mut keeper = KEEPER.lock();
    if let Some(handle) = keeper.as_ref() {
        return Ok(handle.clone());
    }
    let failed = |e: std::io::Error| LeaseError::NoKeeper { reason: e.to_string() };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("tidelock-leases".to_owned())
        .spawn(move || runtime.block_on(watch_over()))
        .map_err(failed)?;
    *keeper = Some(handle.clone());
    Ok(handle)
}

/// Leases that are not to be renewed yet, by when that must be. Most are let go before: they cost no task.
#[derive(Debug)]
struct Young {
    leases: BTreeMap<(Instant, u64), Weak<Kept>>,
    count: u64,
}

static YOUNG: Mutex<Young> = Mutex::new(Young { leases: BTreeMap::new(), count: 0 });
static EARLIER: Notify = Notify::const_new();

/// Keeps a lease from now on: it is renewed when a third of its time is over, if anybody still holds it then.
pub(super) fn adopt(kept: &Arc<Kept>) -> Result<(), LeaseError> {
    handle()?;
    let due = Instant::now() + jittered(kept.ttl() / 3);
    let mut young = YOUNG.lock();
    let earliest = young.leases.first_key_value().is_none_or(|((first, _), _)| due < *first);
    young.count += 1;
    let key = (due, young.count);
    young.leases.insert(key, Arc::downgrade(kept));
    drop(young);
    if earliest {
        EARLIER.notify_one();
    }
    kept.adopted(key);
    Ok(())
}

/// A lease that is let go before it was renewed for the first time.
pub(super) fn disown(key: (Instant, u64)) {
    YOUNG.lock().leases.remove(&key);
}

/// Gives leases a task of their own when it is time to renew them.
async fn watch_over() {
    loop {
        let (grown, next) = {
            let mut young = YOUNG.lock();
            let later = young.leases.split_off(&(Instant::now(), u64::MAX));
            let grown = std::mem::replace(&mut young.leases, later);
            (grown, young.leases.first_key_value().map(|((due, _), _)| *due))
        };
        for kept in grown.into_values().filter_map(|kept| kept.upgrade()) {
            tokio::spawn(keep(kept));
        }
        match next {
            None => EARLIER.notified().await,
            Some(due) => tokio::select! {
                () = EARLIER.notified() => {}
                () = sleep_until(due.into()) => {}
            },
        }
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

/// Applies a batch that ends something, again and again while the store fails, until it would have ended by itself.
/// Answers the first failure at once.
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
            drop(spawn(settle_later(store, batch, Instant::now() + within)));
            Err(failed)
        }
    }
}

async fn settle_later(store: SharedStore, batch: Batch, until: Instant) {
    let mut pause = Duration::from_millis(20);
    while Instant::now() < until {
        sleep(jittered(pause)).await;
        match store.apply(batch.clone()).await {
            Ok(_) | Err(ApplyError::Refused(_)) => return,
            Err(error) => tracing::debug!(%error, "the end of a lease was not written yet"),
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// A duration that differs by up to a tenth, so that leases taken together are not renewed together.
fn jittered(duration: Duration) -> Duration {
    spread(duration, 0.9..1.1)
}

//! Wait queue of a lease: one row per waiter, in the order of the rows' creation over all processes.
//!
//! A waiter polls only the place in front of it, and claims the lease when there is none. A place is itself a lease: it
//! is renewed while its owner waits, and expires when the owner dies. The waiter behind an expired place removes it.
//!
//! A waiter behind a place of its own process does not poll: it is notified when that place ends. So only one waiter of
//! each process polls the store. Every step retries a store that fails transiently.
//!
//! The queue does not decide who owns the lease. If two waiters both believe to be first, both claim the lease, and the
//! store grants it to one.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::acquire::{AcquireRequest, take};
use super::background::no_thread;
use super::error::LeaseError;
use super::guard::LeaseGuard;
use super::view::LeaseWaiter;
use super::{background, keys, local_queue};
use crate::clock::Timestamp;
use crate::key::Key;
use crate::process::{self, PerProcess};
use crate::runtime::jitter::spread;
use crate::store::{
    ApplyError, Batch, Claim, ClaimDenied, Get, LeaseRow, Operation, Page, Selection, SharedStore, Watch,
    WorkFilter, WorkRow,
};
use crate::worker::{LocalLease, LostReason, Renewer, TASKS, apply_release, idle, local_notify};

/// Maximum number of rows per page when a queue is read. The first page is small, because most queues are short.
const PAGES: [usize; 2] = [16, 500];
/// Maximum interval between two polls, in case all hints are missed.
const POLL: Duration = Duration::from_secs(1);
/// The same behind a place of this process, whose end is notified.
const LOCAL_POLL: Duration = Duration::from_secs(10);
/// Number of places in front that a waiter remembers by key.
const NEAR: usize = 8;
/// Minimum interval between two polls of the first waiter, however many hints arrive. Waiters behind it poll less
/// often.
const BREATH: Duration = Duration::from_millis(10);
/// Upper bound of that interval, for waiters far behind.
const LONG_BREATH: Duration = Duration::from_millis(200);
/// Bounds of the time that a place lasts without renewal. Waiters wait that long for a dead one in front.
const PLACE_TTL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// The renewer of the places of this process in wait queues.
static PLACES: PerProcess<Arc<Renewer>> = PerProcess::new(|| Renewer::new(&TASKS));
/// Lease time of a waiter that removes an expired place.
const BURIAL: Duration = Duration::from_secs(5);

/// Reads the rows of a queue in order, expired ones included, and the store's clock. Stops paging once a row is
/// `enough`.
async fn rows(
    store: &SharedStore,
    key: &Key,
    enough: impl Fn(&WorkRow, Timestamp) -> bool,
) -> Result<(Vec<WorkRow>, Timestamp), LeaseError> {
    let (mut after, line) = keys::line_of(key)?;
    let [mut limit, next] = PAGES;
    let mut all = Vec::new();
    // Without a filter, a page ends at its row limit, whatever the number of other rows in the table.
    let filter = WorkFilter::default();
    let now = loop {
        let page = store.works(&filter, Page::after(&after, limit)).await?;
        let found = page.rows.len();
        let mine: Vec<WorkRow> = page.rows.into_iter().filter(|row| line.contains(&row.key)).collect();
        let ends_here = mine.len() < found || mine.iter().any(|row| enough(row, page.now));
        all.extend(mine);
        match page.next {
            Some(more) if !ends_here => (after, limit) = (more, next),
            _ => break page.now,
        }
    };
    all.sort_by_key(|row| row.seq);
    Ok((all, now))
}

/// Returns the live waiters of a lease, in order, and the store's clock.
pub(super) async fn alive(
    store: &SharedStore,
    key: &Key,
) -> Result<(Vec<LeaseWaiter>, Timestamp), LeaseError> {
    let (rows, now) = rows(store, key, |_, _| false).await?;
    let held = rows.into_iter().filter_map(|row| row.lease).filter(|lease| !lease.until.has_come(now));
    Ok((held.map(|LeaseRow { owner, since, .. }| LeaseWaiter { owner, since }).collect(), now))
}

/// Returns whether the lease has any live waiter.
async fn is_awaited(store: &SharedStore, key: &Key) -> Result<bool, LeaseError> {
    let is_alive = |row: &WorkRow, now| row.lease.as_ref().is_some_and(|lease| !lease.until.has_come(now));
    let (rows, now) = rows(store, key, is_alive).await?;
    Ok(rows.iter().any(|row| is_alive(row, now)))
}

/// Waits until the lease is granted, the deadline passes, or the caller is dropped.
pub(super) async fn wait(
    ask: Arc<AcquireRequest>,
    deadline: Option<Instant>,
    gone: CancellationToken,
) -> Result<LeaseGuard, LeaseError> {
    let begun = process::now();
    let timed_out = || LeaseError::TimedOut { key: ask.key.clone(), waited: process::elapsed(begun) };
    let late = async {
        match deadline {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    // Operations in flight clean up after this returns: dropping a place leaves the queue, and dropping a grant
    // releases it.
    let answer = tokio::select! {
        biased;
        () = gone.cancelled() => Err(timed_out()),
        () = late => Err(timed_out()),
        answer = granted(&ask) => answer,
    };
    let late = deadline.is_some_and(|deadline| process::now() >= deadline);
    if late && answer.is_ok() { Err(timed_out()) } else { answer }
}

async fn granted(ask: &Arc<AcquireRequest>) -> Result<LeaseGuard, LeaseError> {
    if let Some(held) = patiently(ask, || at_once(ask)).await? {
        return Ok(held);
    }
    loop {
        // All attempts use the same key, so that one whose reply was lost leaves no second place behind.
        let key = keys::place(&ask.key)?;
        let place = patiently(ask, || join(ask, &key)).await?;
        if let Some(held) = stand(ask, &place).await? {
            place.leave().await;
            return Ok(held);
        }
        tracing::debug!(lease = %ask.key, "place in line lost");
    }
}

/// Runs one step of a wait, and retries it with backoff while the store fails transiently.
async fn patiently<T, F>(ask: &AcquireRequest, step: impl Fn() -> F) -> Result<T, LeaseError>
where
    F: Future<Output = Result<T, LeaseError>>,
{
    loop {
        let error = match step().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let Some(failure) = error.transient() else { return Err(error) };
        tracing::debug!(lease = %ask.key, error = %failure, "wait step failed");
        sleep_until((process::now() + idle::backoff(failure, POLL)).into()).await;
    }
}

/// Acquires the lease if it is free and has no waiters.
async fn at_once(ask: &Arc<AcquireRequest>) -> Result<Option<LeaseGuard>, LeaseError> {
    if !is_awaited(&ask.store, &ask.key).await? {
        match take(ask).await? {
            Ok(held) => return Ok(Some(held)),
            Err(holder) => ask.not_mine(&holder)?,
        }
    } else if let Some(holder) = ask.read_row().await?.0.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
    }
    Ok(None)
}

/// A place in the wait queue. Dropping it leaves the queue.
struct QueueTicket {
    kept: Arc<LocalLease>,
    seq: u64,
}

/// Joins the queue. The claim runs to its end even if the waiter is dropped; the place is then left again.
async fn join(ask: &Arc<AcquireRequest>, place: &Key) -> Result<QueueTicket, LeaseError> {
    background::run(claim_place(Arc::clone(ask), place.clone())).await?
}

async fn claim_place(ask: Arc<AcquireRequest>, key: Key) -> Result<QueueTicket, LeaseError> {
    let (shortest, longest) = PLACE_TTL;
    let (ttl, sent) = (ask.ttl.clamp(shortest, longest), process::now());
    let claimed = ask.store.claim(Claim::named(&ask.owner, &key, &keys::waits()?, ttl)).await?;
    let Some(grant) = claimed.grants.into_iter().next() else {
        return Err(LeaseError::NoKeeper { reason: "the store gave no place in the line".to_owned() });
    };
    let kept = LocalLease::start(&PLACES, &ask.store, grant.lease(), ttl, sent)?;
    local_queue::enter(&key, kept.token());
    Ok(QueueTicket { seq: grant.row.seq, kept })
}

fn removal(place: &Key) -> Batch {
    Batch::new().operate(Selection::Keys(vec![place.clone()]), Operation::Remove)
}

impl QueueTicket {
    /// Leaves the queue. Returns when other processes can see it, or after one failure. The removal is then retried in
    /// the background.
    async fn leave(self) {
        let gone = self.remove();
        if let Some(Ok(task)) = gone {
            drop(task.await);
        }
    }

    fn remove(&self) -> Option<Result<tokio::task::JoinHandle<()>, LeaseError>> {
        if self.kept.token().is_cancelled() && self.kept.lost() == Some(LostReason::Released) {
            return None;
        }
        self.kept.lose(LostReason::Released);
        local_queue::leave(&self.kept.lease().key);
        let (store, row) = (Arc::clone(self.kept.store()), self.kept.lease().key.clone());
        let settled = apply_release(store, row.clone(), removal(&row), self.kept.ttl());
        Some(TASKS.spawn(async move { drop(settled.await) }).map_err(no_thread))
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// Waits in the queue until the lease is granted. Returns `None` when the place was lost.
async fn stand(ask: &Arc<AcquireRequest>, place: &QueueTicket) -> Result<Option<LeaseGuard>, LeaseError> {
    let mut watch = ask.store.watch();
    let mut ahead = patiently(ask, || Ahead::of(ask, place)).await?;
    while place.kept.lost().is_none() {
        let looked = process::now();
        let awaited = ahead.awaited(ask).clone();
        let signal = local_notify::listen(&awaited);
        let mut signal = pin!(signal.notified());
        // From here on no change is missed, not even during the poll.
        signal.as_mut().enable();
        let mut next = looked + POLL;
        match acquire_if_first(ask, place, &mut ahead).await {
            Ok(Ok(held)) => return Ok(Some(held)),
            Ok(Err(left)) => next = next.min(process::now() + left),
            Err(error) => match error.transient() {
                None => return Err(error),
                Some(failure) => tracing::debug!(lease = %ask.key, error = %failure, "wait step failed"),
            },
        }
        if *ahead.awaited(ask) != awaited {
            continue;
        }
        let neighbour = ahead.near.back().and_then(local_queue::renewed_here);
        if neighbour.is_some() {
            next = looked + spread(LOCAL_POLL, 0.9..1.1);
        }
        let changed = async {
            match &neighbour {
                Some(place) => place.cancelled().await,
                None => hint(&mut watch, looked + ahead.breath()).await,
            }
        };
        tokio::select! {
            biased;
            () = place.kept.token().cancelled() => {}
            () = signal => {}
            () = sleep_until(next.into()) => {}
            () = changed => {}
        }
    }
    Ok(None)
}

/// The places in front of a waiter.
#[derive(Default)]
struct Ahead {
    /// The nearest places, nearest last.
    near: VecDeque<Key>,
    /// Number of places in front of those, as far as known.
    farther: usize,
    /// Whether there were places in front of those when the queue was read. If so, it is read again before the waiter
    /// counts as first.
    had_more: bool,
}

impl Ahead {
    async fn of(ask: &AcquireRequest, place: &QueueTicket) -> Result<Self, LeaseError> {
        let (rows, _) = rows(&ask.store, &ask.key, |_, _| false).await?;
        let before: Vec<Key> =
            rows.into_iter().filter(|row| row.seq < place.seq).map(|row| row.key).collect();
        let farther = before.len().saturating_sub(NEAR);
        let near = before.into_iter().skip(farther).collect();
        Ok(Self { near, farther, had_more: farther > 0 })
    }

    /// Returns the row whose change is awaited: the place directly in front, or the row of the lease.
    fn awaited<'a>(&'a self, ask: &'a AcquireRequest) -> &'a Key {
        self.near.back().unwrap_or(&ask.row)
    }

    /// Returns the minimum interval between two polls, however many hints arrive.
    fn breath(&self) -> Duration {
        let places = u32::try_from(self.near.len() + self.farther).unwrap_or(u32::MAX).saturating_add(1);
        BREATH.saturating_mul(places).min(LONG_BREATH)
    }
}

/// Acquires the lease if the waiter is first and the lease is free. Otherwise returns the minimum time until that can
/// change.
async fn acquire_if_first(
    ask: &Arc<AcquireRequest>,
    place: &QueueTicket,
    ahead: &mut Ahead,
) -> Result<Result<LeaseGuard, Duration>, LeaseError> {
    loop {
        if let Some(left) = behind(ask, ahead).await? {
            return Ok(Err(left));
        }
        if !ahead.had_more {
            return first(ask).await;
        }
        *ahead = Ahead::of(ask, place).await?;
    }
}

/// Waits for a hint, and then until `not_before`.
async fn hint(watch: &mut Watch, not_before: Instant) {
    if !watch.changed().await {
        // The store gives no more hints, but the waiter still polls.
        std::future::pending::<()>().await;
    }
    sleep_until(not_before.into()).await;
}

/// Drops the places in front that have ended. Returns the minimum remaining time of the place directly in front, if
/// there is one.
async fn behind(ask: &AcquireRequest, ahead: &mut Ahead) -> Result<Option<Duration>, LeaseError> {
    while let Some(front) = ahead.near.back() {
        if let Some(left) = left_of(ask, front).await? {
            // The places far in front only determine the poll interval.
            while let Some(first) = ahead.near.front().filter(|_| ahead.near.len() > 1)
                && ask.store.work(first).await?.is_none()
            {
                ahead.near.pop_front();
                ahead.farther = 0;
            }
            return Ok(Some(left));
        }
        ahead.near.pop_back();
    }
    Ok(None)
}

/// Returns the minimum remaining time of a place. Returns `None` when it does not exist, or had expired and was
/// removed.
async fn left_of(ask: &AcquireRequest, place: &Key) -> Result<Option<Duration>, LeaseError> {
    let mut found = ask.store.read(&[Get::Work(place.clone())]).await?;
    let now = found.now;
    let Some(row) = found.take_work(0) else { return Ok(None) };
    // A place leased by this owner is one that it began to remove.
    if let Some(lease) = row.lease.filter(|lease| lease.owner != ask.owner && !lease.until.has_come(now)) {
        return Ok(Some(lease.until.since(now)));
    }
    // Claiming the place first ensures that its owner has not resumed in between: only one of the two gets it.
    let claimed = ask.store.claim(Claim::existing(&ask.owner, place, BURIAL)).await?;
    match claimed.denied {
        Some(ClaimDenied::Held(lease)) => return Ok(Some(lease.until.since(claimed.now))),
        Some(ClaimDenied::NotFound) => return Ok(None),
        Some(ClaimDenied::Blocked(_)) | None => {}
    }
    match ask.store.apply(removal(place)).await {
        Ok(_) => Ok(None),
        Err(ApplyError::Store { error, .. }) => Err(LeaseError::Store(error)),
        Err(error) => Err(LeaseError::Write(Box::new(error))),
    }
}

/// Claims the lease as the first waiter, or returns the minimum time that it is still held. A read costs less than a
/// claim.
async fn first(ask: &Arc<AcquireRequest>) -> Result<Result<LeaseGuard, Duration>, LeaseError> {
    let (row, now) = ask.read_row().await?;
    if let Some(holder) = row.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
        if !holder.until.has_come(now) {
            return Ok(Err(holder.until.since(now)));
        }
    }
    match take(ask).await? {
        Ok(held) => Ok(Ok(held)),
        // Another process was faster. The next poll reads when its lease expires.
        Err(_) => Ok(Err(POLL)),
    }
}

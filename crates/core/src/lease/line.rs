//! The waiting line: a row for everybody who waits, in the order of the rows' creation over all processes.
//!
//! A waiter polls only the place in front of it, and claims the lease when there is none. A place is a lease itself: it is
//! renewed while its owner waits, and expires when that dies. The waiter behind an expired place removes it.
//!
//! A waiter behind a place of its own process does not poll: it is notified when that place ends. So the store is asked by
//! one waiter of each process, not by all of them. A store that fails for a while is waited out at every step.
//!
//! Nothing here decides who owns the lease. Two that stand first by mistake ask the store, and one of them gets it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::background::no_thread;
use super::error::LeaseError;
use super::guard::Held;
use super::take::{Ask, take};
use super::view::Waiter;
use super::{background, local_places, names};
use crate::clock::Timestamp;
use crate::key::Key;
use crate::runtime::jitter::spread;
use crate::store::{
    ApplyError, Batch, Claim, Denied, Get, LeaseRow, Operation, Page, Selection, SharedStore, Watch,
    WorkFilter, WorkRow,
};
use crate::worker::{LocalLease, LostReason, Renewer, TASKS, idle, local_notify, settle};

/// The most rows that a look at a line reads at once. The first look is small: a line mostly is.
const PAGES: [usize; 2] = [16, 500];
/// The longest time between two looks, should every hint be missed.
const POLL: Duration = Duration::from_secs(1);
/// The same behind a place of this process, whose end is notified.
const LOCAL_POLL: Duration = Duration::from_secs(10);
/// How many of the places in front a waiter remembers by name.
const NEAR: usize = 8;
/// The shortest time between two looks of the first in line, however busy the store is. Those behind look less often.
const BREATH: Duration = Duration::from_millis(10);
/// The shortest time between two looks of those far behind.
const LONG_BREATH: Duration = Duration::from_millis(200);
/// How long a place lasts without renewal: how long the others wait for one in front that died.
const PLACE_TTL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// The renewer of the places of this process in wait queues.
static PLACES: Renewer = Renewer::new(&TASKS);
/// How long whoever removes a place that has ended has for it.
const BURIAL: Duration = Duration::from_secs(5);

/// The rows of a line with the store's clock, in order, expired ones included. Reads no further page once there are `enough`.
async fn rows(
    store: &SharedStore,
    key: &Key,
    enough: impl Fn(&WorkRow, Timestamp) -> bool,
) -> Result<(Vec<WorkRow>, Timestamp), LeaseError> {
    let (mut after, line) = names::line_of(key)?;
    let [mut limit, next] = PAGES;
    let mut all = Vec::new();
    // Without a condition, a page ends after as many rows as it may have, however many others the table holds.
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

/// Who waits for a lease, in order, and the store's clock.
pub(super) async fn alive(store: &SharedStore, key: &Key) -> Result<(Vec<Waiter>, Timestamp), LeaseError> {
    let (rows, now) = rows(store, key, |_, _| false).await?;
    let held = rows.into_iter().filter_map(|row| row.lease).filter(|lease| !lease.until.has_come(now));
    Ok((held.map(|LeaseRow { owner, since, .. }| Waiter { owner, since }).collect(), now))
}

/// Whether the lease has any waiter.
async fn is_awaited(store: &SharedStore, key: &Key) -> Result<bool, LeaseError> {
    let is_alive = |row: &WorkRow, now| row.lease.as_ref().is_some_and(|lease| !lease.until.has_come(now));
    let (rows, now) = rows(store, key, is_alive).await?;
    Ok(rows.iter().any(|row| is_alive(row, now)))
}

/// Waits until the lease is granted, the deadline passes, or nobody wants it any more.
pub(super) async fn wait(
    ask: Arc<Ask>,
    deadline: Option<Instant>,
    gone: CancellationToken,
) -> Result<Held, LeaseError> {
    let begun = Instant::now();
    let timed_out = || LeaseError::TimedOut { key: ask.key.clone(), waited: begun.elapsed() };
    let late = async {
        match deadline {
            Some(deadline) => sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    // What is under way when this ends ends by itself: a place is left and a grant is released when it is dropped.
    let answer = tokio::select! {
        biased;
        () = gone.cancelled() => Err(timed_out()),
        () = late => Err(timed_out()),
        answer = granted(&ask) => answer,
    };
    let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if late && answer.is_ok() { Err(timed_out()) } else { answer }
}

async fn granted(ask: &Arc<Ask>) -> Result<Held, LeaseError> {
    if let Some(held) = patiently(ask, || at_once(ask)).await? {
        return Ok(held);
    }
    loop {
        // The same for every attempt: one whose reply was lost leaves no second place behind.
        let key = names::place(&ask.key)?;
        let place = patiently(ask, || join(ask, &key)).await?;
        if let Some(held) = stand(ask, &place).await? {
            place.leave().await;
            return Ok(held);
        }
        tracing::debug!(lease = %ask.key, "place in line lost");
    }
}

/// Runs one step of a wait, and again after a pause for as long as the store fails for a while.
async fn patiently<T, F>(ask: &Ask, step: impl Fn() -> F) -> Result<T, LeaseError>
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
        sleep_until((Instant::now() + idle::backoff(failure, POLL)).into()).await;
    }
}

/// The lease, if it is free and has no waiters.
async fn at_once(ask: &Arc<Ask>) -> Result<Option<Held>, LeaseError> {
    if !is_awaited(&ask.store, &ask.key).await? {
        match take(ask).await? {
            Ok(held) => return Ok(Some(held)),
            Err(holder) => ask.not_mine(&holder)?,
        }
    } else if let Some(holder) = ask.look().await?.0.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
    }
    Ok(None)
}

/// A place in the line. Dropping it leaves the line.
struct Place {
    kept: Arc<LocalLease>,
    seq: u64,
}

/// Joins the line. The claim runs to its end also when the waiter is dropped; the place is then left again.
async fn join(ask: &Arc<Ask>, place: &Key) -> Result<Place, LeaseError> {
    background::run(claim_place(Arc::clone(ask), place.clone())).await?
}

async fn claim_place(ask: Arc<Ask>, key: Key) -> Result<Place, LeaseError> {
    let (shortest, longest) = PLACE_TTL;
    let (ttl, sent) = (ask.ttl.clamp(shortest, longest), Instant::now());
    let claimed = ask.store.claim(Claim::named(&ask.owner, &key, &names::waits()?, ttl)).await?;
    let Some(grant) = claimed.grants.into_iter().next() else {
        return Err(LeaseError::NoKeeper { reason: "the store gave no place in the line".to_owned() });
    };
    let kept = LocalLease::start(&PLACES, &ask.store, grant.lease(), ttl, sent)?;
    local_places::enter(&key, kept.token());
    Ok(Place { seq: grant.row.seq, kept })
}

fn removal(place: &Key) -> Batch {
    Batch::new().operate(Selection::Keys(vec![place.clone()]), Operation::Remove)
}

impl Place {
    /// Leaves, and returns when others can see it, or after one failure: it is then tried again in the background.
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
        local_places::leave(&self.kept.lease().key);
        let (store, row) = (Arc::clone(self.kept.store()), self.kept.lease().key.clone());
        let settled = settle(store, row.clone(), removal(&row), self.kept.ttl());
        Some(TASKS.spawn(async move { drop(settled.await) }).map_err(no_thread))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// Stands in line until the lease is granted; `None` when the place was lost.
async fn stand(ask: &Arc<Ask>, place: &Place) -> Result<Option<Held>, LeaseError> {
    let mut watch = ask.store.watch();
    let mut ahead = patiently(ask, || Ahead::of(ask, place)).await?;
    while place.kept.lost().is_none() {
        let looked = Instant::now();
        let awaited = ahead.awaited(ask).clone();
        let signal = local_notify::listen(&awaited);
        let mut signal = pin!(signal.notified());
        // From here on, what changes is heard, even while this looks.
        signal.as_mut().enable();
        let mut next = looked + POLL;
        match look(ask, place, &mut ahead).await {
            Ok(Ok(held)) => return Ok(Some(held)),
            Ok(Err(left)) => next = next.min(Instant::now() + left),
            Err(error) => match error.transient() {
                None => return Err(error),
                Some(failure) => tracing::debug!(lease = %ask.key, error = %failure, "wait step failed"),
            },
        }
        if *ahead.awaited(ask) != awaited {
            continue;
        }
        let neighbour = ahead.near.back().and_then(local_places::renewed_here);
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
    /// The nearest, the nearest last.
    near: VecDeque<Key>,
    /// How many stand in front of those, as far as is known.
    farther: usize,
    /// Whether any stood in front of those when the line was read. Then it is read again before the waiter counts as first.
    had_more: bool,
}

impl Ahead {
    async fn of(ask: &Ask, place: &Place) -> Result<Self, LeaseError> {
        let (rows, _) = rows(&ask.store, &ask.key, |_, _| false).await?;
        let before: Vec<Key> =
            rows.into_iter().filter(|row| row.seq < place.seq).map(|row| row.key).collect();
        let farther = before.len().saturating_sub(NEAR);
        let near = before.into_iter().skip(farther).collect();
        Ok(Self { near, farther, had_more: farther > 0 })
    }

    /// The row whose change is awaited: the place right in front, or that of the lease.
    fn awaited<'a>(&'a self, ask: &'a Ask) -> &'a Key {
        self.near.back().unwrap_or(&ask.row)
    }

    /// How long to wait between two looks, however many hints come.
    fn breath(&self) -> Duration {
        let places = u32::try_from(self.near.len() + self.farther).unwrap_or(u32::MAX).saturating_add(1);
        BREATH.saturating_mul(places).min(LONG_BREATH)
    }
}

/// The lease, if this is the first in line and the lease can be had; otherwise how long that lasts at least.
async fn look(
    ask: &Arc<Ask>,
    place: &Place,
    ahead: &mut Ahead,
) -> Result<Result<Held, Duration>, LeaseError> {
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

/// Waits for a hint, and until it is time to look again.
async fn hint(watch: &mut Watch, not_before: Instant) {
    if !watch.changed().await {
        // The store gives no hints any more; there is still the poll.
        std::future::pending::<()>().await;
    }
    sleep_until(not_before.into()).await;
}

/// Forgets the places in front that are gone. Returns how long the place right in front lasts at least, if there is one.
async fn behind(ask: &Ask, ahead: &mut Ahead) -> Result<Option<Duration>, LeaseError> {
    while let Some(front) = ahead.near.back() {
        if let Some(left) = left_of(ask, front).await? {
            // The places far in front only count: they say how often it is worth while to look.
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

/// How long a place lasts at least; `None` when it is gone, or has ended and was removed.
async fn left_of(ask: &Ask, place: &Key) -> Result<Option<Duration>, LeaseError> {
    let mut found = ask.store.read(&[Get::Work(place.clone())]).await?;
    let now = found.now;
    let Some(row) = found.take_work(0) else { return Ok(None) };
    // Its own is a burial that was not finished.
    if let Some(lease) = row.lease.filter(|lease| lease.owner != ask.owner && !lease.until.has_come(now)) {
        return Ok(Some(lease.until.since(now)));
    }
    // Taking it first makes sure that its owner has not come back in between: only one of both gets it.
    let claimed = ask.store.claim(Claim::existing(&ask.owner, place, BURIAL)).await?;
    match claimed.denied {
        Some(Denied::Held(lease)) => return Ok(Some(lease.until.since(claimed.now))),
        Some(Denied::NotFound) => return Ok(None),
        Some(Denied::Blocked(_)) | None => {}
    }
    match ask.store.apply(removal(place)).await {
        Ok(_) => Ok(None),
        Err(ApplyError::Store { error, .. }) => Err(LeaseError::Store(error)),
        Err(error) => Err(LeaseError::Write(Box::new(error))),
    }
}

/// Asks for the lease as the first in line, or says how long it is held at least. Looking costs less than asking.
async fn first(ask: &Arc<Ask>) -> Result<Result<Held, Duration>, LeaseError> {
    let (row, now) = ask.look().await?;
    if let Some(holder) = row.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
        if !holder.until.has_come(now) {
            return Ok(Err(holder.until.since(now)));
        }
    }
    match take(ask).await? {
        Ok(held) => Ok(Ok(held)),
        // Somebody else was faster: what it says about its end is looked at the next time.
        Err(_) => Ok(Err(POLL)),
    }
}

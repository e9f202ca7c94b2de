//! The waiting line: a row for everybody who waits, in the order of the rows' creation over all processes.
//!
//! Who waits looks only at the one in front, and asks for the lease when nobody is. A place is a lease, too: it is
//! renewed while its owner waits and ends when that dies. Whoever stands behind a place that has ended removes it.
//!
//! Nothing here decides who owns the lease. Two that stand first by mistake ask the store, and one of them gets it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::error::{LeaseError, LostReason};
use super::guard::Held;
use super::kept::Kept;
use super::take::{Ask, take};
use super::view::Waiter;
use super::{keeper, names, signal};
use crate::clock::Timestamp;
use crate::error::{Explain as _, Retry};
use crate::key::Key;
use crate::store::{
    Batch, Claim, Denied, LeaseRow, Operation, Page, Selection, SharedStore, Watch, WorkFilter, WorkRow,
};

/// The most rows that a look at a line reads at once. The first look is small: a line mostly is.
const PAGES: [usize; 2] = [16, 500];
/// The longest time between two looks, should every hint be missed.
const POLL: Duration = Duration::from_secs(1);
/// The shortest time between two looks of the first in line, however busy the store is. Those behind look less often.
const BREATH: Duration = Duration::from_millis(10);
/// The shortest time between two looks of those far behind.
const LONG_BREATH: Duration = Duration::from_millis(200);
/// How long a place lasts without renewal: how long the others wait for one in front that died.
const PLACE_TTL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(10));
/// How long whoever removes a place that has ended has for it.
const BURIAL: Duration = Duration::from_secs(5);

/// All rows of a line, in order, those included whose owners are gone.
async fn rows(store: &SharedStore, key: &Key) -> Result<Vec<WorkRow>, LeaseError> {
    let (mut after, line) = names::line_of(key)?;
    let [mut limit, next] = PAGES;
    let mut all = Vec::new();
    // Without a condition, a page ends after as many rows as it may have, however many others the table holds.
    let filter = WorkFilter::default();
    loop {
        let page = store.works(&filter, Page::after(&after, limit)).await?;
        let found = page.rows.len();
        let mine: Vec<WorkRow> = page.rows.into_iter().filter(|row| line.contains(&row.key)).collect();
        let ends_here = mine.len() < found;
        all.extend(mine);
        match page.next {
            Some(more) if !ends_here => (after, limit) = (more, next),
            _ => break,
        }
    }
    all.sort_by_key(|row| row.seq);
    Ok(all)
}

/// Who waits for a lease, in order.
pub(super) async fn alive(store: &SharedStore, key: &Key) -> Result<Vec<Waiter>, LeaseError> {
    let rows = rows(store, key).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let now = store.now().await?;
    let held = rows.into_iter().filter_map(|row| row.lease).filter(|lease| !lease.until.has_come(now));
    Ok(held.map(|LeaseRow { owner, since, .. }| Waiter { owner, since }).collect())
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
    if alive(&ask.store, &ask.key).await?.is_empty() {
        match take(ask).await? {
            Ok(held) => return Ok(held),
            Err(holder) => ask.not_mine(&holder)?,
        }
    } else if let Some(holder) = ask.look().await?.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
    }
    loop {
        let place = keeper::done(join(Arc::clone(ask))).await??;
        if let Some(held) = stand(ask, &place).await? {
            place.leave().await;
            return Ok(held);
        }
        tracing::debug!(lease = %ask.key, "a place in line was lost; standing at the end again");
    }
}

/// A place in the line. Dropping it leaves the line.
struct Place {
    kept: Arc<Kept>,
    seq: u64,
}

async fn join(ask: Arc<Ask>) -> Result<Place, LeaseError> {
    let (shortest, longest) = PLACE_TTL;
    let (key, ttl, sent) = (names::place(&ask.key)?, ask.ttl.clamp(shortest, longest), Instant::now());
    let claimed = ask.store.claim(Claim::named(&ask.owner, &key, &names::waits()?, ttl)).await?;
    let Some(grant) = claimed.grants.into_iter().next() else {
        return Err(LeaseError::NoKeeper { reason: "the store gave no place in the line".to_owned() });
    };
    Ok(Place { seq: grant.row.seq, kept: Kept::start(&ask.store, grant.lease(), ttl, sent)? })
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
        let (store, row) = (Arc::clone(self.kept.store()), self.kept.lease().key.clone());
        let settled = keeper::settle(store, row.clone(), removal(&row), self.kept.ttl());
        Some(keeper::spawn(async move { drop(settled.await) }))
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
    let mut ahead: VecDeque<WorkRow> = rows(&ask.store, &ask.key).await?.into();
    ahead.retain(|row| row.seq < place.seq);
    let mut clock = StoreClock::default();
    while place.kept.lost().is_none() {
        let looked = Instant::now();
        let awaited = ahead.back().map_or(&ask.row, |front| &front.key).clone();
        let signal = signal::of(&awaited);
        let mut signal = pin!(signal.notified());
        // From here on, what changes is heard, even while this looks.
        signal.as_mut().enable();
        let mut next = looked + POLL;
        match look(ask, &mut ahead, &mut clock).await {
            Ok(Ok(held)) => return Ok(Some(held)),
            Ok(Err(left)) => next = next.min(Instant::now() + left),
            Err(error) if error.retry() == Retry::Never => return Err(error),
            Err(error) => tracing::debug!(lease = %ask.key, %error, "waiting on, though the store failed"),
        }
        if ahead.back().map_or(&ask.row, |front| &front.key) != &awaited {
            continue;
        }
        let places = u32::try_from(ahead.len()).unwrap_or(u32::MAX).saturating_add(1);
        let breath = BREATH.saturating_mul(places).min(LONG_BREATH);
        tokio::select! {
            () = place.kept.token().cancelled() => {}
            () = signal => {}
            () = sleep_until(next.into()) => {}
            () = hint(&mut watch, looked + breath) => {}
        }
    }
    Ok(None)
}

/// The lease, if this is the first in line and the lease can be had; otherwise how long that lasts at least.
async fn look(
    ask: &Arc<Ask>,
    ahead: &mut VecDeque<WorkRow>,
    clock: &mut StoreClock,
) -> Result<Result<Held, Duration>, LeaseError> {
    match behind(ask, ahead, clock).await? {
        Some(left) => Ok(Err(left)),
        None => first(ask, clock).await,
    }
}

/// The store's clock, asked now and then and guessed in between. It only says when asking may be worth while.
#[derive(Default)]
struct StoreClock(Option<(Instant, Timestamp)>);

impl StoreClock {
    async fn now(&mut self, store: &SharedStore) -> Result<Timestamp, LeaseError> {
        if let Some((heard, said)) = self.0.filter(|(heard, _)| heard.elapsed() < POLL) {
            return Ok(said.after(heard.elapsed()));
        }
        let now = store.now().await?;
        self.0 = Some((Instant::now(), now));
        Ok(now)
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

/// Forgets those in front who are gone. How long the place right in front lasts at least, if there is one.
async fn behind(
    ask: &Ask,
    ahead: &mut VecDeque<WorkRow>,
    clock: &mut StoreClock,
) -> Result<Option<Duration>, LeaseError> {
    while let Some(front) = ahead.back() {
        let now = clock.now(&ask.store).await?;
        if let Some(left) = left_of(ask, &front.key, now).await? {
            // Those far in front only count: they say how often it is worth while to look.
            while let Some(first) = ahead.front().filter(|_| ahead.len() > 1)
                && ask.store.work(&first.key).await?.is_none()
            {
                ahead.pop_front();
            }
            return Ok(Some(left));
        }
        ahead.pop_back();
    }
    Ok(None)
}

/// How long a place lasts at least; `None` when it is gone, or has ended and was removed.
async fn left_of(ask: &Ask, place: &Key, now: Timestamp) -> Result<Option<Duration>, LeaseError> {
    let Some(row) = ask.store.work(place).await? else { return Ok(None) };
    // Its own is a burial that was not finished.
    if let Some(lease) = row.lease.filter(|lease| lease.owner != ask.owner && !lease.until.has_come(now)) {
        return Ok(Some(lease.until.since(now)));
    }
    // Taking it first makes sure that its owner has not come back in between: only one of both gets it.
    let claimed = ask.store.claim(Claim::existing(&ask.owner, place, BURIAL)).await?;
    match claimed.denied {
        Some(Denied::Held(lease)) => return Ok(Some(lease.until.since(now))),
        Some(Denied::NotFound) => return Ok(None),
        Some(Denied::Blocked(_)) | None => {}
    }
    match ask.store.apply(removal(place)).await {
        Ok(_) => Ok(None),
        Err(error) => Err(LeaseError::Write(Box::new(error))),
    }
}

/// Asks for the lease as the first in line, or says how long it is held at least. Looking costs less than asking.
async fn first(ask: &Arc<Ask>, clock: &mut StoreClock) -> Result<Result<Held, Duration>, LeaseError> {
    if let Some(holder) = ask.look().await?.and_then(|row| row.lease) {
        ask.not_mine(&holder)?;
        let now = clock.now(&ask.store).await?;
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

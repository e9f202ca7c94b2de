//! Key metrics of the store, for the index page of the inspector and for Prometheus. Each number is exact or marked as a lower bound.
//! Every read has a limit. Both routes share one result, which is reused for a short time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::Position;
use tidelock_core::key::Key;
use tidelock_core::reactions::{Operator, ReactionFilter, ReactionView, reaction_row};
use tidelock_core::store::{Page, SharedStore, StoreInfo, WorkFilter, WorkRow};
use tidelock_core::workflow::RunStatus;

use crate::api::health;
use crate::app_state::{App, AppState};
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, ok};

/// The time for which a result is reused.
const FRESH: Duration = Duration::from_secs(2);
/// The number of rows of a kind after which reading stops.
const LOOKED: usize = 5_000;
const PAGE: usize = 1_000;
/// The time after which due work that no worker has leased is overdue.
const GRACE: Duration = Duration::from_secs(5);
/// The remaining time at which a lease counts as about to expire. Healthy holders renew after a third of the duration, so that even a lease
/// of one second has more than this left.
const SOON: Duration = Duration::from_millis(500);

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    #[schemars(with = "shape::Timestamp")]
    now: Timestamp,
    #[schemars(with = "Option<u64>")]
    pub(crate) position: Option<Position>,
    /// The duration of the smallest possible read from the store, in microseconds.
    latency_us: u64,
    pub(crate) work: Work,
    pub(crate) leases: Leases,
    pub(crate) runs: Runs,
    pub(crate) reactions: Vec<Reaction>,
    locks: Option<Locked>,
    conflicts: Option<Conflicts>,
    #[serde(skip)]
    pub(crate) info: StoreInfo,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "WorkCounts")]
pub(crate) struct Work {
    pub(crate) rows: u64,
    pub(crate) blocked: u64,
    pub(crate) leased: u64,
    /// The number of rows that are due for 5 s or more, and neither leased nor blocked.
    pub(crate) overdue: u64,
    /// The overdue row that has waited longest. `oldest_ms` is its waiting time.
    #[schemars(with = "Option<shape::Key>")]
    oldest: Option<Key>,
    pub(crate) oldest_ms: u64,
    /// Whether `overdue` covers all rows. Otherwise it is a lower bound.
    pub(crate) whole: bool,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "LeaseCounts")]
pub(crate) struct Leases {
    held: u64,
    /// The number of leases that expire within half a second, or have expired without a release.
    expiring: u64,
    whole: bool,
}

/// Runs by status.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "RunCounts")]
pub(crate) struct Runs {
    #[schemars(with = "BTreeMap<String, u64>")]
    pub(crate) by_status: BTreeMap<RunStatus, u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReactionCounts")]
pub(crate) struct Reaction {
    pub(crate) name: String,
    keys: u64,
    blocked: u64,
    lag_events: u64,
    at_least: bool,
    /// The waiting time of the oldest event that was found: one to be routed, or one at a key that is blocked or overdue.
    pub(crate) lag_ms: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LockCounts")]
pub(crate) struct Locked {
    terms: usize,
    waiting: usize,
    cycles: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConflictCounts")]
pub(crate) struct Conflicts {
    mutations: u64,
    conflicts: u64,
}

/// The last result and its time.
pub(crate) type Last = tokio::sync::Mutex<Option<(Instant, Arc<Overview>)>>;

/// Returns the overview.
pub(crate) async fn overview(State(app): State<App>) -> Answered {
    ok(&*seen(&app).await?)
}

/// Returns the last result if it is recent, or a new one. Concurrent requests wait for one computation and share its result.
pub(crate) async fn seen(app: &AppState) -> Result<Arc<Overview>, Problem> {
    let mut last = app.inspected.overview.lock().await;
    if let Some((at, seen)) = &*last
        && at.elapsed() < FRESH
    {
        return Ok(Arc::clone(seen));
    }
    let seen = Arc::new(read_overview(app).await?);
    *last = Some((Instant::now(), Arc::clone(&seen)));
    Ok(seen)
}

async fn read_overview(app: &AppState) -> Result<Overview, Problem> {
    let info = app.store().info().await?;
    let began = Instant::now();
    let position = health::head(app).await?;
    let latency_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let now = app.store().now().await?;
    let (work, waiting) = work(app, now).await?;
    Ok(Overview {
        now,
        position,
        latency_us,
        leases: leases(app, now, work.leased).await?,
        work,
        runs: Runs { by_status: app.runs.counts().await? },
        reactions: reactions(app, waiting).await?,
        locks: app.inspected.locks.get().map(locked),
        conflicts: app.inspected.conflicts.get().map(|seen| {
            let kinds = seen.by_kind();
            let sum = |of: fn(&crate::host::Tally) -> u64| kinds.values().map(of).sum();
            Conflicts { mutations: sum(|tally| tally.mutations), conflicts: sum(|tally| tally.conflicts) }
        }),
        info,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn locked(locks: &tidelock_core::lock::Locks) -> Locked {
    let seen = locks.snapshot();
    let waiting = seen.terms.iter().map(|term| term.waiters.len()).sum();
    Locked { terms: seen.terms.len(), waiting, cycles: super::locks::cycles(&seen).len() }
}

/// The key of each reaction that has waited longest, and a lower bound of its waiting time.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<String, (Key, Duration)>);

impl Waiting {
    /// Records the waiting time of a row. Its event is older than that.
    fn add(&mut self, row: &Key, waited: Duration) {
        let Some((reaction, key)) = reaction_row(row) else { return };
        match self.0.get(&reaction) {
            Some((_, longest)) if *longest >= waited => {}
            _ => drop(self.0.insert(reaction, (key, waited))),
        }
    }
}

async fn reactions(app: &AppState, mut waiting: Waiting) -> Result<Vec<Reaction>, Problem> {
    let operator = Operator::new(SharedStore::clone(&app.store));
    let mut all = Vec::new();
    for view in operator.reactions().await? {
        let mut reaction = Reaction::of(view);
        if let Some((key, waited)) = waiting.0.remove(&reaction.name) {
            let found = operator
                .keys(&ReactionFilter::of(reaction.name.as_str()).keys([key]), Page::first(1))
                .await?;
            let events = found.rows.first().map_or(Duration::ZERO, |key| key.lag.behind);
            reaction.lag_ms = reaction.lag_ms.max(millis(waited.max(events)));
        }
        all.push(reaction);
    }
    Ok(all)
}

impl Reaction {
    fn of(view: ReactionView) -> Self {
        Self {
            name: view.name,
            keys: view.keys,
            blocked: view.blocked_keys + u64::from(view.blocked.is_some()),
            lag_events: view.lag.events,
            at_least: view.lag.at_least,
            lag_ms: millis(view.lag.behind),
        }
    }
}

async fn work(app: &AppState, now: Timestamp) -> Result<(Work, Waiting), Problem> {
    let count = async |filter: WorkFilter| app.store().count_work(&filter).await;
    let blocked = WorkFilter { blocked: Some(true), ..WorkFilter::default() };
    let mut work = Work {
        rows: count(WorkFilter::default()).await?,
        blocked: count(blocked.clone()).await?,
        leased: count(WorkFilter { leased: Some(true), ..WorkFilter::default() }).await?,
        ..Work::default()
    };
    let mut longest = Waiting::default();
    let since = |row: WorkRow| {
        if let Some(blocked) = &row.blocked {
            longest.add(&row.key, now.since(blocked.since));
        }
    };
    walk(app, blocked, since).await?;
    let waiting = WorkFilter { blocked: Some(false), leased: Some(false), ..WorkFilter::default() };
    work.whole = walk(app, waiting, |row| work.add(&row, now, &mut longest)).await?;
    Ok((work, longest))
}

async fn leases(app: &AppState, now: Timestamp, held: u64) -> Result<Leases, Problem> {
    let mut leases = Leases { held, ..Leases::default() };
    let leased = WorkFilter { leased: Some(true), ..WorkFilter::default() };
    let soon = now.after(SOON);
    let ends =
        |row: WorkRow| leases.expiring += u64::from(row.lease.is_some_and(|lease| lease.until <= soon));
    leases.whole = walk(app, leased, ends).await?;
    Ok(leases)
}

impl Work {
    fn add(&mut self, row: &WorkRow, now: Timestamp, longest: &mut Waiting) {
        let Some(due) = row.due.or(row.woken) else { return };
        let late = now.since(due);
        if !due.has_come(now) || late < GRACE {
            return;
        }
        self.overdue += 1;
        longest.add(&row.key, late);
        if millis(late) > self.oldest_ms {
            (self.oldest_ms, self.oldest) = (millis(late), Some(row.key.clone()));
        }
    }
}

/// Passes rows to `see`, and returns whether these were all rows.
async fn walk(app: &AppState, filter: WorkFilter, mut see: impl FnMut(WorkRow)) -> Result<bool, Problem> {
    let (mut page, mut seen) = (Page::first(PAGE), 0);
    loop {
        let found = app.store().works(&filter, page).await?;
        seen += found.rows.len();
        found.rows.into_iter().for_each(&mut see);
        match found.next {
            None => return Ok(true),
            Some(_) if seen >= LOOKED => return Ok(false),
            Some(next) => page = Page::after(&next, PAGE),
        }
    }
}

//! The numbers that matter, for the first page of the inspector. Each is exact or says that it is a lower bound; nothing is read
//! without a limit, and whoever asks within a moment gets what the one before got.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidelock::clock::Timestamp;
use tidelock::id::Position;
use tidelock::key::{Key, KeyPrefix};
use tidelock::reactions::{Operator, ReactionView};
use tidelock::store::{Page, SharedStore, WorkFilter, WorkRow};
use tidelock::workflow::Status;

use crate::api::health;
use crate::problem::Problem;
use crate::request::{Answered, ok, unreadable};
use crate::shared::{App, Shared};

/// How long an answer is given again.
const FRESH: Duration = Duration::from_millis(900);
/// How many rows of a kind are looked at.
const LOOKED: usize = 5_000;
/// How many runs are counted at most.
const RUNS: usize = 10_000;
const PAGE: usize = 1_000;
/// Work that is due and not taken for so long is overdue.
const GRACE: Duration = Duration::from_secs(5);
/// A lease that ends so soon without having been renewed is about to expire.
const SOON: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Overview {
    now: Timestamp,
    position: Option<Position>,
    work: Work,
    leases: Leases,
    runs: Runs,
    reactions: Vec<Reaction>,
    locks: Option<Locked>,
    conflicts: Option<Conflicts>,
}

#[derive(Default, Serialize)]
struct Work {
    rows: u64,
    blocked: u64,
    leased: u64,
    /// Due, not taken, and not blocked.
    overdue: u64,
    /// The row that has waited longest, and how long.
    oldest: Option<Key>,
    oldest_ms: u64,
    /// Whether all rows were looked at for what is overdue.
    whole: bool,
}

#[derive(Default, Serialize)]
struct Leases {
    held: u64,
    /// Those that end within five seconds, or have ended without being given back.
    expiring: u64,
    whole: bool,
}

/// Runs by how they stand, and whether all were counted.
#[derive(Default, Serialize)]
pub(crate) struct Runs {
    pub(crate) by_status: BTreeMap<Status, u64>,
    pub(crate) whole: bool,
}

#[derive(Serialize)]
struct Reaction {
    name: String,
    keys: u64,
    blocked: u64,
    lag_events: u64,
    at_least: bool,
    lag_ms: u64,
}

#[derive(Serialize)]
struct Locked {
    terms: usize,
    waiting: usize,
    cycles: usize,
}

#[derive(Serialize)]
struct Conflicts {
    mutations: u64,
    conflicts: u64,
}

/// The numbers.
pub(crate) async fn overview(State(app): State<App>) -> Answered {
    let mut last = app.inspected.overview.lock().await;
    if let Some((at, value)) = &*last
        && at.elapsed() < FRESH
    {
        return ok(&**value);
    }
    let found = serde_json::to_value(look(&app).await?);
    let found: Value = found.map_err(|error| unreadable("the answer", &error.to_string()))?;
    let found = Arc::new(found);
    *last = Some((Instant::now(), Arc::clone(&found)));
    ok(&*found)
}

async fn look(app: &Shared) -> Result<Overview, Problem> {
    let now = app.store().now().await?;
    let (work, leases) = work(app, now).await?;
    let reactions = Operator::new(SharedStore::clone(&app.store)).reactions().await?;
    Ok(Overview {
        now,
        position: health::head(app).await?,
        work,
        leases,
        runs: runs(app).await?,
        reactions: reactions.into_iter().map(Reaction::of).collect(),
        locks: app.inspected.locks.get().map(locked),
        conflicts: app.inspected.conflicts.get().map(|seen| {
            let kinds = seen.by_kind();
            let sum = |of: fn(&crate::inspected::Tally) -> u64| kinds.values().map(of).sum();
            Conflicts { mutations: sum(|tally| tally.mutations), conflicts: sum(|tally| tally.conflicts) }
        }),
    })
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn locked(locks: &tidelock::lock::Locks) -> Locked {
    let seen = locks.snapshot();
    let waiting = seen.terms.iter().map(|term| term.waiters.len()).sum();
    Locked { terms: seen.terms.len(), waiting, cycles: super::locks::cycles(&seen).len() }
}

async fn work(app: &Shared, now: Timestamp) -> Result<(Work, Leases), Problem> {
    let count = async |filter: WorkFilter| app.store().count_work(&filter).await;
    let rows = count(WorkFilter::default()).await?;
    let blocked = count(WorkFilter { blocked: Some(true), ..WorkFilter::default() }).await?;
    let mut work = Work { rows, blocked, ..Work::default() };
    let waiting = WorkFilter { blocked: Some(false), leased: Some(false), ..WorkFilter::default() };
    work.whole = walk(app, waiting, |row| work.add(&row, now)).await?;
    let mut leases = Leases::default();
    let leased = WorkFilter { leased: Some(true), ..WorkFilter::default() };
    leases.held = count(leased.clone()).await?;
    work.leased = leases.held;
    let soon = now.after(SOON);
    let ends =
        |row: WorkRow| leases.expiring += u64::from(row.lease.is_some_and(|lease| lease.until <= soon));
    leases.whole = walk(app, leased, ends).await?;
    Ok((work, leases))
}

impl Work {
    fn add(&mut self, row: &WorkRow, now: Timestamp) {
        let Some(due) = row.due.or(row.woken) else { return };
        let late = now.since(due);
        if !due.has_come(now) || late < GRACE {
            return;
        }
        self.overdue += 1;
        if millis(late) > self.oldest_ms {
            (self.oldest_ms, self.oldest) = (millis(late), Some(row.key.clone()));
        }
    }
}

/// Shows rows to somebody, and says whether those were all.
async fn walk(app: &Shared, filter: WorkFilter, mut see: impl FnMut(WorkRow)) -> Result<bool, Problem> {
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

/// What is read of the document of a run.
#[derive(Deserialize)]
struct Stands {
    status: Status,
}

/// How many runs there are, as they stand.
pub(crate) async fn runs(app: &Shared) -> Result<Runs, Problem> {
    let all = [Status::Running, Status::Completed, Status::Failed, Status::Cancelled];
    let mut runs = Runs { by_status: all.into_iter().map(|status| (status, 0)).collect(), whole: false };
    let (mut page, mut seen) = (Page::first(PAGE), 0);
    loop {
        let found = app.store().documents(&KeyPrefix::kind("tidelock.run"), page).await?;
        seen += found.rows.len();
        for document in found.rows {
            if let Ok(Stands { status }) = document.value.parse() {
                *runs.by_status.entry(status).or_default() += 1;
            }
        }
        match found.next {
            None => {
                runs.whole = true;
                return Ok(runs);
            }
            Some(_) if seen >= RUNS => return Ok(runs),
            Some(next) => page = Page::after(&next, PAGE),
        }
    }
}

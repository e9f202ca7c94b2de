//! A read-only snapshot of a store: its size, its growth, and the rows that need attention.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tidelock::model::lease::ready_at;
use tidelock::prelude::*;
use tidelock::schedule::Schedules;
use tidelock::store::{Direction, WorkFilter, WorkRow};
use tidelock::workflow::WorkflowClient;

/// The maximum number of rows read, and the number read in one page.
const MOST_ROWS: usize = 20_000;
const PAGE: usize = 1_000;
/// The maximum number of lines in a panel.
const MOST_LINES: usize = 200;
/// Work that stays unclaimed for this long is overdue.
const OVERDUE: Duration = Duration::from_secs(60);

/// The number of rows in each condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Counts {
    /// Due and unclaimed.
    pub(crate) ready: u64,
    /// Claimed by a worker.
    pub(crate) leased: u64,
    /// Due later.
    pub(crate) waiting: u64,
    /// Blocked until an operator acts.
    pub(crate) blocked: u64,
    /// Ready for a minute or longer.
    pub(crate) overdue: u64,
    /// The time since the oldest row became ready, in seconds.
    pub(crate) oldest_seconds: u64,
}

/// A lease that is leased.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Lease {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) fence: u64,
    pub(crate) until: Timestamp,
}

/// A row that is blocked until an operator acts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Stuck {
    pub(crate) key: String,
    pub(crate) queue: String,
    pub(crate) since: Timestamp,
    pub(crate) reason: String,
}

/// A scheduled task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) next: Option<Timestamp>,
    pub(crate) runs: u64,
    pub(crate) failures: u64,
}

/// The state of a store at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    /// The description of the store's backend.
    pub(crate) store: String,
    pub(crate) at: Timestamp,
    /// The position of the last event.
    pub(crate) position: u64,
    /// The rate since the previous snapshot.
    pub(crate) events_per_second: Option<f64>,
    pub(crate) work: Counts,
    /// Whether there is more work than was read.
    pub(crate) more_work: bool,
    pub(crate) queues: BTreeMap<String, Counts>,
    pub(crate) runs: BTreeMap<&'static str, u64>,
    /// The leases, in order of expiry.
    pub(crate) leases: Vec<Lease>,
    pub(crate) stuck: Vec<Stuck>,
    pub(crate) schedules: Vec<Task>,
}

impl Snapshot {
    /// Takes a snapshot of a store.
    pub(crate) async fn take(store: &SharedStore, before: Option<&Self>) -> Result<Self> {
        let (info, at) = (store.info().await?, store.now().await?);
        let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
        let position = store.read_log(last).await?.events.first().map_or(0, |event| event.position.0);
        let mut seen = Self {
            store: info.backend,
            at,
            position,
            events_per_second: before.and_then(|before| before.rate(position, at)),
            work: Counts::default(),
            more_work: false,
            queues: BTreeMap::new(),
            runs: BTreeMap::new(),
            leases: Vec::new(),
            stuck: Vec::new(),
            schedules: Vec::new(),
        };
        seen.look_at_work(store).await?;
        seen.look_at_runs(store).await?;
        seen.look_at_schedules(store).await?;
        Ok(seen)
    }

    /// Returns the number of events per second since this snapshot.
    fn rate(&self, position: u64, at: Timestamp) -> Option<f64> {
        let passed = at.since(self.at).as_secs_f64();
        (passed > 0.0).then(|| position.saturating_sub(self.position) as f64 / passed)
    }

    /// Reads and counts blocked rows first and separately. They would otherwise be hidden behind many rows that are
    /// not blocked.
    async fn look_at_work(&mut self, store: &SharedStore) -> Result<()> {
        let of = |blocked| WorkFilter { blocked: Some(blocked), ..WorkFilter::default() };
        self.look_at_rows(store, &of(true)).await?;
        self.look_at_rows(store, &of(false)).await?;
        self.work.blocked = store.count_work(&of(true)).await?;
        self.leases.sort_by_key(|lease| lease.until);
        self.leases.truncate(MOST_LINES);
        self.stuck.sort_by_key(|stuck| stuck.since);
        self.stuck.truncate(MOST_LINES);
        Ok(())
    }

    async fn look_at_rows(&mut self, store: &SharedStore, filter: &WorkFilter) -> Result<()> {
        let (mut page, mut rows) = (Page::first(PAGE), 0);
        loop {
            let found = store.works(filter, page).await?;
            rows += found.rows.len();
            found.rows.into_iter().for_each(|row| self.row(row));
            match found.next {
                Some(next) if rows < MOST_ROWS => page = Page::after(&next, PAGE),
                next => {
                    self.more_work |= next.is_some();
                    return Ok(());
                }
            }
        }
    }

    fn row(&mut self, row: WorkRow) {
        let counted = Counts::of(&row, self.at);
        self.work.add(&counted);
        self.queues.entry(row.queue.as_str().to_owned()).or_default().add(&counted);
        if let Some(blocked) = row.blocked {
            let (key, queue) = (row.key.to_string(), row.queue.as_str().to_owned());
            self.stuck.push(Stuck { key, queue, since: blocked.since, reason: blocked.reason });
        } else if let Some(lease) = row.lease {
            let (key, owner) = (row.key.to_string(), lease.owner.as_str().to_owned());
            self.leases.push(Lease { key, owner, fence: lease.fence.0, until: lease.until });
        }
    }

    async fn look_at_runs(&mut self, store: &SharedStore) -> Result<()> {
        let counts = WorkflowClient::new(SharedStore::clone(store)).counts().await?;
        let present = counts.into_iter().filter(|(_, count)| *count > 0);
        self.runs = present.map(|(status, count)| (status.word(), count)).collect();
        Ok(())
    }

    async fn look_at_schedules(&mut self, store: &SharedStore) -> Result<()> {
        let tasks = Schedules::new(SharedStore::clone(store)).list().await?;
        let task = |view: tidelock::schedule::ScheduleView| {
            let (runs, failures) = (view.runs, view.failures);
            Task { name: view.record.name, next: view.next, runs, failures }
        };
        self.schedules = tasks.into_iter().map(task).collect();
        // Tasks without a next fire come last.
        self.schedules.sort_by_key(|task| (task.next.is_none(), task.next));
        self.schedules.truncate(MOST_LINES);
        Ok(())
    }
}

impl Counts {
    fn of(row: &WorkRow, now: Timestamp) -> Self {
        let mut counts = Self::default();
        let leased = row.lease.as_ref().is_some_and(|lease| !lease.until.has_come(now));
        match ready_at(row) {
            _ if row.blocked.is_some() => counts.blocked = 1,
            _ if leased => counts.leased = 1,
            Some(ready) if ready.has_come(now) => {
                let waited = now.since(ready);
                counts.ready = 1;
                counts.overdue = u64::from(waited >= OVERDUE);
                counts.oldest_seconds = waited.as_secs();
            }
            Some(_) => counts.waiting = 1,
            None => {}
        }
        counts
    }

    fn add(&mut self, other: &Self) {
        self.ready += other.ready;
        self.leased += other.leased;
        self.waiting += other.waiting;
        self.blocked += other.blocked;
        self.overdue += other.overdue;
        self.oldest_seconds = self.oldest_seconds.max(other.oldest_seconds);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn blocked_rows_beyond_the_first_page_are_shown() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let job = |name: String, queue: &str| {
            NewWork::once(Key::new("job", [name]).unwrap(), queue.parse().unwrap())
        };
        store.apply(Batch::new().enqueue(job("z".to_owned(), "last"))).await.unwrap();
        let owner: Owner = "w".parse().unwrap();
        let claim = Claim::queues(&owner, ["last".parse().unwrap()], 1, Duration::from_secs(60));
        let lease = store.claim(claim).await.unwrap().grants.first().unwrap().lease();
        store.apply(Batch::new().block(&lease, "bad address")).await.unwrap();
        let names: Vec<String> = (0..=MOST_ROWS).map(|number| format!("{number:06}")).collect();
        for names in names.chunks(500) {
            let add = |batch: Batch, name: &String| batch.enqueue(job(name.clone(), "many"));
            store.apply(names.iter().fold(Batch::new(), add)).await.unwrap();
        }
        let seen = Snapshot::take(&store, None).await.unwrap();
        assert_eq!((seen.work.blocked, seen.more_work), (1, true));
        assert_eq!(seen.queues["last"].blocked, 1);
        assert_eq!(seen.stuck.first().map(|stuck| stuck.reason.as_str()), Some("bad address"));
    }
}

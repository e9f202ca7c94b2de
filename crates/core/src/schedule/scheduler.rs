//! The scheduler: what programs start, and what they have while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::error::ScheduleError;
use super::shared::{Options, Shared};
use super::task::Task;
use super::{names, register, worker};
use crate::id::Owner;
use crate::lease::{self, Claims, unique_owner, working};
use crate::runtime::timer::sleep_until;
use crate::store::{Page, SharedStore, WorkFilter};

/// A scheduler that is about to run.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Scheduler {
    store: SharedStore,
    tasks: Vec<Task>,
    options: Options,
}

impl Scheduler {
    /// A scheduler on this store.
    pub fn new(store: SharedStore) -> Self {
        Self { store, tasks: Vec::new(), options: Options::default() }
    }

    /// Adds a task.
    pub fn with(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }

    /// What it is called: `default`. Programs with different tasks on one store need different names: when a scheduler starts,
    /// the tasks of its name that it does not register are archived.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// How many tasks run at the same time, at most: 16.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.options.concurrency = runs.max(1);
        self
    }

    /// Who runs tasks, as others are to see it: by default the machine and the process. What makes it unique is added.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.options.owner = Some(owner);
        self
    }

    /// How long others wait for a task whose process died: 30 seconds. A process that lives renews in time.
    pub fn lease(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl.clamp(lease::MIN_TTL, lease::MAX_TTL);
        self
    }

    /// How long runs may go on after [`Running::shutdown`]: 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = working::bounded(grace);
        self
    }

    /// How long something may go unnoticed when the store's hint of it was missed: 1 second.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.options.look_again = working::interval(interval);
        self
    }

    /// Registers the tasks, archives those that are gone, and begins.
    ///
    /// # Errors
    /// [`ScheduleError`] when the times of a task cannot be read, something is missing or there twice, there is no runtime, or
    /// the store fails. Nothing is registered then, unless it was the store.
    pub async fn start(self) -> Result<Running, ScheduleError> {
        let Self { store, tasks, options } = self;
        tokio::runtime::Handle::try_current().map_err(|_| ScheduleError::NoRuntime)?;
        names::check("the name of a scheduler", &options.name)?;
        let lane = names::lane(&options.name)?;
        let now = store.now().await?;
        let mut known = BTreeMap::new();
        for task in tasks {
            task.check(&options.name, now)?;
            let name = task.name.clone();
            if known.insert(name.clone(), Arc::new(task)).is_some() {
                return Err(ScheduleError::Twice { task: name });
            }
        }
        register::all(&store, &options.name, &known).await?;
        let owner = unique_owner(options.owner.as_ref())?;
        let (stopping, cut, killed, counters) = Default::default();
        let tasks = known;
        let claims = Claims::new(&store);
        let shared = Shared { store, owner, lane, options, tasks, stopping, cut, killed, claims, counters };
        let shared = Arc::new(shared);
        let task = tokio::spawn(worker::supervised(Arc::clone(&shared)));
        Ok(Running { shared, task })
    }
}

/// What a scheduler did so far, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// Runs that ended and were recorded.
    pub runs: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Runs that were lost to others, or handed back because the store failed.
    pub lost: u64,
    /// Records that could not be read and were put into quarantine.
    pub quarantined: u64,
}

/// A scheduler that runs, until it is shut down or this is dropped.
///
/// Dropped, everything stops at once: runs are broken off, and leases end by themselves. [`shutdown`](Self::shutdown) is the
/// polite way.
#[must_use = "dropping it stops the scheduler"]
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Running {
    /// Who runs tasks.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        let counters = &self.shared.counters;
        SchedulerStats {
            runs: counters.runs.get(),
            failures: counters.failures.get(),
            lost: counters.lost.get(),
            quarantined: counters.quarantined.get(),
        }
    }

    /// Waits until no task of this scheduler's name is due or runs, in any process. For tests that move the clock.
    ///
    /// # Errors
    /// [`ScheduleError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel-safe: it only looks.
    pub async fn settle(&self) -> Result<(), ScheduleError> {
        let mut hints = self.shared.store.watch();
        loop {
            let looked = Instant::now();
            if self.is_settled().await? {
                return Ok(());
            }
            tokio::select! {
                () = working::hinted(&mut hints, looked + Duration::from_millis(1)) => {}
                () = sleep_until(looked + self.shared.options.look_again) => {}
            }
        }
    }

    async fn is_settled(&self) -> Result<bool, ScheduleError> {
        const PAGE: usize = 1_000;
        let filter = WorkFilter { lane: Some(self.shared.lane.clone()), ..WorkFilter::default() };
        let mut page = Page::first(PAGE);
        loop {
            let found = self.shared.store.works(&filter, page).await?;
            let now = self.shared.store.now().await?;
            let busy = found
                .rows
                .iter()
                .filter(|row| row.blocked.is_none())
                .any(|row| row.lease.is_some() || row.due.is_some_and(|due| due.has_come(now)));
            match found.next {
                _ if busy => return Ok(false),
                Some(next) => page = Page::after(&next, PAGE),
                None => return Ok(true),
            }
        }
    }

    /// Stops politely: nothing new is begun, and runs may end within the grace period. What is still under way then is broken
    /// off and handed back: it runs again wherever a scheduler lives.
    ///
    /// # Cancel safety
    /// Dropped, everything stops at once, as when [`Running`] is dropped.
    pub async fn shutdown(mut self) -> SchedulerStats {
        self.shared.stopping.cancel();
        drop((&mut self.task).await);
        self.stats()
    }

    /// Stops at once, as a crash would: runs are broken off, and leases end by themselves. When this returns, nothing runs any
    /// more. For tests of what happens then.
    ///
    /// # Cancel safety
    /// Cancel-safe: everything stops all the same.
    pub async fn abort(mut self) {
        self.shared.killed.cancel();
        drop((&mut self.task).await);
        self.shared.claims.settle(&self.shared.owner).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

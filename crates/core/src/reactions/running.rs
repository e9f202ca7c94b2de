//! Reactions that run: how they are started, watched and stopped.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::definition::Definition;
use super::error::ReactionsError;
use super::reaction::Reaction;
use super::router::Router;
use super::settle::{self, Settled};
use super::shared::{Options, Shared, heard};
use super::stats::Stats;
use super::worker::Worker;
use crate::id::Owner;
use crate::lease::{Claims, unique_owner, working};
use crate::runtime::timer::sleep_until;
use crate::store::SharedStore;
use crate::telemetry::{Count, REACTIONS};

/// Reactions that are about to run in this process.
#[must_use = "nothing runs before start() is awaited"]
#[derive(Debug)]
pub struct Reactions {
    store: SharedStore,
    reactions: Vec<Reaction>,
    options: Options,
}

impl Reactions {
    /// Reactions on this store.
    pub fn new(store: SharedStore) -> Self {
        Self { store, reactions: Vec::new(), options: Options::default() }
    }

    /// Adds a reaction.
    pub fn with(mut self, reaction: Reaction) -> Self {
        self.reactions.push(reaction);
        self
    }

    /// Who holds the leases, as others are to see it: by default the machine and the process. What makes it unique is added.
    pub fn owner(mut self, owner: Owner) -> Self {
        self.options.owner = Some(owner);
        self
    }

    /// How many keys are worked on at the same time: 16.
    pub fn concurrency(mut self, keys: usize) -> Self {
        self.options.concurrency = keys.max(1);
        self
    }

    /// How many rows are claimed at once, at most: 16.
    pub fn prefetch(mut self, rows: usize) -> Self {
        self.options.prefetch = rows.max(1);
        self
    }

    /// How long handlers may go on after [`Running::shutdown`]: 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace = working::bounded(grace);
        self
    }

    /// How long something may go unnoticed when the store's hint of it was missed: 1 second.
    pub fn look_again(mut self, interval: Duration) -> Self {
        self.options.look_again = working::interval(interval);
        self
    }

    /// Starts them. When this returns, every reaction is known to the store: what happens from now on is reacted to, even if
    /// this process dies.
    ///
    /// # Errors
    /// [`ReactionsError`] when two reactions have one name, one of them is not complete or valid, or has kept its place in
    /// another way before; when there is no runtime, or the store fails. Nothing runs then; start again.
    pub async fn start(self) -> Result<Running, ReactionsError> {
        let Self { store, reactions, options } = self;
        let mut definitions = BTreeMap::new();
        for reaction in reactions {
            let definition = Definition::check(reaction)?;
            let name = definition.name.to_string();
            if definitions.insert(name.clone(), Arc::new(definition)).is_some() {
                return Err(ReactionsError::Twice { name });
            }
        }
        tokio::runtime::Handle::try_current().map_err(|_| ReactionsError::NoRuntime)?;
        for definition in definitions.values() {
            definition.subscribe(&store).await?;
        }
        let owner = unique_owner(options.owner.as_ref())?;
        let claims = Claims::new(&store);
        let shared = Arc::new(Shared {
            store,
            owner,
            options,
            definitions,
            stopping: Default::default(),
            cut: Default::default(),
            work: Default::default(),
            killed: Default::default(),
            claims,
            claimed: Count::here(),
        });
        Ok(Running::over(shared))
    }
}

/// Reactions that run in this process, until they are shut down or this is dropped.
///
/// Dropped, everything stops at once: handlers are broken off, and leases end by themselves. Others wait for that; so
/// [`shutdown`](Self::shutdown) is the polite way.
#[must_use = "dropping it stops the reactions"]
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    fn over(shared: Arc<Shared>) -> Self {
        let mut tasks =
            vec![tokio::spawn(supervised(Arc::clone(&shared), |shared| Worker::new(shared).run_or_die()))];
        for definition in shared.definitions.values() {
            let definition = Arc::clone(definition);
            let router = move |shared| Router::new(shared, Arc::clone(&definition)).run_or_die();
            tasks.push(tokio::spawn(supervised(Arc::clone(&shared), router)));
        }
        Self { shared, tasks }
    }

    /// Who holds the leases.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.shared.owner
    }

    /// What was done so far, in this process.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let reactions = self.shared.definitions.iter();
        let reactions =
            reactions.map(|(name, definition)| (name.clone(), definition.counters.snapshot())).collect();
        Stats { claims: self.shared.claimed.get(), reactions }
    }

    /// Waits until nothing is pending for these reactions, in any process: every event is routed, and no row is due, held,
    /// backing off or put off. What is blocked or parked waits for an operator, not for us, and is counted.
    ///
    /// # Errors
    /// [`ReactionsError::Store`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel-safe: it only looks.
    pub async fn settle(&self) -> Result<Settled, ReactionsError> {
        let definitions: Vec<_> = self.shared.definitions.values().cloned().collect();
        let mut hints = self.shared.store.watch();
        loop {
            let looked = Instant::now();
            if let Some(settled) = settle::look(&self.shared.store, &definitions).await? {
                return Ok(settled);
            }
            tokio::select! {
                () = heard(&mut hints, looked) => {}
                () = sleep_until(looked + self.shared.options.look_again) => {}
            }
        }
    }

    /// Stops politely: nothing new is claimed, handlers may end within the grace period, what is still held then is handed
    /// back, and so is what was not begun. Answers what was done.
    ///
    /// # Cancel safety
    /// Dropped, everything stops at once, as when [`Running`] is dropped.
    pub async fn shutdown(mut self) -> Stats {
        self.shared.stopping.cancel();
        for task in &mut self.tasks {
            // It ends well, or was ended together with its runtime.
            drop(task.await);
        }
        self.stats()
    }

    /// Stops at once, as a crash would: handlers are broken off, and leases end by themselves. When this returns, nothing is
    /// claimed or routed any more, not even by what had been sent to the store before. For tests of what happens then.
    ///
    /// # Cancel safety
    /// Cancel-safe: everything stops all the same.
    pub async fn abort(mut self) {
        self.shared.killed.cancel();
        for task in &mut self.tasks {
            drop(task.await);
        }
        self.shared.claims.settle(&self.shared.owner).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Runs a part of the reactions, and again if it panics.
async fn supervised<F, Fut>(shared: Arc<Shared>, make: F)
where
    F: Fn(Arc<Shared>) -> Fut,
    Fut: Future<Output = ()> + Send,
{
    let panicked = |error: &str| {
        tracing::error!(target: REACTIONS, error, "a part of the reactions failed; it is started again");
    };
    let make = || make(Arc::clone(&shared));
    working::supervised(make, panicked, shared.options.look_again, &shared.stopping).await;
}

//! The loop of a worker: it claims runs while it has room, and gives each a task of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::driver::{ENTRIES, Left, drive};
use super::error::WorkflowError;
use super::line::Line;
use super::names;
use super::retention::retiring;
use super::seats::Seat;
use super::shared::Shared;
use crate::clock::Timestamp;
use crate::id::Lane;
use crate::lease::working::{self, HUSH};
use crate::lease::{Hand, Hands, Holding, signal};
use crate::runtime::timer::sleep_until;
use crate::store::limits::CLAIM_EVENTS;
use crate::store::{Claim, Grant, StoreError, Watch};
use crate::telemetry::{WORKFLOW, WORKFLOW_RUN};

/// Claims and drives, removes what is old, and goes on if either panics.
pub(super) async fn claiming(shared: Arc<Shared>) {
    let panicked =
        |error: &str| tracing::error!(target: WORKFLOW, error, "a worker failed; it is started again");
    let (pause, stopping) = (shared.options.look_again, &shared.stopping);
    let claims = || Claiming::new(Arc::clone(&shared)).run_or_die();
    let claims = working::supervised(claims, panicked, pause, stopping);
    let retires = async {
        let Some(retention) = &shared.options.retention else { return };
        let retires = || async {
            tokio::select! {
                () = shared.killed.cancelled() => {}
                () = retiring(&shared, retention) => {}
            }
        };
        working::supervised(retires, panicked, pause, stopping).await;
    };
    tokio::join!(claims, retires);
}

/// What is wrong with one queue does not stop the others; what is wrong with the store does.
fn only_of<T>(queue: &str, done: Result<T, WorkflowError>) -> Result<Option<T>, WorkflowError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(WorkflowError::Store(error)) => Err(error.into()),
        Err(error) => {
            tracing::error!(target: WORKFLOW, queue, %error, "a queue is left alone: what the store has of it does not read");
            Ok(None)
        }
    }
}

/// How many runs were claimed, and when there may be more if none was.
pub(super) type Got = (usize, Option<Timestamp>);

/// The loop that claims.
pub(super) struct Claiming {
    pub(super) shared: Arc<Shared>,
    lines: Vec<Line>,
    /// When what the queues hold to is to be read again.
    stale: Instant,
    hands: Hands,
    hints: Watch,
    hush: Duration,
    /// A hint led to this claim.
    hinted: bool,
}

impl Claiming {
    fn new(shared: Arc<Shared>) -> Self {
        let hands = Hands::new(&shared.store, shared.options.concurrency);
        let hints = shared.store.watch();
        let lines = shared.options.queues.iter().map(|queue| Line::new(&shared, queue.name())).collect();
        Self { shared, lines, stale: Instant::now(), hands, hints, hush: HUSH, hinted: false }
    }

    async fn run_or_die(mut self) {
        let killed = self.shared.killed.clone();
        working::unless(&killed, self.run()).await;
        self.hands.break_off().await;
    }

    async fn run(&mut self) {
        let queues = self.shared.options.queues.iter().filter_map(|queue| names::queue(queue.name()).ok());
        let told: Vec<signal::Signal> = queues.map(|queue| signal::of(&queue)).collect();
        let most = CLAIM_EVENTS / ENTRIES;
        while let Some(hands) = self.hands.free(most, &self.shared.stopping).await {
            // What this process says from now on is heard, even if the claim does not see it.
            let mut told: Vec<_> = told.iter().map(|queue| Box::pin(queue.notified())).collect();
            for told in &mut told {
                let _ = told.as_mut().enable();
            }
            let room = hands.len();
            match self.claim(hands).await {
                Ok((count, next_at)) => {
                    self.followed(count);
                    let told = futures_util::future::select_all(told);
                    if count < room {
                        self.idle(count, next_at, told.map(drop)).await;
                    }
                }
                Err(WorkflowError::Store(error)) => {
                    self.shared.recover("runs could not be claimed", &error).await;
                }
                Err(error) => {
                    tracing::error!(target: WORKFLOW, %error, "runs could not be claimed; it is tried again");
                    working::pause(self.shared.options.look_again, &self.shared.stopping).await;
                }
            }
        }
        self.hands.wind_down(self.shared.options.grace, &self.shared.cut).await;
        for line in &self.lines {
            line.seats.hand_back().await;
        }
    }

    /// Claims what there is in all queues: those without limits together, the others one by one.
    async fn claim(&mut self, mut hands: Vec<Hand>) -> Result<Got, WorkflowError> {
        if Instant::now() >= self.stale {
            for line in &mut self.lines {
                let refreshed = line.refresh(&self.shared).await;
                only_of(line.queue(), refreshed)?;
            }
            self.stale = Instant::now() + self.shared.options.look_again;
        }
        let free = self.lines.iter().filter(|line| !line.limits.any());
        let lanes: Vec<Lane> = free.flat_map(Line::lanes).cloned().collect();
        let mut got = (0, None);
        if !lanes.is_empty() {
            got = self.take(lanes, hands.len(), &mut hands, &mut Vec::new()).await?;
        }
        for at in 0..self.lines.len() {
            let Some(line) = self.lines.get_mut(at).filter(|line| line.limits.any()) else { continue };
            if hands.is_empty() {
                // Nothing can be begun here; somebody else may.
                line.seats.hand_back().await;
                continue;
            }
            // A limit that was changed is held from the next claim on.
            let refreshed = line.refresh(&self.shared).await;
            if only_of(line.queue(), refreshed)?.is_none() {
                continue;
            }
            let line = line.clone();
            let claimed = line.claim(self, &mut hands).await;
            let here = only_of(line.queue(), claimed)?.unwrap_or_default();
            if here.0 == 0 {
                line.seats.hand_back().await;
            }
            got = (got.0 + here.0, [got.1, here.1].into_iter().flatten().min());
        }
        Ok(got)
    }

    /// Claims up to so many runs of these lanes, for each of which there is a hand, and a seat where those are given.
    pub(super) async fn take(
        &mut self,
        lanes: Vec<Lane>,
        most: usize,
        hands: &mut Vec<Hand>,
        seats: &mut Vec<Seat>,
    ) -> Result<Got, StoreError> {
        let (owner, ttl) = (&self.shared.owner, self.shared.options.ttl);
        let claim = Claim::lanes(owner, lanes, most, ttl).with_events(ENTRIES);
        let sent = Instant::now();
        let claimed = self.shared.claims.send(claim).await?;
        let count = claimed.grants.len();
        for grant in claimed.grants {
            let shared = Arc::clone(&self.shared);
            // It counts from now on, not from when its task begins: a clock that skips would end its lease before.
            let with = (hands.pop(), seats.pop().map(Seat::used), Active::new(&shared));
            self.hands.hold(grant, ttl, sent, with, async move |grant, holding| {
                activate(shared, grant, holding).await;
            });
        }
        Ok((count, claimed.next_at))
    }

    /// Hints that lead to runs are followed closely, the others less and less.
    fn followed(&mut self, count: usize) {
        if std::mem::take(&mut self.hinted) {
            // Where time flies, nothing else is waited for.
            let close = count > 0 || self.shared.options.skip.is_some();
            self.hush = if close { HUSH } else { (self.hush * 2).min(LONGEST_HUSH) };
        }
    }

    /// Waits until there may be something, and never for long. After a claim that had room for more, there is nothing more for now.
    async fn idle(&mut self, count: usize, next_at: Option<Timestamp>, told: impl Future<Output = ()>) {
        let longest = self.shared.options.look_again;
        let wait = match next_at {
            // When the next one is due is not known.
            _ if count > 0 => LONGEST_HUSH.min(longest),
            None => longest,
            Some(at) => match self.shared.store.now().await {
                Ok(now) if self.skip_to(at, now) => return,
                Ok(now) => at.since(now).max(HUSH).min(longest),
                Err(_) => longest,
            },
        };
        let looked = Instant::now();
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => {}
            () = told => {}
            () = working::hinted(&mut self.hints, looked + self.hush) => self.hinted = true,
            () = sleep_until(looked + wait) => {}
        }
    }

    /// Sets the clock of a test to what is due next, when nothing is under way.
    fn skip_to(&self, at: Timestamp, now: Timestamp) -> bool {
        let Some(clock) = &self.shared.options.skip else { return false };
        let idle = self.shared.counters.active.load(Ordering::Acquire) == 0;
        if idle && at > now {
            clock.advance(at.since(now));
        }
        idle
    }
}

/// Hints that led to nothing are followed less closely: most of them are of steps that this process itself has written.
const LONGEST_HUSH: Duration = Duration::from_millis(16);

/// Counts a run that is in memory.
pub(super) struct Active(Arc<Shared>);

impl Active {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.counters.active.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.counters.active.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) async fn activate(shared: Arc<Shared>, grant: Grant, holding: Holding) {
    let counters = &shared.counters;
    counters.activations.add(1);
    let run = names::run_of(&grant.row.key).unwrap_or_default();
    let span = tracing::debug_span!(target: WORKFLOW, WORKFLOW_RUN, run, workflow = tracing::field::Empty);
    if let Left::Lost = drive(Arc::clone(&shared), grant, holding, &span).instrument(span.clone()).await {
        counters.lost.add(1);
    }
}

//! The poll loop: claims due work for free slots, and waits when there is none.
//!
//! Four things end a wait: a notification inside this process, a hint of the store, the next due time, and the poll
//! interval. Hints may be lost; the poll interval bounds the delay then. A hint says that something has changed, not that
//! work is due. When hints lead to no grant, the loop follows them with a delay that doubles up to a limit of the engine.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::select_all;

use super::idle::{self, MIN_POLL_DELAY};
use super::local_notify::{self, Listener};
use super::slots::{Slot, Slots};
use super::{ClaimSpec, Engine};
use crate::clock::Timestamp;
use crate::process;
use crate::runtime::timer::sleep_until;
use crate::store::limits::{CLAIM_EVENTS, CLAIM_ROWS};
use crate::store::{Claim, StoreError, Watch};
use crate::telemetry::WORKER;

/// The wait after a poll that left slots free: such a claim does not report the next due time.
const SHORT_WAIT: Duration = Duration::from_millis(16);

/// Polls until the worker stops, and restarts after a panic.
pub(super) async fn run<E: Engine>(engine: Arc<E>) {
    let worker = engine.worker();
    let run = || async {
        let mut slots = Slots::new(worker.options.concurrency);
        let mut polls = PollLoop::new(&engine);
        let stopped = async {
            tokio::select! {
                biased;
                () = worker.killed.cancelled() => {}
                () = worker.overdue() => {}
            }
        };
        tokio::select! {
            biased;
            () = stopped => {
                slots.abort().await;
                engine.aborted().await;
            }
            () = polls.run(&mut slots) => {}
        }
    };
    idle::supervised(E::NAME, run, worker.options.poll_interval, &worker.stopping).await;
}

struct PollLoop<'a, E> {
    engine: &'a Arc<E>,
    hints: Watch,
    /// The least time between a poll and the next one that a hint causes.
    hint_delay: Duration,
    /// Whether a hint caused this poll.
    hinted: bool,
    /// The store's clock at the last poll.
    now: Option<Timestamp>,
}

impl<'a, E: Engine> PollLoop<'a, E> {
    fn new(engine: &'a Arc<E>) -> Self {
        let hints = engine.worker().store.watch();
        Self { engine, hints, hint_delay: MIN_POLL_DELAY, hinted: false, now: None }
    }

    async fn run(&mut self, slots: &mut Slots) {
        let worker = self.engine.worker();
        let local: Vec<Listener> = self.engine.notified_by().iter().map(local_notify::listen).collect();
        while let Some(free) = slots.free(self.engine.max_rows(), &worker.stopping).await {
            // Enabled before the claim: a notification wakes the loop even if the claim misses the work.
            let mut wakes = vec![Box::pin(worker.wake.notified())];
            wakes.extend(local.iter().map(|listener| Box::pin(listener.notified())));
            for wake in &mut wakes {
                let _ = wake.as_mut().enable();
            }
            self.engine.tick(self.now).await;
            let mut poll =
                Poll { engine: self.engine, slots, free, granted: 0, full: false, next_due: None, now: None };
            match self.engine.poll(&mut poll).await {
                Ok(()) => {
                    self.now = poll.now;
                    self.adapt(poll.granted);
                    if !poll.full && !poll.free.is_empty() {
                        let wait = self.wait(poll.granted, poll.next_due.zip(poll.now));
                        self.idle(wait, select_all(wakes).map(drop)).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(target: WORKER, engine = E::NAME, %error, "claim failed");
                    worker.back_off(&error).await;
                }
            }
        }
        slots.drain(worker.options.shutdown_timeout, &worker.cut).await;
        self.engine.stopped().await;
    }

    /// Adapts the hint delay: hints that lead to grants are followed closely.
    fn adapt(&mut self, granted: usize) {
        if std::mem::take(&mut self.hinted) {
            let longer = (self.hint_delay * 2).min(self.engine.max_hint_delay());
            self.hint_delay = if granted > 0 { MIN_POLL_DELAY } else { longer };
        }
    }

    /// Returns how long the loop waits after a poll that left slots free, from the next due time and the store's clock.
    fn wait(&self, granted: usize, next_due: Option<(Timestamp, Timestamp)>) -> Duration {
        let longest = self.engine.worker().options.poll_interval;
        let Some((due, now)) = next_due.filter(|_| granted == 0) else {
            return if granted > 0 { SHORT_WAIT.min(longest) } else { longest };
        };
        if self.engine.skip_to(due, now) {
            return Duration::ZERO;
        }
        due.since(now).max(MIN_POLL_DELAY).min(longest)
    }

    async fn idle(&mut self, wait: Duration, woken: impl Future<Output = ()>) {
        let worker = self.engine.worker();
        let polled = process::now();
        tokio::select! {
            biased;
            () = worker.stopping.cancelled() => {}
            () = woken => {}
            () = idle::hinted(&mut self.hints, polled + self.hint_delay) => self.hinted = true,
            () = sleep_until(polled + wait) => {}
        }
    }
}

/// One poll of an engine: the free slots, and the result so far.
pub(crate) struct Poll<'a, E> {
    engine: &'a Arc<E>,
    slots: &'a mut Slots,
    free: Vec<Slot>,
    granted: usize,
    /// Whether a claim returned as many rows as one claim may.
    full: bool,
    next_due: Option<Timestamp>,
    /// The store's clock at the last claim or read.
    now: Option<Timestamp>,
}

impl<E: Engine> Poll<'_, E> {
    /// Returns the number of free slots.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Claims up to `limit` rows, and executes each grant in a slot. A grant holds a `permit` of the engine while it runs.
    /// Returns the number of grants.
    pub(crate) async fn claim<P: Send + 'static>(
        &mut self,
        spec: ClaimSpec,
        limit: usize,
        mut permit: impl FnMut() -> P,
    ) -> Result<usize, StoreError> {
        let ClaimSpec { queues, lease_ttl, events } = spec;
        let most = CLAIM_ROWS.min(CLAIM_EVENTS / events.max(1)).max(1);
        let limit = limit.min(most).min(self.free.len());
        if limit == 0 || queues.is_empty() {
            return Ok(0);
        }
        let worker = self.engine.worker();
        let claim = Claim::queues(&worker.owner, queues, limit, lease_ttl).with_events(events);
        worker.polls.add(1);
        let sent = process::now();
        let claimed = worker.claims.send(claim).await?;
        let granted = claimed.grants.len();
        for grant in claimed.grants {
            self.slots.execute(self.engine, grant, lease_ttl, sent, (permit(), self.free.pop()));
        }
        self.granted += granted;
        self.full |= granted == most;
        self.due_at(claimed.next_at, claimed.now);
        Ok(granted)
    }

    /// Notes when work becomes due, by the store's clock. The loop sleeps no longer than until the earliest of these instants.
    pub(crate) fn due_at(&mut self, due: Option<Timestamp>, now: Timestamp) {
        self.next_due = [self.next_due, due].into_iter().flatten().min();
        self.now = Some(now);
    }
}

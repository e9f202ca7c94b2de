//! Combined mutation: many mutators, one draft, one compare-and-swap.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::notify::WriteReport;
use super::storage::{Plan, Wrote, version_of};
use super::{CachedRecord, Carried, Check, Combiner, Pending, Ran};
use crate::id::{DocVersion, OpId};
use crate::process;
use crate::runtime::backoff::CONFLICT;
use crate::runtime::panic::{discard, isolate, reason};
use crate::state::WriteOutcome;
use crate::state::codec::Value;
use crate::state::error::StateError;
use crate::state::mutator::{End, StartedMutation};
use crate::store::ApplyError;

/// A write that succeeded.
struct Done {
    plan: Plan,
    version: DocVersion,
    attempts: u32,
    begun: Instant,
}

/// The two halves of a batch, in order.
type Halves<T> = (Vec<Ran<T>>, Vec<Ran<T>>);

impl<T: Value> Combiner<T> {
    /// Runs mutators in order on one draft and writes it, retrying while other processes are faster.
    pub(super) async fn mutate(&self, mut batch: Vec<Pending<T>>) {
        let mut known = self.known.lock().await;
        // A failed read is reported by the attempt that follows. Mutations that arrive during the wait join the write.
        drop(self.await_turn(&mut known).await);
        self.fill(&mut batch);
        let mut groups = vec![batch.into_iter().filter_map(Ran::of).collect()];
        while let Some(group) = groups.pop() {
            if let Some((first, second)) = self.mutate_group(group, &mut known).await {
                groups.push(second);
                groups.push(first);
            }
        }
    }

    /// Writes a group. Returns its halves when the store rejects the combined value. The caller then writes them one
    /// after the other, so that a rejected value fails only its own mutation.
    async fn mutate_group(&self, mut waiting: Vec<Ran<T>>, known: &mut CachedRecord<T>) -> Option<Halves<T>> {
        let (mut attempts, mut careful, begun) = (0, false, process::now());
        loop {
            waiting = wanted(waiting);
            if waiting.is_empty() {
                return None;
            }
            let base = match self.base(known).await {
                Ok(base) => base,
                Err(error) => return self.give_up(waiting, &error),
            };
            let started = process::now();
            let draft = self.run_all(&mut waiting, &base.value, careful).await;
            let plan = match self.plan(&base, draft.as_ref()) {
                Ok(plan) => plan,
                // One of the values cannot be encoded: each is now encoded on its own, so that it fails alone.
                Err(_) if !careful => {
                    careful = true;
                    discard(draft);
                    known.carried = Some(base);
                    continue;
                }
                Err(reason) => return self.give_up(waiting, &self.invalid(reason)),
            };
            let id = OpId::new();
            if !waiting.iter().all(|ran| !ran.fine || ran.mutation.write(id)) {
                // A caller left after its mutator ran: the draft is made again without it.
                waiting.iter().for_each(|ran| ran.mutation.again());
                discard(draft);
                known.carried = Some(base);
                continue;
            }
            attempts += 1;
            match self.send(&plan, waiting.len(), id, base.epoch).await {
                Wrote::Done(version) => {
                    if !matches!(plan, Plan::Confirm(_)) {
                        known.contention.wrote(process::elapsed(started), process::now());
                    }
                    let done = Done { plan, version, attempts, begun };
                    known.carried = self.settled(waiting, base, draft, done);
                    return None;
                }
                Wrote::Failed(error) => {
                    discard((base, draft));
                    return self.after_failure(waiting, &error);
                }
                // A caller that left resolved the id. The mutations of the others get a new one.
                Wrote::Void => {
                    waiting.iter().for_each(|ran| ran.mutation.again());
                    discard(draft);
                    known.carried = Some(base);
                }
                // Nothing was written, and no other process was faster: it does not count as a conflict.
                Wrote::OtherEpoch => {
                    discard((base, draft));
                    waiting.iter().for_each(|ran| ran.mutation.again());
                    CONFLICT.wait(attempts, None).await;
                }
                // The winner's value is not adopted: after the wait it would be stale.
                Wrote::Conflict(found) => {
                    discard((base, draft));
                    let current = version_of(&found);
                    waiting = self.after_conflict(waiting, attempts, current);
                    known.contention.lost(
                        current.map(|version| version.0),
                        process::elapsed(started),
                        process::now(),
                    );
                }
            }
        }
    }

    /// Fails a whole group.
    fn give_up(&self, waiting: Vec<Ran<T>>, error: &StateError) -> Option<Halves<T>> {
        self.fail(waiting, error);
        None
    }

    /// Fails a group, or returns its halves when the store rejects what several mutators made together.
    fn after_failure(&self, mut waiting: Vec<Ran<T>>, error: &StateError) -> Option<Halves<T>> {
        if waiting.len() == 1 || !is_rejected(error) {
            return self.give_up(waiting, error);
        }
        waiting.iter().for_each(|ran| ran.mutation.again());
        let second = waiting.split_off(waiting.len() / 2);
        Some((waiting, second))
    }

    /// Counts a lost attempt. Returns the mutations that have attempts left.
    fn after_conflict(
        &self,
        waiting: Vec<Ran<T>>,
        attempts: u32,
        current: Option<DocVersion>,
    ) -> Vec<Ran<T>> {
        waiting.iter().for_each(|ran| ran.mutation.conflict(current));
        self.give_up_late(waiting, attempts, current)
    }

    /// Runs every mutator on the draft. A mutator that fails leaves the draft as it was before it. Returns `None` when no
    /// change is in it. In careful mode, every new value is also encoded.
    async fn run_all(&self, waiting: &mut [Ran<T>], base: &T, careful: bool) -> Option<T> {
        let (mut draft, mut spare): (Option<T>, Option<T>) = (None, None);
        for ran in waiting {
            (ran.fine, ran.failure) = (false, None);
            let input = match spare.take() {
                Some(input) => Ok(input),
                None => self.cloned(draft.as_ref().unwrap_or(base)),
            };
            let changed = match input {
                Ok(input) => self.run_one(ran, input).await,
                Err(error) => Err(error),
            };
            match changed.and_then(|changed| self.accepted(changed, careful)) {
                Ok(Some((changed, copy))) => {
                    ran.fine = true;
                    spare = Some(copy);
                    discard(draft.replace(changed));
                }
                Ok(None) => {}
                Err(error) => ran.failure = Some(error),
            }
        }
        discard(spare);
        draft
    }

    /// Runs one mutator. Returns `None` when it refused or panicked, or when its caller left.
    async fn run_one(&self, ran: &mut Ran<T>, input: T) -> Result<Option<T>, StateError> {
        const WHAT: &str = "the mutator";
        let running = isolate(WHAT, || ran.mutator.run(input, &ran.within));
        let mut running = match running.map_err(|reason| self.panicked(reason))? {
            StartedMutation::Now(changed) => return Ok(changed),
            StartedMutation::Later(running) => running,
        };
        let changed = tokio::select! {
            biased;
            () = ran.mutation.gone() => Ok(None),
            changed = AssertUnwindSafe(running.as_mut()).catch_unwind() => changed,
        };
        discard(running);
        changed.map_err(|panic| self.panicked(reason(WHAT, panic)))
    }

    /// Accepts a new value that is valid and can be cloned. Returns it with the clone for the next mutator: a value that
    /// cannot be cloned fails the mutation that made it, and not the next one.
    fn accepted(&self, changed: Option<T>, careful: bool) -> Result<Option<(T, T)>, StateError> {
        let Some(changed) = changed else { return Ok(None) };
        let refused = self.refusal(&changed, careful).map(|reason| self.invalid(reason));
        match refused.map_or_else(|| self.cloned(&changed), Err) {
            Ok(copy) => Ok(Some((changed, copy))),
            Err(error) => {
                discard(changed);
                Err(error)
            }
        }
    }

    fn cloned(&self, value: &T) -> Result<T, StateError> {
        isolate("the clone of the value", || value.clone()).map_err(|reason| self.panicked(reason))
    }

    /// Returns why a new value is invalid, if it is.
    fn refusal(&self, changed: &T, careful: bool) -> Option<String> {
        let check = |check: &Check<T>| isolate("the check", || check(changed)).flatten().err();
        let refused = self.check.as_ref().and_then(check);
        refused.or_else(|| if careful { self.content(changed).err() } else { None })
    }

    /// Reports the end to every caller. Returns the new state of the record.
    fn settled(
        &self,
        waiting: Vec<Ran<T>>,
        base: Carried<T>,
        draft: Option<T>,
        done: Done,
    ) -> Option<Carried<T>> {
        let Done { plan, version, attempts, begun } = done;
        let outcome = match plan {
            Plan::Confirm(_) => WriteOutcome::Unchanged { version },
            Plan::Put(..) | Plan::Delete(_) => WriteOutcome::Committed { version },
        };
        let new = match &plan {
            Plan::Confirm(_) => base.found.as_ref().map(|(_, value)| value),
            Plan::Put(_, value) => Some(value),
            Plan::Delete(_) => None,
        };
        let old = base.found.as_ref().map(|(_, value)| value);
        self.observed(waiting.iter(), WriteReport { old, new, outcome, attempts, begun });
        for mut ran in waiting {
            let end = match ran.failure.take() {
                Some(error) => End::Failed(error),
                // A mutator that refused reports its own reason.
                None if !ran.fine => End::ItsOwn,
                None => End::Did(outcome),
            };
            ran.end(end);
        }
        let found = new.map(|value| (version, value.clone()));
        match draft {
            Some(mut value) if !matches!(plan, Plan::Confirm(_)) => {
                self.codec.mark_written(&mut value);
                let carried = Carried { found, value, epoch: base.epoch };
                discard(base);
                Some(carried)
            }
            unwritten => {
                discard(unwritten);
                Some(base)
            }
        }
    }

    /// Fails the mutations whose attempts are used up. Returns the others.
    fn give_up_late(&self, waiting: Vec<Ran<T>>, attempts: u32, current: Option<DocVersion>) -> Vec<Ran<T>> {
        let most = self.options.attempts.unwrap_or(u32::MAX);
        let (late, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|ran| ran.mutation.conflicts() >= most);
        let key = self.name();
        self.fail(late, &StateError::ConcurrentModification { key, attempts, current });
        rest
    }

    fn invalid(&self, reason: String) -> StateError {
        StateError::Invalid { key: self.name(), reason }
    }
}

/// Keeps the mutations whose callers still wait.
fn wanted<T>(waiting: Vec<Ran<T>>) -> Vec<Ran<T>> {
    let (wanted, left): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|ran| ran.mutation.run());
    left.into_iter().for_each(discard);
    wanted
}

/// Returns whether the store rejected the batch itself, so that a smaller one may pass.
fn is_rejected(error: &StateError) -> bool {
    matches!(error, StateError::Write(error) if matches!(**error, ApplyError::Refused(_)))
}

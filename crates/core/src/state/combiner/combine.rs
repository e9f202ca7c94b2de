//! Many mutators, one draft, one write.

use std::time::Instant;

use super::observed::Told;
use super::record::{Plan, Wrote, version_of};
use super::{Carried, Cell, Check, Pending, Ran};
use crate::id::{DocVersion, OpId};
use crate::runtime::backoff::CONFLICT;
use crate::runtime::panic::isolate;
use crate::state::Outcome;
use crate::state::codec::Value;
use crate::state::error::StateError;
use crate::state::mutator::{End, Running};

/// How a write came about.
struct Done {
    plan: Plan,
    version: DocVersion,
    attempts: u32,
    begun: Instant,
}

impl<T: Value> Cell<T> {
    /// Runs mutators in order on one draft and writes it, again and again while others are faster.
    pub(super) async fn mutate(&self, batch: Vec<Pending<T>>) {
        let mut waiting: Vec<Ran<T>> = batch.into_iter().filter_map(Ran::of).collect();
        let mut carried = self.carried.lock().await;
        let (mut attempts, mut careful, begun) = (0, false, Instant::now());
        loop {
            waiting.retain(|ran| ran.ticket.run());
            if waiting.is_empty() {
                return;
            }
            let base = match self.base(&mut carried).await {
                Ok(base) => base,
                Err(error) => return self.fail(waiting, &error),
            };
            let draft = self.run_all(&mut waiting, base.value.clone(), careful).await;
            let changed = waiting.iter().any(|ran| ran.fine);
            let plan = match self.plan(&base, &draft, changed) {
                Ok(plan) => plan,
                // Somebody's value cannot be written: each is looked at on its own, so that the others can.
                Err(_) if !careful => {
                    careful = true;
                    continue;
                }
                Err(reason) => return self.fail(waiting, &self.invalid(reason)),
            };
            let id = OpId::new();
            if !waiting.iter().all(|ran| !ran.fine || ran.ticket.write(id)) {
                // Somebody went away after its mutator ran: the draft is made again without it.
                waiting.iter().for_each(|ran| ran.ticket.again());
                continue;
            }
            attempts += 1;
            match self.send(&plan, waiting.len(), id, base.epoch).await {
                Wrote::Done(version) => {
                    let done = Done { plan, version, attempts, begun };
                    *carried = self.settled(waiting, base, draft, done);
                    return;
                }
                Wrote::Failed(error) => {
                    *carried = None;
                    return self.fail(waiting, &error);
                }
                // The caller that left gave its mutation up. Those of the others go under a new id.
                Wrote::Void => waiting.iter().for_each(|ran| ran.ticket.again()),
                // Nothing was written, and nobody was faster: it is not a conflict that counts.
                Wrote::OtherEpoch => {
                    *carried = None;
                    waiting.iter().for_each(|ran| ran.ticket.again());
                    CONFLICT.wait(attempts, None).await;
                }
                Wrote::Conflict(found) => {
                    let current = version_of(&found);
                    waiting.iter().for_each(|ran| ran.ticket.conflict(current));
                    *carried = self.adopt(found, base.epoch).ok();
                    waiting = self.give_up_late(waiting, attempts, current);
                    CONFLICT.wait(attempts, None).await;
                }
            }
        }
    }

    /// Runs every mutator on the draft. One that fails leaves the draft as it was before it. Careful, every new value is also
    /// tried for whether it can be written.
    async fn run_all(&self, waiting: &mut [Ran<T>], mut draft: T, careful: bool) -> T {
        for ran in waiting {
            let changed = match ran.mutator.run(draft.clone(), self.number) {
                Running::Now(changed) => changed,
                // Nobody waits for a mutator that nobody wants.
                Running::Later(running) => tokio::select! {
                    changed = running => changed,
                    () = ran.ticket.gone() => None,
                },
            };
            ran.invalid = changed.as_ref().and_then(|changed| self.refusal(changed, careful));
            ran.fine = changed.is_some() && ran.invalid.is_none();
            if let Some(changed) = changed.filter(|_| ran.fine) {
                draft = changed;
            }
        }
        draft
    }

    /// Why a new value cannot be, if it cannot.
    fn refusal(&self, changed: &T, careful: bool) -> Option<String> {
        let check = |check: &Check<T>| isolate("the check", || check(changed)).flatten().err();
        let refused = self.check.as_ref().and_then(check);
        refused.or_else(|| if careful { self.content(changed).err() } else { None })
    }

    /// Tells everybody how it ended; gives what is known of the record now.
    fn settled(
        &self,
        waiting: Vec<Ran<T>>,
        base: Carried<T>,
        mut draft: T,
        done: Done,
    ) -> Option<Carried<T>> {
        let Done { plan, version, attempts, begun } = done;
        let outcome = match plan {
            Plan::Confirm(_) => Outcome::Unchanged { version },
            Plan::Put(..) | Plan::Delete(_) => Outcome::Committed { version },
        };
        let new = match &plan {
            Plan::Confirm(_) => base.found.as_ref().map(|(_, value)| value),
            Plan::Put(_, value) => Some(value),
            Plan::Delete(_) => None,
        };
        let old = base.found.as_ref().map(|(_, value)| value);
        self.observed(waiting.iter(), Told { old, new, outcome, attempts, begun });
        for ran in waiting {
            let end = match ran.invalid {
                Some(reason) => End::Failed(self.invalid(reason)),
                // Those that refused tell their own reason.
                None if !ran.fine => End::ItsOwn,
                None => End::Did(outcome),
            };
            ran.mutator.end(end);
        }
        if matches!(plan, Plan::Confirm(_)) {
            return Some(base);
        }
        self.codec.settle(&mut draft);
        Some(Carried { found: new.map(|value| (version, value.clone())), value: draft, epoch: base.epoch })
    }

    /// Those whose attempts are used up hear of it; the others stay.
    fn give_up_late(&self, waiting: Vec<Ran<T>>, attempts: u32, current: Option<DocVersion>) -> Vec<Ran<T>> {
        let most = self.options.attempts.unwrap_or(u32::MAX);
        let (late, rest): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|ran| ran.ticket.conflicts() >= most);
        let container = self.name();
        self.fail(late, &StateError::ConcurrentModification { container, attempts, current });
        rest
    }

    fn invalid(&self, reason: String) -> StateError {
        StateError::Invalid { container: self.name(), reason }
    }
}

//! Plans of operator commands, built once as batches. A plan names its rows, so the counted rows are the changed rows. A
//! row may change between the plan and its commit; the store's operations skip rows to which they no longer apply.
//!
//! A command on few rows is one atomic batch. A command on many rows is applied in steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::error::ReactionsError;
use super::filter::ReactionFilter;
use super::keys;
use super::operator::Operator;
use super::row_note::RowNote;
use super::stored::Stored;
use crate::clock::{Due, Timestamp};
use crate::id::Priority;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Effect, Expect, NewWork, Operation, WorkRow};

/// An operator command on keys of reactions. Each variant is documented at the [`Operator`] method of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorVerb {
    /// [`Operator::unblock`]
    Unblock,
    /// [`Operator::reset`]
    Reset,
    /// [`Operator::retry_now`]
    RetryNow,
    /// [`Operator::prioritize`]
    Prioritize(Priority),
    /// [`Operator::park`]
    Park,
    /// [`Operator::replay_parked`]
    ReplayParked,
    /// [`Operator::drop_parked`]
    DropParked,
}

/// The approximate limit of rows or documents per step.
const STEP: usize = 2_000;

/// A command that is ready to apply.
#[must_use = "nothing is done before it is given to Operator::apply_plan"]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationPlan {
    steps: VecDeque<Step>,
    rows: Vec<Key>,
}

/// A part of a plan that is one commit.
#[derive(Clone, Debug, Default, PartialEq)]
struct Step {
    batch: Batch,
    weight: usize,
    /// The number of changes that count, apart from the rows that the store's operations report.
    changed: u64,
    /// Whether the rows of each store operation count, in order.
    counts: Vec<bool>,
}

impl OperationPlan {
    fn of(rows: Vec<Key>) -> Self {
        Self { steps: VecDeque::new(), rows }
    }

    /// Adds a batch to the last step, or to a new one when the last is full.
    fn add(&mut self, batch: Batch, weight: usize, changed: u64) {
        if self.steps.back().is_none_or(|step| step.weight > 0 && step.weight + weight > STEP) {
            self.steps.push_back(Step::default());
        }
        if let Some(step) = self.steps.back_mut() {
            let verbs =
                batch.effects().iter().filter(|effect| matches!(effect, Effect::Operate { .. })).count();
            step.counts.extend(std::iter::repeat_n(false, verbs));
            step.batch = std::mem::take(&mut step.batch).and(batch);
            (step.weight, step.changed) = (step.weight + weight, step.changed + changed);
        }
    }

    /// Adds a store operation whose rows count.
    fn operate(&mut self, rows: &[Key], operation: Operation) {
        self.add(Batch::new().operate(ReactionFilter::these(rows), operation), rows.len(), 0);
        if let Some(counts) = self.steps.back_mut().and_then(|step| step.counts.last_mut()) {
            *counts = true;
        }
    }

    /// Returns the number of selected rows or events.
    #[must_use]
    pub fn affected(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the selected keys, one per row or event. A router is returned as the key of its row.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.rows.iter().map(|row| keys::reaction_row(row).map_or_else(|| row.clone(), |(_, key)| key))
    }

    /// Adds a batch that commits together with the first step.
    pub fn with_batch(mut self, batch: Batch) -> Self {
        if self.steps.is_empty() {
            self.steps.push_back(Step::default());
        }
        if let Some(step) = self.steps.front_mut() {
            step.batch = std::mem::take(&mut step.batch).and(batch);
        }
        self
    }

    /// Returns the number of remaining commits.
    #[must_use]
    pub fn steps_left(&self) -> usize {
        self.steps.len()
    }
}

/// Adds to a batch the removal of a deferral that the handler of a row asked for. Without it, a row that an operator makes
/// due would be deferred again. Other rows are left unchanged.
#[must_use]
pub fn clear_backoff(batch: Batch, row: &WorkRow, now: Timestamp) -> Batch {
    let of_a_key = matches!(keys::Row::read(&row.key), Some(keys::Row::Key { .. }));
    if !of_a_key || !matches!(RowNote::of(row), Some(RowNote::PutOff { .. })) {
        return batch;
    }
    let work = NewWork::standing(row.key.clone(), row.queue.clone()).priority(row.priority);
    let due = Due::At(row.due.unwrap_or(now));
    batch.enqueue(NewWork { due, expect: Expect::Exists, ..work }.payload(Payload::null()))
}

impl Operator {
    /// Plans a command on the current rows. [`apply_plan`](Self::apply_plan) applies exactly this plan, without selecting
    /// again.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, or the error of the store.
    pub async fn plan(
        &self,
        verb: OperatorVerb,
        which: &ReactionFilter,
    ) -> Result<OperationPlan, ReactionsError> {
        self.known(which).await?;
        match verb {
            OperatorVerb::Unblock => self.operation(which, Operation::Unblock).await,
            OperatorVerb::Prioritize(priority) => {
                self.operation(which, Operation::Prioritize(priority)).await
            }
            OperatorVerb::Reset => self.resetting(which).await,
            OperatorVerb::RetryNow => self.retrying(which).await,
            OperatorVerb::Park => self.parking(which).await,
            OperatorVerb::ReplayParked => self.replaying(which).await,
            OperatorVerb::DropParked => self.dropping(which).await,
        }
    }

    /// Applies a plan, and returns the number of changed rows or events. A [dry run](Self::dry_run) only returns the
    /// planned number.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn apply_plan(&self, mut plan: OperationPlan) -> Result<u64, ReactionsError> {
        let would = plan.affected();
        if self.is_dry_run() || would == 0 {
            return Ok(would);
        }
        let mut changed = 0;
        while let Some(more) = self.apply_step(&mut plan).await? {
            changed += more;
        }
        Ok(changed)
    }

    /// Applies the next step of a plan, and returns the number of changed rows or events; `None` when no step is left.
    /// After an error the step remains in the plan, so that the next call resumes with it.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn apply_step(&self, plan: &mut OperationPlan) -> Result<Option<u64>, ReactionsError> {
        let Some(step) = plan.steps.front() else { return Ok(None) };
        let receipt = self.store.apply(step.batch.clone()).await?;
        let counted = receipt.operated.iter().zip(&step.counts).filter(|(_, counts)| **counts);
        let changed = step.changed + counted.map(|(rows, _)| *rows).sum::<u64>();
        plan.steps.pop_front();
        Ok(Some(changed))
    }

    /// Plans a store operation on rows of keys, and on routers when whole reactions are selected.
    async fn operation(
        &self,
        which: &ReactionFilter,
        operation: Operation,
    ) -> Result<OperationPlan, ReactionsError> {
        let (mut rows, now) = self.rows(which).await?;
        rows.extend(self.routers(which, operation).await?);
        rows.retain(|row| operation.on(row.clone(), now).as_ref() != Some(row));
        let mut plan = OperationPlan::of(keys_of(&rows));
        for keys in keys_of(&rows).chunks(STEP) {
            plan.operate(keys, operation);
        }
        Ok(plan)
    }

    /// Plans a reset of rows, without their notes. Parked events of streams are handled again with the others. Parked
    /// events of chosen keys have left their inbox, so they are replayed.
    async fn resetting(&self, which: &ReactionFilter) -> Result<OperationPlan, ReactionsError> {
        let rows = self.rows(which).await?.0;
        let definitions: BTreeMap<String, Arc<Stored>> = self.definitions().await?.into_iter().collect();
        let definition = |name: Option<String>| name.and_then(|name| definitions.get(&name));
        let mut plan = OperationPlan::of(keys_of(&rows));
        for rows in rows.chunks(STEP / 2) {
            let mut batch = Batch::new();
            for row in rows {
                let queue =
                    definition(keys::reaction_of(&row.key)).map_or(&row.queue, |found| &found.facts.queue);
                if RowNote::is_on(row) || row.queue != *queue {
                    let work = NewWork::standing(row.key.clone(), queue.clone()).priority(row.priority);
                    let clean = work.payload(Payload::null());
                    batch = batch.enqueue(NewWork { expect: Expect::Exists, ..clean });
                }
            }
            plan.add(batch, rows.len(), 0);
            plan.operate(&keys_of(rows), Operation::Reset);
        }
        let meant: BTreeSet<Key> = plan.rows.iter().cloned().collect();
        for (document, key, position) in self.parked_documents(which.reaction.as_deref()).await? {
            let name = keys::reaction_of(&document.key).unwrap_or_default();
            let row = keys::row(&name, &key)?;
            match definition(Some(name.clone())).filter(|_| meant.contains(&row)) {
                Some(found) if found.facts.keyed => {
                    let replay = keys::replay(&name, &key, position)?;
                    plan.add(Batch::new().enqueue(NewWork::once(replay, found.facts.queue.clone())), 1, 0);
                }
                Some(_) => plan.add(self.forget(Batch::new(), &document, &key, position)?, 2, 0),
                None => {}
            }
        }
        Ok(plan)
    }

    async fn retrying(&self, which: &ReactionFilter) -> Result<OperationPlan, ReactionsError> {
        let (mut waiting, now) = self.rows(which).await?;
        waiting.retain(|row| waits(row, now));
        let mut plan = OperationPlan::of(keys_of(&waiting));
        for rows in waiting.chunks(STEP / 2) {
            plan.add(
                rows.iter().fold(Batch::new(), |batch, row| clear_backoff(batch, row, now)),
                rows.len(),
                0,
            );
            plan.operate(&keys_of(rows), Operation::RetryNow);
        }
        Ok(plan)
    }

    async fn parking(&self, which: &ReactionFilter) -> Result<OperationPlan, ReactionsError> {
        let (mut rows, _) = self.rows(which).await?;
        rows.retain(|row| row.blocked.is_some());
        let mut plan = OperationPlan::of(keys_of(&rows));
        for rows in rows.chunks(STEP / 2) {
            let mut batch = Batch::new();
            for row in rows {
                let error = row.blocked.as_ref().map_or_else(String::new, |blocked| blocked.reason.clone());
                let note = RowNote::Park { position: row.position, error }.payload()?;
                let work = NewWork::standing(row.key.clone(), row.queue.clone())
                    .priority(row.priority)
                    .payload(note);
                batch = batch.enqueue(NewWork { expect: Expect::Exists, ..work });
            }
            plan.add(batch, rows.len(), 0);
            plan.operate(&keys_of(rows), Operation::Unblock);
        }
        Ok(plan)
    }

    async fn replaying(&self, which: &ReactionFilter) -> Result<OperationPlan, ReactionsError> {
        let mut plan = OperationPlan::default();
        for name in self.names(which).await? {
            let queue = self.definition(&name).await?.stored.facts.queue.clone();
            for (_, key, position) in self.meant(&name, which).await? {
                let row = keys::replay(&name, &key, position)?;
                plan.add(Batch::new().enqueue(NewWork::once(row.clone(), queue.clone())), 1, 1);
                plan.rows.push(row);
            }
        }
        Ok(plan)
    }

    async fn dropping(&self, which: &ReactionFilter) -> Result<OperationPlan, ReactionsError> {
        let mut plan = OperationPlan::default();
        for name in self.names(which).await? {
            for (document, key, position) in self.meant(&name, which).await? {
                plan.add(self.forget(Batch::new(), &document, &key, position)?, 2, 1);
                plan.rows.push(keys::replay(&name, &key, position)?);
            }
        }
        Ok(plan)
    }
}

fn keys_of(rows: &[WorkRow]) -> Vec<Key> {
    rows.iter().map(|row| row.key.clone()).collect()
}

/// Returns whether a row is due in the future.
fn waits(row: &WorkRow, now: Timestamp) -> bool {
    row.blocked.is_none() && row.lease.is_none() && row.due.is_some_and(|due| due > now)
}

//! What an operator's verb would do, as one batch that is built once: what was counted is what is changed, because the rows stand in it
//! by name. Between the plan and its commit a row may change; the verbs of the store pass over what they do not concern any more.

use std::collections::BTreeSet;

use super::error::ReactionsError;
use super::names;
use super::notes::RowNote;
use super::operator::Operator;
use super::which::Which;
use crate::clock::{Due, Timestamp};
use crate::id::Priority;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Expect, NewWork, Operation, WorkRow};

/// What an operator does to keys of reactions: each is described at the method of [`Operator`] that has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
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

/// A verb that is ready to be carried out.
#[must_use = "nothing is done before it is given to Operator::carry_out"]
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    batch: Batch,
    rows: Vec<Key>,
    /// How many verbs of the store are at the beginning of the batch whose rows count; `None` when each row counts.
    counted: Option<usize>,
}

impl Plan {
    fn new(rows: Vec<Key>, batch: Batch, counted: Option<usize>) -> Self {
        Self { batch, rows, counted }
    }

    /// How many rows or events are meant.
    #[must_use]
    pub fn would(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The keys that are meant, as many as rows or events are. A router is shown as its row.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.rows.iter().map(|row| names::reaction_row(row).map_or_else(|| row.clone(), |(_, key)| key))
    }

    /// The same, with a batch that commits together with it.
    pub fn beside(mut self, batch: Batch) -> Self {
        self.batch = self.batch.and(batch);
        self
    }
}

/// Adds to a batch that a row of a reaction does not wait any more for what its handler put it off to. Without that, a row that is made
/// due at once puts itself off again. Other rows are left as they are.
#[must_use]
pub fn forget_put_off(batch: Batch, row: &WorkRow, now: Timestamp) -> Batch {
    let of_a_key = matches!(names::Row::read(&row.key), Some(names::Row::Key { .. }));
    if !of_a_key || !matches!(RowNote::of(row), Some(RowNote::PutOff { .. })) {
        return batch;
    }
    let work = NewWork::standing(row.key.clone(), row.lane.clone()).priority(row.priority);
    let due = Due::At(row.due.unwrap_or(now));
    batch.enqueue(NewWork { due, expect: Expect::Exists, ..work }.payload(Payload::null()))
}

impl Operator {
    /// What a verb would do now. [`carry_out`](Self::carry_out) does exactly that, and not what is meant by then.
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, and what the store says.
    pub async fn plan(&self, verb: Verb, which: &Which) -> Result<Plan, ReactionsError> {
        self.known(which).await?;
        match verb {
            Verb::Unblock => self.operation(which, Operation::Unblock).await,
            Verb::Prioritize(priority) => self.operation(which, Operation::Prioritize(priority)).await,
            Verb::Reset => self.resetting(which).await,
            Verb::RetryNow => self.retrying(which).await,
            Verb::Park => self.parking(which).await,
            Verb::ReplayParked => self.replaying(which).await,
            Verb::DropParked => self.dropping(which).await,
        }
    }

    /// Does what was planned, and says how many rows or events were changed. A [dry run](Self::dry_run) says how many would be.
    ///
    /// # Errors
    /// What the store says.
    pub async fn carry_out(&self, plan: Plan) -> Result<u64, ReactionsError> {
        let would = plan.would();
        if self.is_dry_run() || would == 0 {
            return Ok(would);
        }
        let receipt = self.store.apply(plan.batch).await?;
        Ok(plan.counted.map_or(would, |first| receipt.operated.iter().take(first).sum()))
    }

    /// A verb of the store, on rows of keys, and on routers where a whole reaction is meant.
    async fn operation(&self, which: &Which, operation: Operation) -> Result<Plan, ReactionsError> {
        let now = self.store.now().await?;
        let mut rows = self.rows(which).await?;
        rows.extend(self.routers(which, operation).await?);
        rows.retain(|row| operation.on(row.clone(), now).as_ref() != Some(row));
        let keys = keys_of(&rows);
        let batch = Batch::new().operate(Which::these(&keys), operation);
        Ok(Plan::new(keys, batch, Some(1)))
    }

    async fn resetting(&self, which: &Which) -> Result<Plan, ReactionsError> {
        let keys = keys_of(&self.rows(which).await?);
        let mut batch = Batch::new().operate(Which::these(&keys), Operation::Reset);
        let meant: BTreeSet<&Key> = keys.iter().collect();
        for (document, key, position) in self.parked_documents(which.reaction.as_deref()).await? {
            let name = names::reaction_of(&document.key).unwrap_or_default();
            if meant.contains(&names::row(&name, &key)?) {
                batch = self.forget(batch, &document, &key, position)?;
            }
        }
        Ok(Plan::new(keys, batch, Some(1)))
    }

    async fn retrying(&self, which: &Which) -> Result<Plan, ReactionsError> {
        let now = self.store.now().await?;
        let mut waiting = self.rows(which).await?;
        waiting.retain(|row| waits(row, now));
        let batch = waiting.iter().fold(Batch::new(), |batch, row| forget_put_off(batch, row, now));
        let keys = keys_of(&waiting);
        let batch = batch.operate(Which::these(&keys), Operation::RetryNow);
        Ok(Plan::new(keys, batch, Some(1)))
    }

    async fn parking(&self, which: &Which) -> Result<Plan, ReactionsError> {
        let mut rows = self.rows(which).await?;
        rows.retain(|row| row.blocked.is_some());
        let mut batch = Batch::new();
        for row in &rows {
            let error = row.blocked.as_ref().map_or_else(String::new, |blocked| blocked.reason.clone());
            let note = RowNote::Park { position: row.position, error }.payload()?;
            let work =
                NewWork::standing(row.key.clone(), row.lane.clone()).priority(row.priority).payload(note);
            batch = batch.enqueue(NewWork { expect: Expect::Exists, ..work });
        }
        let keys = keys_of(&rows);
        let batch = batch.operate(Which::these(&keys), Operation::Unblock);
        Ok(Plan::new(keys, batch, Some(1)))
    }

    async fn replaying(&self, which: &Which) -> Result<Plan, ReactionsError> {
        let (mut batch, mut rows) = (Batch::new(), Vec::new());
        for name in self.names(which).await? {
            let (_, noted) = self.definition(&name).await?;
            for (_, key, position) in self.meant(&name, which).await? {
                let row = names::replay(&name, &key, position)?;
                batch = batch.enqueue(NewWork::once(row.clone(), noted.lane.clone()));
                rows.push(row);
            }
        }
        Ok(Plan::new(rows, batch, None))
    }

    async fn dropping(&self, which: &Which) -> Result<Plan, ReactionsError> {
        let (mut batch, mut rows) = (Batch::new(), Vec::new());
        for name in self.names(which).await? {
            for (document, key, position) in self.meant(&name, which).await? {
                batch = self.forget(batch, &document, &key, position)?;
                rows.push(names::replay(&name, &key, position)?);
            }
        }
        Ok(Plan::new(rows, batch, None))
    }
}

fn keys_of(rows: &[WorkRow]) -> Vec<Key> {
    rows.iter().map(|row| row.key.clone()).collect()
}

/// Whether a row waits for its time.
fn waits(row: &WorkRow, now: Timestamp) -> bool {
    row.blocked.is_none() && row.lease.is_none() && row.due.is_some_and(|due| due > now)
}

//! Operator commands for reactions. A command on few rows is one atomic batch; a command on many rows is applied in steps.

use std::sync::Arc;

use super::error::ReactionsError;
use super::filter::ReactionFilter;
use super::keys;
use super::operation::OperatorVerb;
use super::parked::Note;
use super::register::applied;
use super::stored::{State, Stored, StoredAt};
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::id::{Position, Priority};
use crate::key::Key;
use crate::store::{
    Batch, Expect, Get, Operation, Page, Selection, SharedStore, StoredDocument, WorkFilter, WorkRow, limits,
};

/// The number of rows or documents that are read at once.
const PAGE: usize = 1_000;

/// An operator of reactions, outside the processes that run them. It needs the store, and no code of the reactions.
///
/// The commands return the number of rows or events that they changed. A command on thousands of rows is several commits.
/// If one fails, the commits before it persist. [`apply_step`](Self::apply_step) shows the progress and resumes.
///
/// ```
/// # use std::sync::Arc;
/// use tidelock_core::reactions::{Operator, ReactionFilter};
/// # use tidelock_core::store::{MemoryStore, SharedStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: SharedStore = Arc::new(MemoryStore::new());
/// let operator = Operator::new(store);
/// let would = operator.clone().dry_run().unblock(&ReactionFilter::blocked()).await?;
/// let did = operator.unblock(&ReactionFilter::blocked()).await?;
/// assert_eq!(would, did);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Operator {
    pub(super) store: SharedStore,
    dry_run: bool,
}

impl Operator {
    /// Creates an operator on this store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, dry_run: false }
    }

    /// Turns on dry-run mode: commands change nothing, and return the number of changes that they would make.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Unblocks keys. They resume at once where they stopped, with a fresh retry budget. A blocked router is unblocked as
    /// well, if the selection covers its whole reaction.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, or the error of the store.
    pub async fn unblock(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::Unblock, which).await?).await
    }

    /// Restarts keys from the first event of their stream, or from the remaining events of their inbox. Their holders are
    /// fenced off. Parked events of streams are handled again with the others, so they are removed from the dead letters.
    /// Parked events of chosen keys are replayed. An earlier [`park`](Self::park) and deferrals by handlers are dropped.
    ///
    /// Committed effects of handlers are not undone. To restart a whole reaction, including its routing, see
    /// [`reset_reaction`](Self::reset_reaction).
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn reset(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::Reset, which).await?).await
    }

    /// Restarts a whole reaction from the first event of the log. Its router returns to the beginning, and its rows,
    /// inboxes and parked events are removed. All events are routed and handled again, exactly once. Workers of the
    /// reaction are fenced off.
    ///
    /// Committed effects of handlers are not undone, so clear a projection first. Returns the number of removed keys.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn reset_reaction(&self, name: &str) -> Result<u64, ReactionsError> {
        let rows = ReactionFilter::of(name).filter()?;
        loop {
            let found = self.definition(name).await?;
            let keys = self.store.count_work(&rows).await?;
            if self.dry_run {
                return Ok(keys);
            }
            if found.stored.state == State::Resetting {
                return self.finish_reset(name).await;
            }
            let next = Stored { state: State::Resetting, ..found.stored.begun_again() };
            // The router restarts in the same batch. Its holder is fenced off, and no event is routed to rows that will be
            // removed.
            let router = Selection::Keys(vec![keys::router(name)?]);
            let batch = found.replace(name, &next)?.operate(router, Operation::Reset);
            if applied(self.store.apply(batch).await)? {
                self.finish_reset(name).await?;
                return Ok(keys);
            }
        }
    }

    /// Completes the reset of a reaction in steps. It removes rows, parked events and inboxes of earlier generations, and
    /// then reactivates the reaction. Processes that run the reaction also do this, in case the process that started the
    /// reset has died. Returns the number of removed keys.
    pub(super) async fn finish_reset(&self, name: &str) -> Result<u64, ReactionsError> {
        let removed = self.remove_rows(name).await?;
        self.remove_parked(name).await?;
        let generation = self.definition(name).await?.stored.generation;
        self.empty_inboxes(name, generation).await?;
        loop {
            let found = self.definition(name).await?;
            if found.stored.state != State::Resetting || found.stored.generation != generation {
                return Ok(removed);
            }
            let next = Stored { state: State::Active, has_rows: false, ..(*found.stored).clone() };
            if applied(self.store.apply(found.replace(name, &next)?).await)? {
                return Ok(removed);
            }
        }
    }

    /// Retries keys at once that wait for a backoff or a deferral.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn retry_now(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::RetryNow, which).await?).await
    }

    /// Changes the priority of keys. It lasts until the next event of the key is routed.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn prioritize(
        &self,
        which: &ReactionFilter,
        priority: Priority,
    ) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::Prioritize(priority), which).await?).await
    }

    /// Parks the event at which each blocked key stopped, and lets the key continue with the next one. A worker does this
    /// when it claims the row. Keys that are not blocked are skipped.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn park(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::Park, which).await?).await
    }

    /// Replays parked events once, each on its own. Handled events are removed from the dead letters. Events that fail
    /// again stay parked with the new error. No worker handles other events of the key during the replay.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn replay_parked(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::ReplayParked, which).await?).await
    }

    /// Drops parked events permanently.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn drop_parked(&self, which: &ReactionFilter) -> Result<u64, ReactionsError> {
        self.apply_plan(self.plan(OperatorVerb::DropParked, which).await?).await
    }

    /// Returns the routers that an operation includes: blocked ones, when it unblocks whole reactions.
    pub(super) async fn routers(
        &self,
        which: &ReactionFilter,
        operation: Operation,
    ) -> Result<Vec<WorkRow>, ReactionsError> {
        let everything = which.reaction.is_none() || which.whole().is_some();
        if operation != Operation::Unblock || !everything {
            return Ok(Vec::new());
        }
        let queue = Some(keys::routers()?);
        let filter = WorkFilter { queue, blocked: Some(true), ..WorkFilter::default() };
        let only = which.reaction.as_deref().map(keys::router).transpose()?;
        let (found, _) = self.all_rows(&filter).await?;
        Ok(found.into_iter().filter(|row| only.as_ref().is_none_or(|only| *only == row.key)).collect())
    }

    /// Returns the current state of the selected rows.
    pub(super) async fn rows(
        &self,
        which: &ReactionFilter,
    ) -> Result<(Vec<WorkRow>, Timestamp), ReactionsError> {
        let filter = which.filter()?;
        let Some(named) = which.rows()? else { return self.all_rows(&filter).await };
        let gets: Vec<Get> = named.into_iter().map(Get::Work).collect();
        let (first, rest) = gets.split_at(gets.len().min(limits::READ_ROWS));
        let mut found = self.store.read(first).await?;
        for gets in rest.chunks(limits::READ_ROWS) {
            found.rows.extend(self.store.read(gets).await?.rows);
        }
        let rows = (0..gets.len()).filter_map(|index| found.take_work(index));
        Ok((rows.filter(|row| filter.matches(row)).collect(), found.now))
    }

    async fn all_rows(&self, filter: &WorkFilter) -> Result<(Vec<WorkRow>, Timestamp), ReactionsError> {
        let (mut rows, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.works(filter, page).await?;
            rows.extend(found.rows);
            let Some(next) = found.next else { return Ok((rows, found.now)) };
            page = Page::after(&next, PAGE);
        }
    }

    /// Returns the selected parked events of a reaction.
    pub(super) async fn meant(
        &self,
        name: &str,
        which: &ReactionFilter,
    ) -> Result<Vec<(StoredDocument, Key, Position)>, ReactionsError> {
        let mut meant = Vec::new();
        for (document, key, position) in self.parked_documents(Some(name)).await? {
            if which.means(&key, position)? {
                meant.push((document, key, position));
            }
        }
        Ok(meant)
    }

    /// Returns all parked events of a reaction, or of all reactions.
    pub(super) async fn parked_documents(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<(StoredDocument, Key, Position)>, ReactionsError> {
        let range = name.map_or_else(keys::every_parked, keys::all_parked);
        let (mut all, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.documents(&range, page).await?;
            for document in found.rows {
                if let Some((key, position)) = keys::read_parked(&document.key) {
                    all.push((document, key, position));
                }
            }
            let Some(next) = found.next else { return Ok(all) };
            page = Page::after(&next, PAGE);
        }
    }

    /// Adds the removal of a parked event and of its replay to a batch.
    pub(super) fn forget(
        &self,
        batch: Batch,
        document: &StoredDocument,
        key: &Key,
        position: Position,
    ) -> Result<Batch, InvalidInput> {
        let name = keys::reaction_of(&document.key).unwrap_or_default();
        let replay = vec![keys::replay(&name, key, position)?];
        let batch = batch.delete(&document.key, Expect::Exact(document.version));
        Ok(batch.operate(Selection::Keys(replay), Operation::Remove))
    }

    /// Returns the names of the selected reactions.
    pub(super) async fn names(&self, which: &ReactionFilter) -> Result<Vec<String>, ReactionsError> {
        self.known(which).await?;
        match &which.reaction {
            Some(name) => Ok(vec![name.clone()]),
            None => Ok(self.definitions().await?.into_iter().map(|(name, _)| name).collect()),
        }
    }

    pub(super) async fn known(&self, which: &ReactionFilter) -> Result<(), ReactionsError> {
        which.check()?;
        match &which.reaction {
            Some(name) => self.definition(name).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the stored definition of a reaction that was not ended.
    pub(super) async fn definition(&self, name: &str) -> Result<StoredAt, ReactionsError> {
        let found = StoredAt::read(&self.store, name).await?;
        match found.filter(|found| found.stored.state != State::Ended) {
            Some(found) => Ok(found),
            None => {
                let known = self.definitions().await?.into_iter().map(|(name, _)| name).collect();
                Err(ReactionsError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    /// Returns all reactions that were registered on the store and not ended.
    pub(super) async fn definitions(&self) -> Result<Vec<(String, Arc<Stored>)>, ReactionsError> {
        let mut all = self.definitions_and_tombstones().await?;
        all.retain(|(_, stored)| stored.state != State::Ended);
        Ok(all)
    }

    pub(super) async fn definitions_and_tombstones(
        &self,
    ) -> Result<Vec<(String, Arc<Stored>)>, ReactionsError> {
        let (mut all, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.documents(&keys::all_definitions(), page).await?;
            for document in &found.rows {
                if let Some(name) = keys::reaction_of(&document.key) {
                    all.push((name, StoredAt::of(document)?.stored));
                }
            }
            let Some(next) = found.next else { return Ok(all) };
            page = Page::after(&next, PAGE);
        }
    }
}

impl Note {
    /// Decodes the document of a parked event.
    pub(super) fn read(document: &StoredDocument) -> Result<Self, InvalidInput> {
        document.value.parse()
    }
}

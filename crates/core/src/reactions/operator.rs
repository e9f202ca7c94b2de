//! The operator's verbs: each is one batch, so that it is done as a whole or not at all.

use super::definition::Noted;
use super::error::ReactionsError;
use super::names;
use super::parked::Note;
use super::plan::Verb;
use super::which::Which;
use crate::error::InvalidInput;
use crate::id::{Position, Priority};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{
    Batch, Document, Expect, Operation, Page, Selection, SharedStore, WorkFilter, WorkRow, limits,
};

/// How many rows or documents are read at once.
const PAGE: usize = 1_000;

/// Somebody who looks after reactions from outside: it needs the store, and none of the code of the reactions.
///
/// The verbs return how many rows or events they changed. Rows may be a hundred thousand at once at most.
///
/// ```
/// # use std::sync::Arc;
/// use tidelock_core::reactions::{Operator, Which};
/// # use tidelock_core::store::{MemoryStore, SharedStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: SharedStore = Arc::new(MemoryStore::new());
/// let operator = Operator::new(store);
/// let would = operator.clone().dry_run().unblock(&Which::blocked()).await?;
/// let did = operator.unblock(&Which::blocked()).await?;
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
    /// An operator on this store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self { store, dry_run: false }
    }

    /// An operator that changes nothing, and says what it would have changed.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Blocked keys go on where they stopped, with a fresh budget, at once. So does a router that was blocked, if everything
    /// of its reaction is meant.
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, and what the store says.
    pub async fn unblock(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::Unblock, which).await?).await
    }

    /// Keys begin again with the first event of their stream, or with what their inbox still holds. Who works on them is
    /// fenced off. Parked events of these keys are handled again with the others, so they are not parked any more.
    ///
    /// What handlers did before is not undone. To begin again as a whole, routing included, see
    /// [`reset_reaction`](Self::reset_reaction).
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn reset(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::Reset, which).await?).await
    }

    /// Begins a reaction again as a whole, from the first event of the log: its router goes back to the beginning, and its
    /// rows, inboxes and parked events are forgotten. So everything is routed and handled again, exactly once. Who works for
    /// it is fenced off.
    ///
    /// What handlers did before is not undone: clear a projection first. Returns how many keys were forgotten.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn reset_reaction(&self, name: &str) -> Result<u64, ReactionsError> {
        let (document, noted) = self.definition(name).await?;
        let which = Which::of(name);
        let next = Noted { generation: noted.generation.saturating_add(1), keyed: None, ..noted };
        let expect = Expect::Exact(document.version);
        let rows = which.filter()?;
        let count = self.store.count_work(&rows).await?;
        // The row of the router is first: from then on its holder is fenced off, and nothing is routed to rows that go.
        let mut batch = Batch::new()
            .put(&document.key, expect, Payload::of(&next)?)
            .operate(Selection::Keys(vec![names::router(name)?]), Operation::Reset)
            .operate(Selection::Filter(rows), Operation::Remove);
        for (document, key, position) in self.parked_documents(Some(name)).await? {
            batch = self.forget(batch, &document, &key, position)?;
        }
        if self.dry_run {
            return Ok(count);
        }
        let receipt = self.store.apply(batch).await?;
        Ok(receipt.operated.get(1).copied().unwrap_or_default())
    }

    /// Keys that wait after a failure, or put themselves off, are tried at once.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn retry_now(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::RetryNow, which).await?).await
    }

    /// Keys get another urgency. It lasts until the next event of the key is routed.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn prioritize(&self, which: &Which, priority: Priority) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::Prioritize(priority), which).await?).await
    }

    /// Sets the event aside that each blocked key stands before, and lets the key go on with the next one. A worker does so
    /// as soon as it gets the row. Keys that are not blocked are passed over.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn park(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::Park, which).await?).await
    }

    /// Tries parked events once more, each on its own. Those that are handled are not parked any more; those that fail again
    /// stay, with the new error. A key whose event is replayed is not worked on meanwhile.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn replay_parked(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::ReplayParked, which).await?).await
    }

    /// Drops parked events for good.
    ///
    /// # Errors
    /// As [`unblock`](Self::unblock).
    pub async fn drop_parked(&self, which: &Which) -> Result<u64, ReactionsError> {
        self.carry_out(self.plan(Verb::DropParked, which).await?).await
    }

    /// The routers that are meant: blocked ones only.
    pub(super) async fn routers(
        &self,
        which: &Which,
        operation: Operation,
    ) -> Result<Vec<WorkRow>, ReactionsError> {
        let everything = which.reaction.is_none() || which.whole().is_some();
        if operation != Operation::Unblock || !everything {
            return Ok(Vec::new());
        }
        let lane = Some(names::routers()?);
        let filter = WorkFilter { lane, blocked: Some(true), ..WorkFilter::default() };
        let only = which.reaction.as_deref().map(names::router).transpose()?;
        let found = self.all_rows(&filter).await?;
        Ok(found.into_iter().filter(|row| only.as_ref().is_none_or(|only| *only == row.key)).collect())
    }

    /// The rows that are meant, as they are now.
    pub(super) async fn rows(&self, which: &Which) -> Result<Vec<WorkRow>, ReactionsError> {
        let filter = which.filter()?;
        let Some(named) = which.rows()? else { return self.all_rows(&filter).await };
        let mut rows = Vec::new();
        for key in named {
            rows.extend(self.store.work(&key).await?.filter(|row| filter.matches(row)));
        }
        Ok(rows)
    }

    async fn all_rows(&self, filter: &WorkFilter) -> Result<Vec<WorkRow>, ReactionsError> {
        let (mut rows, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.works(filter, page).await?;
            rows.extend(found.rows);
            // More are refused by every verb, so that no more are read either.
            limits::within("the number of rows", "what is meant", rows.len(), limits::OPERATE_ROWS)?;
            let Some(next) = found.next else { return Ok(rows) };
            page = Page::after(&next, PAGE);
        }
    }

    /// The parked events of a reaction that are meant.
    pub(super) async fn meant(
        &self,
        name: &str,
        which: &Which,
    ) -> Result<Vec<(Document, Key, Position)>, ReactionsError> {
        let mut meant = Vec::new();
        for (document, key, position) in self.parked_documents(Some(name)).await? {
            if which.means(&key, position)? {
                meant.push((document, key, position));
            }
        }
        Ok(meant)
    }

    /// All parked events of a reaction, or of all.
    pub(super) async fn parked_documents(
        &self,
        name: Option<&str>,
    ) -> Result<Vec<(Document, Key, Position)>, ReactionsError> {
        let range = name.map_or_else(names::every_parked, names::all_parked);
        let (mut all, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.documents(&range, page).await?;
            for document in found.rows {
                if let Some((key, position)) = names::read_parked(&document.key) {
                    all.push((document, key, position));
                }
            }
            let Some(next) = found.next else { return Ok(all) };
            page = Page::after(&next, PAGE);
        }
    }

    /// A parked event is not parked any more, nor replayed.
    pub(super) fn forget(
        &self,
        batch: Batch,
        document: &Document,
        key: &Key,
        position: Position,
    ) -> Result<Batch, InvalidInput> {
        let name = names::reaction_of(&document.key).unwrap_or_default();
        let replay = vec![names::replay(&name, key, position)?];
        let batch = batch.delete(&document.key, Expect::Exact(document.version));
        Ok(batch.operate(Selection::Keys(replay), Operation::Remove))
    }

    /// The reactions that are meant.
    pub(super) async fn names(&self, which: &Which) -> Result<Vec<String>, ReactionsError> {
        self.known(which).await?;
        match &which.reaction {
            Some(name) => Ok(vec![name.clone()]),
            None => Ok(self.definitions().await?.into_iter().map(|(name, _)| name).collect()),
        }
    }

    pub(super) async fn known(&self, which: &Which) -> Result<(), ReactionsError> {
        which.check()?;
        match &which.reaction {
            Some(name) => self.definition(name).await.map(drop),
            None => Ok(()),
        }
    }

    /// What is noted about a reaction.
    pub(super) async fn definition(&self, name: &str) -> Result<(Document, Noted), ReactionsError> {
        match self.store.document(&names::definition(name)?).await? {
            Some(document) => {
                let noted = Noted::read(&document)?;
                Ok((document, noted))
            }
            None => {
                let known = self.definitions().await?.into_iter().map(|(name, _)| name).collect();
                Err(ReactionsError::Unknown { name: name.to_owned(), known })
            }
        }
    }

    /// All reactions that have ever run on the store.
    pub(super) async fn definitions(&self) -> Result<Vec<(String, Noted)>, ReactionsError> {
        let (mut all, mut page) = (Vec::new(), Page::first(PAGE));
        loop {
            let found = self.store.documents(&names::all_definitions(), page).await?;
            for document in &found.rows {
                if let Some(name) = names::reaction_of(&document.key) {
                    all.push((name, Noted::read(document)?));
                }
            }
            let Some(next) = found.next else { return Ok(all) };
            page = Page::after(&next, PAGE);
        }
    }
}

impl Note {
    /// Reads what is kept of a parked event.
    pub(super) fn read(document: &Document) -> Result<Self, InvalidInput> {
        document.value.parse()
    }
}

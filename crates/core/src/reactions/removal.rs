//! Completion check and end of a reaction.

use super::error::ReactionsError;
use super::filter::ReactionFilter;
use super::keys;
use super::operator::Operator;
use super::stored::{State, Stored, StoredAt};
use crate::id::Position;
use crate::key::Key;
use crate::store::limits::TRUNCATE_EVENTS;
use crate::store::{Batch, Expect, Get, LogQuery, Operation, Page, Pattern, StreamInfo, WorkFilter};

/// The number of rows or documents that are read or removed at once.
const PAGE: usize = 1_000;

impl Operator {
    /// Returns the reason why a reaction has work left; `None` when it has none. New work may have arrived since the check.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, or the error of the store.
    pub async fn behind(&self, name: &str) -> Result<Option<&'static str>, ReactionsError> {
        let stored = self.definition(name).await?.stored;
        if stored.state != State::Active || !stored.is_complete() {
            return Ok(Some("its definition is being prepared"));
        }
        let Some(router) = self.store.work(&keys::router(name)?).await? else {
            return Ok(Some("nothing was routed to it yet"));
        };
        if router.blocked.is_some() {
            return Ok(Some("its router is blocked"));
        }
        let mut from = router.position.unwrap_or(Position(0));
        loop {
            let query = LogQuery { filter: stored.filter(), ..LogQuery::after(from, PAGE) };
            let page = self.store.read_log(query).await?;
            if page.events.iter().any(|event| stored.wants(event)) {
                return Ok(Some("events wait to be routed"));
            }
            from = page.scanned_to.map_or(from, |to| to.max(from));
            if page.end {
                break;
            }
        }
        let (filter, mut page) = (ReactionFilter::of(name).filter()?, Page::first(PAGE));
        loop {
            let found = self.store.works(&filter, page).await?;
            if found.rows.iter().any(|row| row.blocked.is_some()) {
                return Ok(Some("a key is blocked"));
            }
            if found.rows.iter().any(|row| row.due.is_some() || row.lease.is_some()) {
                return Ok(Some("keys have events to handle"));
            }
            let Some(next) = found.next else { break };
            page = Page::after(&next, PAGE);
        }
        let parked = self.store.documents(&keys::all_parked(name), Page::first(1)).await?;
        Ok((!parked.rows.is_empty()).then_some("events are parked"))
    }

    /// Ends a reaction. Its rows, inboxes and parked events are removed in steps. A tombstone of its definition stays, so
    /// programs with this definition do nothing for it, even after a restart. To run it again, give it another definition
    /// ([`Reaction::revision`](super::Reaction::revision)). Returns the number of keys that were removed.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Unknown`] when the reaction does not exist, [`ReactionsError::Running`] when a process
    /// routes to it, or the error of the store. Completed steps persist; call it again.
    pub async fn end_reaction(&self, name: &str) -> Result<u64, ReactionsError> {
        let found = StoredAt::read(&self.store, name).await?;
        let rows = ReactionFilter::of(name).filter()?;
        let found = match found {
            // Completes an end that was interrupted.
            Some(found) if found.stored.state == State::Ended && self.leaves_anything(name).await? => found,
            _ => self.definition(name).await?,
        };
        if self.is_dry_run() {
            return Ok(self.store.count_work(&rows).await?);
        }
        let router = keys::router(name)?;
        let mut read = self.store.read(&[Get::Work(router.clone())]).await?;
        if let Some(lease) = read.take_work(0).and_then(|row| row.lease)
            && !lease.until.has_come(read.now)
        {
            return Err(ReactionsError::Running { name: name.to_owned(), owner: lease.owner });
        }
        // The tombstone and the removal of the router are one commit. After it, no event is routed and no row is created.
        let ended = Stored { state: State::Ended, ..(*found.stored).clone() };
        let batch = found.replace(name, &ended)?.operate(ReactionFilter::these(&[router]), Operation::Remove);
        self.store.apply(batch).await?;
        let removed = self.remove_rows(name).await?;
        self.remove_parked(name).await?;
        self.empty_inboxes(name, u64::MAX).await?;
        Ok(removed)
    }

    /// Returns the names of all reactions that were registered on the store, including ended ones.
    pub(crate) async fn registered(&self) -> Result<Vec<String>, ReactionsError> {
        Ok(self.definitions_and_tombstones().await?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns whether a reaction has rows or parked events left.
    async fn leaves_anything(&self, name: &str) -> Result<bool, ReactionsError> {
        let rows = self.store.works(&ReactionFilter::of(name).filter()?, Page::first(1)).await?;
        let parked = self.store.documents(&keys::all_parked(name), Page::first(1)).await?;
        Ok(!rows.rows.is_empty() || !parked.rows.is_empty())
    }

    /// Removes the rows of a reaction in steps, for keys and for replays. Returns the number of removed keys.
    pub(super) async fn remove_rows(&self, name: &str) -> Result<u64, ReactionsError> {
        let mut removed = [0, 0];
        let patterns = [keys::rows_matching(Some(name), None), keys::replays_matching(name)];
        for (pattern, removed) in patterns.iter().zip(&mut removed) {
            let filter = WorkFilter { pattern: Some(Pattern::new(pattern)?), ..WorkFilter::default() };
            loop {
                let found = self.store.works(&filter, Page::first(PAGE)).await?;
                if found.rows.is_empty() {
                    break;
                }
                let names: Vec<Key> = found.rows.into_iter().map(|row| row.key).collect();
                let batch = Batch::new().operate(ReactionFilter::these(&names), Operation::Remove);
                *removed += self.store.apply(batch).await?.operated.iter().sum::<u64>();
            }
        }
        let [keys, _] = removed;
        Ok(keys)
    }

    /// Removes the parked events of a reaction in steps.
    pub(super) async fn remove_parked(&self, name: &str) -> Result<(), ReactionsError> {
        loop {
            let found = self.store.documents(&keys::all_parked(name), Page::first(PAGE)).await?.rows;
            if found.is_empty() {
                return Ok(());
            }
            let deleted = found.iter().fold(Batch::new(), |batch, row| batch.delete(&row.key, Expect::Any));
            self.store.apply(deleted).await?;
        }
    }

    /// Empties the inboxes of generations before this one. Their names stay, as those of all streams do.
    pub(super) async fn empty_inboxes(&self, name: &str, before: u64) -> Result<(), ReactionsError> {
        let (range, mut page) = (keys::all_inboxes(name), Page::first(PAGE));
        loop {
            let found = self.store.streams(&range, page).await?;
            let old = found.rows.into_iter().filter(|inbox| keys::is_inbox_before(&inbox.key, before));
            for StreamInfo { key, head, first, .. } in old {
                let (Some(head), Some(mut first)) = (head, first) else { continue };
                while first <= head {
                    first.0 = first.0.saturating_add(TRUNCATE_EVENTS).min(head.next().0);
                    self.store.apply(Batch::new().truncate(&key, first)).await?;
                }
            }
            let Some(next) = found.next else { return Ok(()) };
            page = Page::after(&next, PAGE);
        }
    }
}

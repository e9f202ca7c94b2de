//! Whether a reaction has done all there is, and the end of one that is not wanted any more.

use super::error::ReactionsError;
use super::names;
use super::operator::Operator;
use super::which::Which;
use crate::id::Position;
use crate::key::Key;
use crate::store::limits::TRUNCATE_EVENTS;
use crate::store::{Batch, Expect, LogQuery, Operation, Page, StreamInfo};

/// How many rows or documents are looked at or removed at once.
const PAGE: usize = 1_000;

impl Operator {
    /// Why a reaction has not done all there is; `None` when it has. It may have got something to do since it was looked at.
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, and what the store says.
    pub async fn behind(&self, name: &str) -> Result<Option<&'static str>, ReactionsError> {
        let interest = self.definition(name).await?.1.interest();
        let Some(router) = self.store.work(&names::router(name)?).await? else {
            return Ok(Some("nothing was routed to it yet"));
        };
        if router.blocked.is_some() {
            return Ok(Some("its router is blocked"));
        }
        let mut from = router.position.unwrap_or(Position(0));
        loop {
            let query = LogQuery { filter: interest.filter(), ..LogQuery::after(from, PAGE) };
            let page = self.store.read_log(query).await?;
            if page.events.iter().any(|event| interest.wants(event)) {
                return Ok(Some("events wait to be routed"));
            }
            from = page.scanned_to.map_or(from, |to| to.max(from));
            if page.end {
                break;
            }
        }
        let (filter, mut page) = (Which::of(name).filter()?, Page::first(PAGE));
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
        let parked = self.store.documents(&names::all_parked(name), Page::first(1)).await?;
        Ok((!parked.rows.is_empty()).then_some("events are parked"))
    }

    /// Ends a reaction that is not wanted any more: its rows, inboxes and parked events go, in steps, and at last what is
    /// noted about it. Nobody may run it. Returns how many keys it had.
    ///
    /// # Errors
    /// [`ReactionsError::Unknown`] when there is no such reaction, [`ReactionsError::Running`] when somebody runs it, and what
    /// the store says. What was done stays; call it again.
    pub async fn end_reaction(&self, name: &str) -> Result<u64, ReactionsError> {
        let (document, _) = self.definition(name).await?;
        let which = Which::of(name);
        let rows = which.filter()?;
        let keys = self.store.count_work(&rows).await?;
        if self.is_dry_run() {
            return Ok(keys);
        }
        let router = names::router(name)?;
        let now = self.store.now().await?;
        if let Some(lease) = self.store.work(&router).await?.and_then(|row| row.lease)
            && !lease.until.has_come(now)
        {
            return Err(ReactionsError::Running { name: name.to_owned(), owner: lease.owner });
        }
        self.store.apply(Batch::new().operate(Which::these(&[router]), Operation::Remove)).await?;
        loop {
            let found = self.store.works(&rows, Page::first(PAGE)).await?;
            if found.rows.is_empty() {
                break;
            }
            let names: Vec<Key> = found.rows.into_iter().map(|row| row.key).collect();
            self.store.apply(Batch::new().operate(Which::these(&names), Operation::Remove)).await?;
        }
        self.drop_parked(&which).await?;
        self.empty_inboxes(name).await?;
        self.store.apply(Batch::new().delete(&document.key, Expect::Any)).await?;
        Ok(keys)
    }

    /// Removes what inboxes hold. Their names stay, as those of all streams do.
    async fn empty_inboxes(&self, name: &str) -> Result<(), ReactionsError> {
        let (range, mut page) = (names::all_inboxes(name), Page::first(PAGE));
        loop {
            let found = self.store.streams(&range, page).await?;
            for StreamInfo { key, head, first, .. } in found.rows {
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

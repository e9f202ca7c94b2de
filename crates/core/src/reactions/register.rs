//! Registration of a definition, and its consequences in the store.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::definition::{Definition, head};
use super::error::ReactionsError;
use super::keys::{self, Row};
use super::operator::Operator;
use super::stored::{DefinitionState, State, Stored, StoredAt};
use crate::clock::Due;
use crate::events::StartFrom;
use crate::id::{Position, QueueName};
use crate::lease::NEVER;
use crate::payload::Payload;
use crate::process;
use crate::store::{
    ApplyError, Batch, Expect, NewWork, Page, Receipt, Refusal, SharedStore, StoreError, WorkFilter, WorkRow,
};

/// The number of rows that are read at once.
const PAGE: usize = 1_000;

impl Definition {
    /// Registers the definition at the start of a process. The newest registration wins: facts that are neither stored nor
    /// remembered as replaced become the stored ones. Facts that were replaced or ended are not restored.
    pub(super) async fn register(&self, store: &SharedStore) -> Result<(), ReactionsError> {
        loop {
            let found = StoredAt::read(store, &self.name).await?;
            let next = match &found {
                None => Some(Stored::first(&self.facts)),
                Some(StoredAt { stored, .. }) => self.successor(stored)?,
            };
            let Some(next) = next else { break };
            let batch = match &found {
                Some(found) => found.replace(&self.name, &next)?,
                None => {
                    let document = keys::definition(&self.name)?;
                    Batch::new().put(&document, Expect::Absent, Payload::of(&next)?)
                }
            };
            if applied(store.apply(batch).await)? {
                let (reaction, number) = (&self.name, next.number);
                tracing::info!(target: crate::telemetry::REACTIONS, %reaction, number, "definition registered");
                break;
            }
        }
        self.prepare(store).await
    }

    /// Returns the definition that replaces the stored one; `None` when the stored one stays.
    fn successor(&self, stored: &Stored) -> Result<Option<Stored>, ReactionsError> {
        // A lower revision never replaces a higher one, even when it registers for the first time.
        let known = stored.facts == self.facts
            || stored.replaced(&self.facts)
            || self.facts.revision < stored.facts.revision;
        if stored.state == State::Ended {
            return Ok((!known && !self.ends_for_good).then(|| stored.replaced_by(&self.facts)));
        }
        if stored.has_rows && stored.facts.keyed != self.facts.keyed {
            let way = |keyed| if keyed { "keys that it chooses" } else { "streams" };
            let (was, is) = (way(stored.facts.keyed), way(self.facts.keyed));
            return Err(ReactionsError::Changed { name: self.name.to_string(), was, is });
        }
        if stored.facts == self.facts {
            return Ok((!stored.has_rows).then(|| Stored { has_rows: true, ..stored.clone() }));
        }
        Ok((!known).then(|| stored.replaced_by(&self.facts)))
    }

    /// Completes registrations and resets that this process, or one that died, has started. It bounds replaced filters,
    /// creates the router, removes old rows and moves rows out of former queues.
    pub(super) async fn prepare(&self, store: &SharedStore) -> Result<(), ReactionsError> {
        let found = loop {
            let Some(found) = StoredAt::read(store, &self.name).await? else { return Ok(()) };
            match self.compare(Some(&found.stored)) {
                DefinitionState::Current if self.has_router(store, &found).await? => break found,
                // The router was created, or the definition has changed.
                DefinitionState::Current => {}
                DefinitionState::Preparing if found.stored.state == State::Resetting => {
                    Operator::new(SharedStore::clone(store)).finish_reset(&self.name).await?;
                }
                DefinitionState::Preparing => {
                    // Read after the registration, so that all commits of older processes lie before it.
                    let next = found.stored.completed(head(store).await?);
                    applied(store.apply(found.replace(&self.name, &next)?).await)?;
                }
                DefinitionState::Superseded | DefinitionState::Ended => return Ok(()),
            }
        };
        for queue in found.stored.former_queues() {
            self.move_rows(store, &queue).await?;
        }
        Ok(())
    }

    /// Returns whether the router has its row and the definition records that rows exist. Otherwise writes both, and
    /// returns `false`.
    async fn has_router(&self, store: &SharedStore, found: &StoredAt) -> Result<bool, ReactionsError> {
        let router = keys::router(&self.name)?;
        let missing = store.work(&router).await?.is_none();
        if found.stored.has_rows && !missing {
            return Ok(true);
        }
        let mut batch = found.replace(&self.name, &Stored { has_rows: true, ..(*found.stored).clone() })?;
        if missing {
            let position = Some(first_position(store, self.start).await?);
            let standing = NewWork::standing(router, keys::routers()?).due(Due::At(NEVER));
            batch = batch.enqueue(NewWork { position, ..standing });
        }
        applied(store.apply(batch).await)?;
        Ok(false)
    }

    /// Compares the definition with the stored one, and completes an incomplete registration or reset. It also searches the
    /// queues of earlier definitions repeatedly, because a process that was suspended may add a row there when it resumes.
    pub(super) async fn refresh(&self, store: &SharedStore) -> Result<(), ReactionsError> {
        let Some(found) = StoredAt::read(store, &self.name).await? else { return Ok(()) };
        match self.compare(Some(&found.stored)) {
            DefinitionState::Preparing => self.prepare(store).await,
            DefinitionState::Current => {
                let former = found.stored.former_queues();
                if former.is_empty() || !self.sweep.is_due() {
                    return Ok(());
                }
                let mut moved = 0;
                for queue in former {
                    moved += self.move_rows(store, &queue).await?;
                }
                self.sweep.done(moved > 0);
                Ok(())
            }
            DefinitionState::Superseded | DefinitionState::Ended => Ok(()),
        }
    }

    /// Moves rows with pending work to the queue of the reaction. Resting rows move when they are woken. Returns the number
    /// of moved rows.
    async fn move_rows(&self, store: &SharedStore, from: &QueueName) -> Result<usize, ReactionsError> {
        let mut count = 0;
        let filter = WorkFilter { queue: Some(from.clone()), ..WorkFilter::default() };
        let mut page = Page::first(PAGE);
        loop {
            let found = store.works(&filter, page).await?;
            let busy = |row: &&WorkRow| row.due.is_some() || row.blocked.is_some() || row.lease.is_some();
            let mine = found.rows.iter().filter(busy).filter(|row| Row::is_of(&row.key, &self.name));
            let moved = mine.fold(Batch::new(), |batch, row| {
                let work = NewWork::standing(row.key.clone(), self.queue().clone()).priority(row.priority);
                let due = row.due.map_or(Due::Now, Due::At);
                batch.enqueue(NewWork { expect: Expect::Any, ..work.due(due) })
            });
            if !moved.effects().is_empty() {
                count += moved.effects().len();
                store.apply(moved).await?;
            }
            let Some(next) = found.next else { return Ok(count) };
            page = Page::after(&next, PAGE);
        }
    }
}

/// The schedule of searches in former queues: frequent at first, and with growing intervals while nothing is found.
#[derive(Debug)]
pub(super) struct Sweep(Mutex<(Instant, Duration)>);

/// The longest time between two searches.
const MAX_SWEEP: Duration = Duration::from_secs(30);

impl Default for Sweep {
    fn default() -> Self {
        Self(Mutex::new((process::now(), Duration::ZERO)))
    }
}

impl Sweep {
    fn is_due(&self) -> bool {
        let (last, wait) = *self.0.lock();
        process::elapsed(last) >= wait
    }

    fn done(&self, found: bool) {
        let mut sweep = self.0.lock();
        let longer = sweep.1.mul_f64(1.5).clamp(Duration::from_millis(10), MAX_SWEEP);
        *sweep = (process::now(), if found { Duration::ZERO } else { longer });
    }
}

/// Returns whether a batch was applied; `false` when a document was not as expected.
pub(super) fn applied(applied: Result<Receipt, ApplyError>) -> Result<bool, ApplyError> {
    match applied {
        Ok(_) => Ok(true),
        Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn first_position(store: &SharedStore, start: StartFrom) -> Result<Position, StoreError> {
    Ok(match start {
        StartFrom::Beginning => Position(0),
        StartFrom::After(position) => position,
        StartFrom::Now => head(store).await?,
    })
}

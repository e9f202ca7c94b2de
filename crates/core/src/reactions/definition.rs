//! Checked reaction of this process, compared with the definition in the store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::decide::{Interest, Routing, Rules};
use super::error::ReactionsError;
use super::keys::{self, MAX_NAME_BYTES};
use super::reaction::{Choose, Handler, Reaction};
use super::register::Sweep;
use super::stats::Counters;
use super::stored::{DefinitionContent, DefinitionState, Stored, StoredAt};
use crate::error::InvalidInput;
use crate::events::{StartFrom, Upcasters};
use crate::id::{EventType, Position, QueueName};
use crate::process;
use crate::store::{Direction, LogQuery, SharedStore, StoreError};
use crate::telemetry::REACTIONS;

/// A reaction that has been validated.
pub(super) struct Definition {
    pub(super) name: Arc<str>,
    pub(super) facts: DefinitionContent,
    pub(super) to: Option<Choose>,
    pub(super) handler: Handler,
    pub(super) upcasters: Arc<Upcasters>,
    pub(super) rules: Rules,
    pub(super) ttl: Duration,
    pub(super) events: usize,
    pub(super) together: usize,
    pub(super) start: StartFrom,
    /// Whether the end of the reaction is final, regardless of later definitions. Projections end per version.
    pub(super) ends_for_good: bool,
    pub(super) counters: Counters,
    pub(super) sweep: Sweep,
    seen: Mutex<Option<Seen>>,
    standing: AtomicU8,
}

/// The result of the last read of the stored definition.
struct Seen {
    /// The time at which the read started.
    at: Instant,
    stored: Option<StoredAt>,
}

impl Definition {
    /// Validates a reaction. A reaction without a lease time gets the default.
    pub(super) fn check(reaction: Reaction, default_ttl: Duration) -> Result<Self, ReactionsError> {
        reaction.check_names()?;
        let Reaction {
            name,
            types,
            names: _,
            streams,
            queue,
            to,
            handler,
            upcasters,
            revision,
            retry,
            exhausted,
            lease_ttl,
            events,
            together,
            start,
            ends_for_good,
        } = reaction;
        check_name(&name)?;
        let invalid = |error: InvalidInput| ReactionsError::Invalid { name: name.clone(), error };
        let Some(handler) = handler else { return Err(ReactionsError::NoHandler { name }) };
        let types = types.into_iter().map(EventType::new).collect::<Result<Vec<_>, _>>().map_err(invalid)?;
        let mut types = upcasters.stored_names(types).map_err(invalid)?;
        types.sort_unstable();
        types.dedup();
        let queue = queue.map_or_else(|| keys::own_queue(&name), Ok).map_err(invalid)?;
        let (keyed, shapes) = (to.is_some(), upcasters.shapes());
        let facts =
            DefinitionContent { keyed, interest: Interest { types, streams }, queue, revision, shapes };
        Ok(Self {
            name: name.into(),
            facts,
            to,
            handler,
            upcasters: Arc::new(upcasters),
            rules: Rules { retry, exhausted },
            ttl: lease_ttl.unwrap_or(default_ttl),
            events,
            together,
            start,
            ends_for_good,
            counters: Counters::default(),
            sweep: Sweep::default(),
            seen: Mutex::new(None),
            standing: AtomicU8::new(DefinitionState::Current as u8),
        })
    }

    /// Returns the queue of its rows.
    pub(super) fn queue(&self) -> &QueueName {
        &self.facts.queue
    }

    /// Returns the routing rules under the stored definition.
    pub(super) fn routing<'a>(&'a self, stored: &'a Stored) -> Routing<'a> {
        Routing { name: &self.name, stored, to: self.to.as_ref(), upcasters: &self.upcasters }
    }

    /// Returns whether the handler receives several events at once.
    pub(super) fn several(&self) -> bool {
        matches!(self.handler, Handler::Batch(_))
    }

    /// Returns the result of the last comparison with the stored definition.
    pub(super) fn standing(&self) -> DefinitionState {
        DefinitionState::from(self.standing.load(Ordering::Relaxed))
    }

    /// Compares the definition with the stored one.
    pub(super) fn compare(&self, stored: Option<&Stored>) -> DefinitionState {
        let standing = stored.map_or(DefinitionState::Ended, |stored| stored.standing_of(&self.facts));
        let before = self.standing.swap(standing as u8, Ordering::Relaxed);
        if before != standing as u8 {
            let (reaction, number) = (&self.name, stored.map(|stored| stored.number));
            match standing {
                DefinitionState::Current => {
                    tracing::info!(target: REACTIONS, %reaction, number, "reaction resumed");
                }
                _ => tracing::warn!(target: REACTIONS, %reaction, number, %standing, "reaction suspended"),
            }
        }
        standing
    }

    /// Returns the stored definition, read after this call started; `None` when this process must not work for the
    /// reaction.
    ///
    /// Rows granted before the call hold events from before any later definition. They are handled correctly even if
    /// another definition is registered concurrently. Concurrent calls share one read.
    pub(super) async fn current(&self, store: &SharedStore) -> Result<Option<Arc<Stored>>, ReactionsError> {
        let called = process::now();
        let mut seen = self.seen.lock().await;
        if seen.as_ref().is_none_or(|seen| seen.at < called) {
            let at = process::now();
            let stored = StoredAt::read(store, &self.name).await?;
            *seen = Some(Seen { at, stored });
        }
        let stored = seen.as_ref().and_then(|seen| seen.stored.as_ref());
        let standing = self.compare(stored.map(|found| &*found.stored));
        Ok(stored.filter(|_| standing == DefinitionState::Current).map(|found| Arc::clone(&found.stored)))
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

fn check_name(name: &str) -> Result<(), ReactionsError> {
    let reason = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > MAX_NAME_BYTES {
        format!("it has {} bytes, at most {MAX_NAME_BYTES} are allowed", name.len())
    } else if name.chars().any(char::is_control) {
        "it holds a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(ReactionsError::Name { name: name.chars().take(80).collect(), reason })
}

/// Returns the position of the last event of the log.
pub(super) async fn head(store: &SharedStore) -> Result<Position, StoreError> {
    let last = LogQuery { direction: Direction::Backward, ..LogQuery::all(1) };
    Ok(store.read_log(last).await?.events.first().map_or(Position(0), |event| event.position))
}

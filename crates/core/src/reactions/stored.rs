//! Stored definition of a reaction, as the newest release declares it.
//!
//! There is one document for each reaction. A process works for the reaction only while its own [`DefinitionContent`] are equal to the
//! stored ones. A process with new facts registers them, and they replace the stored ones. Replaced facts are remembered,
//! so that a restarted older release is recognised and neither routes nor handles events.
//!
//! An event is wanted if it matches the current facts and all earlier facts that were replaced after its commit. So an
//! added type applies from its registration on, regardless of the positions of routers and rows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::decide::Interest;
use super::error::ReactionsError;
use super::keys;
use crate::error::InvalidInput;
use crate::id::{DocVersion, Position, QueueName};
use crate::payload::Payload;
use crate::store::{Batch, Event, EventFilter, Expect, SharedStore, StoredDocument};

/// The most replaced definitions that are remembered.
const MAX_EARLIER: usize = 64;

/// The content of a definition. Two releases with equal facts share the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DefinitionContent {
    /// Whether the reaction chooses keys.
    pub(super) keyed: bool,
    #[serde(flatten)]
    pub(super) interest: Interest,
    pub(super) queue: QueueName,
    /// The author's revision, for changes that are not visible otherwise: the key function, or the return to an earlier
    /// definition.
    pub(super) revision: u32,
    /// The event shapes that the handler knows, by stream kind and event type. Shape 1 is omitted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) shapes: BTreeMap<String, u32>,
}

/// A definition that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Earlier {
    #[serde(flatten)]
    pub(super) facts: DefinitionContent,
    /// The last position to which its filter applies. `None` until the process that replaced it has read the end of the
    /// log.
    pub(super) until: Option<Position>,
}

/// The lifecycle state of a reaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The reaction runs.
    #[default]
    Active,
    /// The reaction is being reset: rows and inboxes of the previous generation are removed first.
    Resetting,
    /// The reaction was ended. Only another definition restarts it.
    Ended,
}

/// The stored definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The number of definitions so far, including this one.
    pub(super) number: u64,
    /// The number of resets of the whole reaction. Inboxes belong to a generation.
    pub(super) generation: u64,
    #[serde(flatten)]
    pub(super) facts: DefinitionContent,
    #[serde(default)]
    pub(super) state: State,
    /// Whether rows exist. Their keys are streams or chosen keys, and later definitions must not change that.
    pub(super) has_rows: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<Earlier>,
}

/// A stored definition with its version in the store.
#[derive(Clone, Debug)]
pub(super) struct StoredAt {
    pub(super) stored: Arc<Stored>,
    pub(super) version: DocVersion,
}

/// The relation of a process's definition to the stored one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DefinitionState {
    /// The definitions are equal. The process routes and handles events.
    #[default]
    Current,
    /// A newer definition is stored. The process does nothing for the reaction.
    Superseded,
    /// The reaction was ended. The process does nothing for it.
    Ended,
    /// The reaction is being reset, or its registration is incomplete. Work starts afterwards.
    Preparing,
}

impl From<u8> for DefinitionState {
    fn from(number: u8) -> Self {
        [Self::Current, Self::Superseded, Self::Ended, Self::Preparing]
            .into_iter()
            .find(|standing| *standing as u8 == number)
            .unwrap_or_default()
    }
}

impl fmt::Display for DefinitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::Superseded => "superseded by a newer definition",
            Self::Ended => "ended",
            Self::Preparing => "being prepared",
        })
    }
}

impl Stored {
    /// Creates the first definition of a reaction.
    pub(super) fn first(facts: &DefinitionContent) -> Self {
        let (state, earlier) = (State::Active, Vec::new());
        Self { number: 1, generation: 0, facts: facts.clone(), state, has_rows: true, earlier }
    }

    /// Returns whether the reaction wants an event.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let counts = |earlier: &&Earlier| earlier.until.is_none_or(|until| event.position <= until);
        self.facts.interest.wants(event)
            && self.earlier.iter().filter(counts).all(|earlier| earlier.facts.interest.wants(event))
    }

    /// Returns the part of [`wants`](Self::wants) that a store can filter by.
    pub(super) fn filter(&self) -> EventFilter {
        self.facts.interest.filter()
    }

    /// Compares the facts of a process with this definition.
    pub(super) fn standing_of(&self, facts: &DefinitionContent) -> DefinitionState {
        if self.state == State::Ended {
            return DefinitionState::Ended;
        }
        if self.facts != *facts {
            return DefinitionState::Superseded;
        }
        if self.state == State::Resetting || !self.is_complete() {
            return DefinitionState::Preparing;
        }
        DefinitionState::Current
    }

    /// Returns whether these facts were replaced by later ones.
    pub(super) fn replaced(&self, facts: &DefinitionContent) -> bool {
        self.earlier.iter().any(|earlier| earlier.facts == *facts)
    }

    /// Returns whether the last position of each replaced filter is known.
    pub(super) fn is_complete(&self) -> bool {
        self.earlier.iter().all(|earlier| earlier.until.is_some())
    }

    /// Returns the next definition, with these facts.
    pub(super) fn replaced_by(&self, facts: &DefinitionContent) -> Self {
        let number = self.number.saturating_add(1);
        let mut next = self.clone();
        next.earlier.retain(|earlier| earlier.facts != *facts);
        next.earlier.push(Earlier { facts: self.facts.clone(), until: None });
        if next.earlier.len() > MAX_EARLIER {
            next.earlier.remove(0);
        }
        if self.state == State::Ended {
            // The remains of the ended reaction are removed first.
            next = Self { state: State::Resetting, ..next.begun_again() };
        }
        Self { number, facts: facts.clone(), has_rows: true, ..next }
    }

    /// Returns the definition in a new generation, in which replaced filters apply to no event.
    pub(super) fn begun_again(&self) -> Self {
        let mut next = Self { generation: self.generation.saturating_add(1), ..self.clone() };
        for earlier in &mut next.earlier {
            earlier.until = Some(Position(0));
        }
        next
    }

    /// Returns the definition with all replaced filters bounded by this position.
    pub(super) fn completed(&self, head: Position) -> Self {
        let mut next = self.clone();
        for earlier in &mut next.earlier {
            earlier.until.get_or_insert(head);
        }
        next
    }

    /// Returns the queues of earlier definitions, which may still hold rows.
    pub(super) fn former_queues(&self) -> Vec<QueueName> {
        let mut queues: Vec<QueueName> =
            self.earlier.iter().map(|earlier| earlier.facts.queue.clone()).collect();
        queues.sort_unstable();
        queues.dedup();
        queues.retain(|queue| *queue != self.facts.queue);
        queues
    }
}

impl StoredAt {
    pub(super) fn of(document: &StoredDocument) -> Result<Self, InvalidInput> {
        Ok(Self { stored: Arc::new(document.value.parse()?), version: document.version })
    }

    /// Reads the definition of a reaction.
    pub(super) async fn read(store: &SharedStore, name: &str) -> Result<Option<Self>, ReactionsError> {
        let found = store.document(&keys::definition(name)?).await?;
        Ok(found.as_ref().map(Self::of).transpose()?)
    }

    /// Builds the batch that replaces this definition by another one.
    pub(super) fn replace(&self, name: &str, next: &Stored) -> Result<Batch, InvalidInput> {
        let expect = Expect::Exact(self.version);
        Ok(Batch::new().put(&keys::definition(name)?, expect, Payload::of(next)?))
    }
}

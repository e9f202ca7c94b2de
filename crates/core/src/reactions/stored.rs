//! The definition of a reaction in the store: what the newest release says it is.
//!
//! There is one document for each reaction. A process compares its own [`Facts`] with it and works for the reaction only while
//! both are equal. A process whose facts are new registers them, and they replace the stored ones. Facts that were replaced
//! are remembered, so that an older release that starts again is recognised, and neither routes nor handles anything.
//!
//! An event is wanted if it matches the present facts and all earlier facts that were replaced after it was committed. So a
//! type that is added counts from its registration on, wherever routers and rows stand.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::decide::Interest;
use super::error::ReactionsError;
use super::names;
use crate::error::InvalidInput;
use crate::id::{DocVersion, Lane, Position};
use crate::payload::Payload;
use crate::store::{Batch, Document, Event, EventFilter, Expect, SharedStore};

/// The most replaced definitions that are remembered.
const MAX_EARLIER: usize = 64;

/// What a definition says. Two releases with equal facts share the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Whether it chooses keys.
    pub(super) keyed: bool,
    #[serde(flatten)]
    pub(super) interest: Interest,
    pub(super) lane: Lane,
    /// A number of the author, for changes that show nowhere else: the key function, or the return to an earlier definition.
    pub(super) revision: u32,
    /// The shapes of events that its handler knows, by kind of stream and type. Shape 1 is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) shapes: BTreeMap<String, u32>,
}

/// A definition that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Earlier {
    #[serde(flatten)]
    pub(super) facts: Facts,
    /// Its filter counts for events up to here. `None` until the process that replaced it has read the end of the log.
    pub(super) until: Option<Position>,
}

/// What becomes of the reaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It runs.
    #[default]
    Active,
    /// It is being reset: rows and inboxes of the generation before are removed first.
    Resetting,
    /// It was ended, and nothing brings it back but another definition.
    Ended,
}

/// The stored definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// How many definitions there were, this one included.
    pub(super) number: u64,
    /// How often the reaction was reset as a whole. Inboxes belong to a generation.
    pub(super) generation: u64,
    #[serde(flatten)]
    pub(super) facts: Facts,
    #[serde(default)]
    pub(super) state: State,
    /// Whether rows exist that are kept by streams or by chosen keys, which decides for later definitions.
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

/// How the definition of a process stands to the stored one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Standing {
    /// It is the stored one. The process routes and handles events.
    #[default]
    Current,
    /// A newer one is stored. The process does nothing for the reaction.
    Superseded,
    /// The reaction was ended. The process does nothing for it.
    Ended,
    /// The reaction is being reset, or its registration is not complete. Work starts when it is.
    Preparing,
}

impl From<u8> for Standing {
    fn from(number: u8) -> Self {
        [Self::Current, Self::Superseded, Self::Ended, Self::Preparing]
            .into_iter()
            .find(|standing| *standing as u8 == number)
            .unwrap_or_default()
    }
}

impl fmt::Display for Standing {
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
    /// The first definition of a reaction.
    pub(super) fn first(facts: &Facts) -> Self {
        let (state, earlier) = (State::Active, Vec::new());
        Self { number: 1, generation: 0, facts: facts.clone(), state, has_rows: true, earlier }
    }

    /// Whether the reaction wants an event.
    pub(super) fn wants(&self, event: &Event) -> bool {
        let counts = |earlier: &&Earlier| earlier.until.is_none_or(|until| event.position <= until);
        self.facts.interest.wants(event)
            && self.earlier.iter().filter(counts).all(|earlier| earlier.facts.interest.wants(event))
    }

    /// The part of [`wants`](Self::wants) that a store can look for.
    pub(super) fn filter(&self) -> EventFilter {
        self.facts.interest.filter()
    }

    /// How the facts of a process stand to this definition.
    pub(super) fn standing_of(&self, facts: &Facts) -> Standing {
        if self.state == State::Ended {
            return Standing::Ended;
        }
        if self.facts != *facts {
            return Standing::Superseded;
        }
        if self.state == State::Resetting || !self.is_complete() {
            return Standing::Preparing;
        }
        Standing::Current
    }

    /// Whether these facts were replaced by later ones.
    pub(super) fn replaced(&self, facts: &Facts) -> bool {
        self.earlier.iter().any(|earlier| earlier.facts == *facts)
    }

    /// Whether it is known from which event on each filter counts.
    pub(super) fn is_complete(&self) -> bool {
        self.earlier.iter().all(|earlier| earlier.until.is_some())
    }

    /// The next definition, with these facts.
    pub(super) fn replaced_by(&self, facts: &Facts) -> Self {
        let number = self.number.saturating_add(1);
        let mut next = self.clone();
        next.earlier.retain(|earlier| earlier.facts != *facts);
        next.earlier.push(Earlier { facts: self.facts.clone(), until: None });
        if next.earlier.len() > MAX_EARLIER {
            next.earlier.remove(0);
        }
        if self.state == State::Ended {
            // Whatever the end has left goes first.
            next = Self { state: State::Resetting, ..next.begun_again() };
        }
        Self { number, facts: facts.clone(), has_rows: true, ..next }
    }

    /// The same in a new generation, for which every event of the log counts.
    pub(super) fn begun_again(&self) -> Self {
        let mut next = Self { generation: self.generation.saturating_add(1), ..self.clone() };
        for earlier in &mut next.earlier {
            earlier.until = Some(Position(0));
        }
        next
    }

    /// The same, complete: filters that were replaced count up to this position.
    pub(super) fn completed(&self, head: Position) -> Self {
        let mut next = self.clone();
        for earlier in &mut next.earlier {
            earlier.until.get_or_insert(head);
        }
        next
    }

    /// Queues that rows may still stand in from earlier definitions.
    pub(super) fn former_lanes(&self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = self.earlier.iter().map(|earlier| earlier.facts.lane.clone()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes.retain(|lane| *lane != self.facts.lane);
        lanes
    }
}

impl StoredAt {
    pub(super) fn of(document: &Document) -> Result<Self, InvalidInput> {
        Ok(Self { stored: Arc::new(document.value.parse()?), version: document.version })
    }

    /// Reads the definition of a reaction.
    pub(super) async fn read(store: &SharedStore, name: &str) -> Result<Option<Self>, ReactionsError> {
        let found = store.document(&names::definition(name)?).await?;
        Ok(found.as_ref().map(Self::of).transpose()?)
    }

    /// The batch that puts another definition in the place of this one.
    pub(super) fn replace(&self, name: &str, next: &Stored) -> Result<Batch, InvalidInput> {
        let expect = Expect::Exact(self.version);
        Ok(Batch::new().put(&names::definition(name)?, expect, Payload::of(next)?))
    }
}

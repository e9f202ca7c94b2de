//! Which rows of reactions an operator means.

use super::error::ReactionsError;
use super::names;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::key::Key;
use crate::store::{Pattern, Selection, WorkFilter};

/// Which keys of which reactions an operator means.
///
/// Without any condition ([`Which::blocked`], the default) it means everything that is blocked, and nothing else.
#[must_use = "it does nothing before it is given to an Operator"]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Which {
    pub(super) reaction: Option<String>,
    keys: Option<Vec<Key>>,
    pattern: Option<String>,
    positions: Vec<Position>,
    blocked: bool,
}

impl Which {
    /// Everything that is blocked, of every reaction.
    pub fn blocked() -> Self {
        Self::default()
    }

    /// Every key of a reaction.
    pub fn of(reaction: impl Into<String>) -> Self {
        Self { reaction: Some(reaction.into()), ..Self::default() }
    }

    /// Of these keys only. Keys that the reaction has not seen are passed over.
    pub fn keys(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.keys.get_or_insert_default().extend(keys);
        self
    }

    /// Of keys only whose canonical text matches: `^order ` means all keys of the kind `order`. Literals, `^ $ . .*`.
    pub fn matching(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Of those that are blocked only.
    pub fn that_are_blocked(mut self) -> Self {
        self.blocked = true;
        self
    }

    /// For parked events: of the events at these positions only.
    pub fn at(mut self, positions: impl IntoIterator<Item = Position>) -> Self {
        self.positions.extend(positions);
        self
    }

    /// Whether it means everything of one reaction.
    pub(super) fn whole(&self) -> Option<&str> {
        let all = self.keys.is_none() && self.pattern.is_none() && self.positions.is_empty();
        self.reaction.as_deref().filter(|_| all)
    }

    /// Whether only blocked rows are meant.
    pub(super) fn only_blocked(&self) -> bool {
        self.blocked || self.reaction.is_none()
    }

    /// The rows of named keys; `None` when no keys are named. Each is still to be checked with [`means`](Self::means).
    pub(super) fn rows(&self) -> Result<Option<Vec<Key>>, InvalidInput> {
        let (Some(name), Some(keys)) = (&self.reaction, &self.keys) else { return Ok(None) };
        keys.iter().map(|key| names::row(name, key)).collect::<Result<_, _>>().map(Some)
    }

    /// The rows as a filter. Names are not part of it.
    pub(super) fn filter(&self) -> Result<WorkFilter, InvalidInput> {
        let pattern = names::rows_matching(self.reaction.as_deref(), self.pattern.as_deref());
        let blocked = self.only_blocked().then_some(true);
        Ok(WorkFilter { pattern: Some(Pattern::new(&pattern)?), blocked, ..WorkFilter::default() })
    }

    /// Whether a parked event is meant.
    pub(super) fn means(&self, key: &Key, position: Position) -> Result<bool, InvalidInput> {
        let matches = match &self.pattern {
            Some(pattern) => Pattern::new(pattern)?.matches(key.canonical()),
            None => true,
        };
        let named = self.keys.as_ref().is_none_or(|keys| keys.contains(key));
        let at = self.positions.is_empty() || self.positions.contains(&position);
        Ok(matches && named && at)
    }

    /// The selection of rows that are known by name.
    pub(super) fn these(rows: &[Key]) -> Selection {
        Selection::Keys(rows.to_vec())
    }

    /// Keys and patterns belong to one reaction.
    pub(super) fn check(&self) -> Result<(), ReactionsError> {
        let loose = self.reaction.is_none() && (self.keys.is_some() || self.pattern.is_some());
        if loose {
            let reason = "keys and patterns need the name of a reaction: begin with Which::of";
            return Err(InvalidInput::name("Which", "", reason).into());
        }
        Ok(())
    }
}

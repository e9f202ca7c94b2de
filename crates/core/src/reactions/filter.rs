//! Selection of reaction rows for operator commands.

use super::error::ReactionsError;
use super::keys;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::key::Key;
use crate::store::{Pattern, Selection, WorkFilter};

/// A selection of keys of reactions.
///
/// Without any condition ([`ReactionFilter::blocked`], the default), it selects everything that is blocked, and nothing else.
#[must_use = "it does nothing before it is given to an Operator"]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReactionFilter {
    pub(super) reaction: Option<String>,
    keys: Option<Vec<Key>>,
    pattern: Option<String>,
    positions: Vec<Position>,
    blocked: bool,
}

impl ReactionFilter {
    /// Selects everything that is blocked, of every reaction.
    pub fn blocked() -> Self {
        Self::default()
    }

    /// Selects every key of a reaction.
    pub fn of(reaction: impl Into<String>) -> Self {
        Self { reaction: Some(reaction.into()), ..Self::default() }
    }

    /// Restricts the selection to these keys. Keys that the reaction has not seen are skipped.
    pub fn keys(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.keys.get_or_insert_default().extend(keys);
        self
    }

    /// Restricts the selection to keys whose canonical text matches: `^order ` selects all keys of the kind `order`.
    /// Patterns consist of literals and `^ $ . .*`.
    pub fn matching(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Restricts the selection to blocked keys.
    pub fn blocked_only(mut self) -> Self {
        self.blocked = true;
        self
    }

    /// Restricts a selection of parked events to these positions.
    pub fn at(mut self, positions: impl IntoIterator<Item = Position>) -> Self {
        self.positions.extend(positions);
        self
    }

    /// Returns the reaction, if no keys, pattern or positions restrict the selection.
    pub(super) fn whole(&self) -> Option<&str> {
        let all = self.keys.is_none() && self.pattern.is_none() && self.positions.is_empty();
        self.reaction.as_deref().filter(|_| all)
    }

    /// Returns whether only blocked rows are selected.
    pub(super) fn only_blocked(&self) -> bool {
        self.blocked || self.reaction.is_none()
    }

    /// Returns the rows of the named keys; `None` when no keys are named. The caller still checks each row with
    /// [`filter`](Self::filter).
    pub(super) fn rows(&self) -> Result<Option<Vec<Key>>, InvalidInput> {
        let (Some(name), Some(keys)) = (&self.reaction, &self.keys) else { return Ok(None) };
        keys.iter().map(|key| keys::row(name, key)).collect::<Result<_, _>>().map(Some)
    }

    /// Returns the filter of the rows. Named keys are not part of it.
    pub(super) fn filter(&self) -> Result<WorkFilter, InvalidInput> {
        let pattern = keys::rows_matching(self.reaction.as_deref(), self.pattern.as_deref());
        let blocked = self.only_blocked().then_some(true);
        Ok(WorkFilter { pattern: Some(Pattern::new(&pattern)?), blocked, ..WorkFilter::default() })
    }

    /// Returns whether a parked event is selected.
    pub(super) fn means(&self, key: &Key, position: Position) -> Result<bool, InvalidInput> {
        let matches = match &self.pattern {
            Some(pattern) => Pattern::new(pattern)?.matches(key.canonical()),
            None => true,
        };
        let named = self.keys.as_ref().is_none_or(|keys| keys.contains(key));
        let at = self.positions.is_empty() || self.positions.contains(&position);
        Ok(matches && named && at)
    }

    /// Returns the selection of rows with these names.
    pub(super) fn these(rows: &[Key]) -> Selection {
        Selection::Keys(rows.to_vec())
    }

    /// Fails when keys or patterns are given without a reaction.
    pub(super) fn check(&self) -> Result<(), ReactionsError> {
        let loose = self.reaction.is_none() && (self.keys.is_some() || self.pattern.is_some());
        if loose {
            let reason = "keys and patterns need the name of a reaction: begin with Which::of";
            return Err(InvalidInput::name("Which", "", reason).into());
        }
        Ok(())
    }
}

//! Filters on work rows, as conditions that an index serves. The cost depends on the rows that match the narrowest part
//! of a filter, not on the table.

use tidelock_core::id::QueueName;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{Pattern, WorkFilter};
use tokio_postgres::types::Type;

use crate::db::Call;

/// A filter, and the key after which its rows begin.
pub(crate) struct WorkCondition<'a> {
    filter: &'a WorkFilter,
    range: KeyPrefix,
    after: Option<&'a Key>,
}

impl<'a> WorkCondition<'a> {
    /// Creates the condition for the rows of a filter whose keys follow `after`.
    pub(crate) fn new(filter: &'a WorkFilter, after: Option<&'a Key>) -> Self {
        let range = filter.pattern.as_ref().map_or_else(KeyPrefix::all, Pattern::range);
        Self { filter, range, after }
    }

    /// Returns whether a partial index holds little else than the matching rows.
    fn is_rare(&self) -> bool {
        self.filter.blocked == Some(true) || self.filter.leased == Some(true)
    }

    /// Returns whether the index by queue and key serves the filter.
    fn is_by_lane(&self) -> bool {
        self.filter.queue.is_some() && !self.is_rare()
    }

    /// Returns the order of the keys, as the index provides it.
    pub(crate) fn order(&self) -> &'static str {
        if self.is_by_lane() { "queue, key" } else { "key" }
    }

    /// Returns the condition, with four parameters.
    pub(crate) fn sql(&self) -> String {
        let from = if self.starts_after() { ">" } else { ">=" };
        let ends = self.range.below().is_some();
        let mut terms = Vec::new();
        if self.is_by_lane() {
            // Pairs instead of `queue = $1`, so that only the index by queue and key provides the order.
            terms.push(format!("(queue, key) {from} ($1, $3) AND queue <= $1"));
            terms.extend(ends.then(|| "(queue, key) < ($1, $4)".to_owned()));
        } else {
            terms.push(format!("key {from} $3"));
            terms.extend(ends.then(|| "key < $4".to_owned()));
            // No index serves this comparison: the partial one is used.
            terms.extend(self.filter.queue.as_ref().map(|_| "queue IS NOT DISTINCT FROM $1".to_owned()));
        }
        terms.extend(self.filter.pattern.as_ref().map(|_| "key LIKE $2".to_owned()));
        let is_set = |column: &str, set: bool| format!("{column} IS {}NULL", if set { "NOT " } else { "" });
        terms.extend(self.filter.blocked.map(|set| is_set("blocked_at", set)));
        terms.extend(self.filter.leased.map(|set| is_set("lease_owner", set)));
        terms.join(" AND ")
    }

    /// Adds the parameters.
    pub(crate) fn add_to<'c>(&'c self, call: Call<'c>) -> Call<'c> {
        let after = self.after.map(Key::canonical).filter(|_| self.starts_after());
        call.with(self.filter.queue.as_ref().map(QueueName::as_str), Type::TEXT)
            .with(self.filter.pattern.as_ref().map(Pattern::to_like), Type::TEXT)
            .with(after.unwrap_or(self.range.from()), Type::TEXT)
            .with(self.range.below(), Type::TEXT)
    }

    fn starts_after(&self) -> bool {
        self.after.is_some_and(|after| after.canonical() >= self.range.from())
    }
}

//! Filters on work rows, as conditions that an index serves. The cost depends on the rows that match the narrowest part
//! of a filter, not on the table.

use tidelock_core::id::QueueName;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{Pattern, WorkFilter};

/// A filter, and the key after which its rows begin.
pub(crate) struct WorkCondition<'a> {
    filter: &'a WorkFilter,
    range: KeyPrefix,
    after: Option<&'a Key>,
}

/// The parameters of a condition: queue, pattern, first key and end of the keys.
pub(crate) type Parameters<'a> = (Option<&'a str>, Option<&'a str>, &'a str, Option<&'a str>);

impl<'a> WorkCondition<'a> {
    /// Creates the condition for the rows of a filter whose keys follow `after`.
    pub(crate) fn new(filter: &'a WorkFilter, after: Option<&'a Key>) -> Self {
        let range = filter.pattern.as_ref().map_or_else(KeyPrefix::all, Pattern::range);
        Self { filter, range, after }
    }

    /// Returns the index that holds the fewest other rows.
    fn index(&self) -> &'static str {
        let WorkFilter { queue, blocked, leased, .. } = self.filter;
        match (blocked, leased, queue) {
            (Some(true), ..) => "tidelock_work_blocked",
            (_, Some(true), _) => "tidelock_work_leased",
            (.., Some(_)) => "tidelock_work_by_queue",
            _ => "tidelock_work_by_key",
        }
    }

    /// Returns the table and the condition, with four parameters.
    pub(crate) fn sql(&self) -> String {
        let from = if self.starts_after() { ">" } else { ">=" };
        let mut sql = format!("tidelock_work INDEXED BY {} WHERE key {from} ?3", self.index());
        let mut add = |term: &str| {
            sql.push_str(" AND ");
            sql.push_str(term);
        };
        // The last parameter is part of every statement: the number of parameters is fixed.
        add(if self.range.below().is_some() { "key < ?4" } else { "?4 IS NULL" });
        if self.filter.queue.is_some() {
            add("queue = ?1");
        }
        if self.filter.pattern.is_some() {
            add("tidelock_matches(?2, key)");
        }
        match self.filter.blocked {
            Some(true) => add("blocked_reason IS NOT NULL"),
            Some(false) => add("blocked_reason IS NULL"),
            None => {}
        }
        match self.filter.leased {
            Some(true) => add("lease_owner IS NOT NULL"),
            Some(false) => add("lease_owner IS NULL"),
            None => {}
        }
        sql
    }

    /// Returns the parameters.
    pub(crate) fn parameters(&self) -> Parameters<'_> {
        let after = self.after.map(Key::canonical).filter(|_| self.starts_after());
        (
            self.filter.queue.as_ref().map(QueueName::as_str),
            self.filter.pattern.as_ref().map(Pattern::as_str),
            after.unwrap_or(self.range.from()),
            self.range.below(),
        )
    }

    fn starts_after(&self) -> bool {
        self.after.is_some_and(|after| after.canonical() >= self.range.from())
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests fail by panicking")]
mod tests;

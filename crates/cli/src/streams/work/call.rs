//! Preview, confirmation and report of an operator command.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;

use crate::args::Layout;
use crate::exit::Exit;
use crate::{ask, output};

/// The number of rows above which a confirmation is required.
pub(super) const MANY: u64 = 100;
/// The number of rows shown before the change.
pub(super) const FIRST: usize = 10;

/// The printed report of a command.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a, L> {
    pub(super) operation: &'a str,
    /// The reaction, if one was named.
    pub(super) reaction: Option<&'a str>,
    pub(super) dry_run: bool,
    /// The number of selected rows.
    pub(super) meant: u64,
    /// The number of them that would change, counted before the change.
    pub(super) would_change: u64,
    /// The number of them that changed.
    pub(super) changed: u64,
    /// Rows that match the selection but belong to Tidelock itself. They were left alone.
    pub(super) left_alone: u64,
    /// The first of them, as they were before.
    pub(super) rows: Vec<L>,
}

impl<L: Serialize> Report<'_, L> {
    /// Returns whether the change may proceed; `what` is the noun for the rows.
    pub(super) fn agreed(&self, what: &str, why: &str, always: bool, yes: bool) -> Result<bool> {
        if self.would_change == 0 || !(always || self.would_change > MANY) {
            return Ok(true);
        }
        let (meant, would) = (output::number(self.meant), output::number(self.would_change));
        ask::agreed(&format!("{}: {would} of {meant} {what} would change{why}. Go on?", self.operation), yes)
    }

    /// Prints the preview.
    pub(super) fn tell_dry(&self, what: &str, layout: Layout, table: fn(&[L]) -> Table) -> Result<Exit> {
        if layout != Layout::Table {
            return output::told(layout, self, "");
        }
        if !self.rows.is_empty() {
            output::say(table(&self.rows))?;
        }
        let (meant, would) = (output::number(self.meant), output::number(self.would_change));
        let more = self.meant > self.rows.len() as u64 && !self.rows.is_empty();
        let shown = if more { "; these are the first" } else { "" };
        eprintln!("{would} of {meant} {what} would change{shown}; nothing was changed");
        self.tell_left_alone();
        Ok(Exit::Well)
    }

    /// Prints the result.
    pub(super) fn tell(&self, what: &str, layout: Layout) -> Result<Exit> {
        let (meant, changed) = (output::number(self.meant), output::number(self.changed));
        let done = format!("{}: {changed} of {meant} {what} changed", self.operation);
        output::told(layout, self, done)?;
        if layout == Layout::Table {
            self.tell_left_alone();
        }
        Ok(Exit::Well)
    }

    fn tell_left_alone(&self) {
        if self.left_alone > 0 {
            let count = output::number(self.left_alone);
            eprintln!(
                "hint: {count} rows of reactions or leases were left alone; name a reaction with --reaction"
            );
        }
    }
}

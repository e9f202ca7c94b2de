//! Preview, confirmation and report of an operator command.

use anyhow::Result;
use comfy_table::Table;
use serde::Serialize;

use crate::args::Layout;
use crate::exit::Exit;
use crate::{confirm, output};

/// The number of rows above which a confirmation is required.
pub(crate) const MANY: u64 = 100;
/// The number of rows shown before the change.
pub(crate) const FIRST: usize = 10;

/// The printed report of a command.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a, L> {
    pub(crate) operation: &'a str,
    /// The reaction, if one was named.
    pub(crate) reaction: Option<&'a str>,
    pub(crate) dry_run: bool,
    /// The number of selected rows.
    pub(crate) selected: u64,
    /// The number of them that would change, counted before the change.
    pub(crate) would_change: u64,
    /// The number of them that changed.
    pub(crate) changed: u64,
    /// Internal rows that match the selection. They were not changed.
    pub(crate) skipped: u64,
    /// The first of them, as they were before.
    pub(crate) rows: Vec<L>,
}

impl<L: Serialize> Report<'_, L> {
    /// Returns whether the change may proceed; `what` is the noun for the rows.
    pub(crate) fn agreed(&self, what: &str, why: &str, always: bool, yes: bool) -> Result<bool> {
        if self.would_change == 0 || !(always || self.would_change > MANY) {
            return Ok(true);
        }
        let (selected, would) = (output::number(self.selected), output::number(self.would_change));
        confirm::agreed(
            &format!("{}: {would} of {selected} {what} would change{why}. Continue?", self.operation),
            yes,
        )
    }

    /// Prints the preview.
    pub(crate) fn print_preview(&self, what: &str, layout: Layout, table: fn(&[L]) -> Table) -> Result<Exit> {
        if layout != Layout::Table {
            return output::print_report(layout, self, "");
        }
        if !self.rows.is_empty() {
            output::say(table(&self.rows))?;
        }
        let (selected, would) = (output::number(self.selected), output::number(self.would_change));
        let more = self.selected > self.rows.len() as u64 && !self.rows.is_empty();
        let shown = if more { "; these are the first" } else { "" };
        eprintln!("{would} of {selected} {what} would change{shown}; nothing was changed");
        self.print_skipped();
        Ok(Exit::Well)
    }

    /// Prints the result.
    pub(crate) fn print(&self, what: &str, layout: Layout) -> Result<Exit> {
        let (selected, changed) = (output::number(self.selected), output::number(self.changed));
        let done = format!("{}: {changed} of {selected} {what} changed", self.operation);
        output::print_report(layout, self, done)?;
        if layout == Layout::Table {
            self.print_skipped();
        }
        Ok(Exit::Well)
    }

    fn print_skipped(&self) {
        if self.skipped > 0 {
            let count = output::number(self.skipped);
            eprintln!(
                "hint: {count} rows of reactions or leases were skipped; use `tidelock reactions {}`",
                self.operation
            );
        }
    }
}

//! The findings of a diagnosis, and their output.

use anyhow::Result;
use serde::Serialize;

use crate::args::Format;
use crate::exit::Exit;
use crate::output::{self, Tone};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// No problem was found.
    Ok,
    /// It works, but needs attention.
    Warn,
    /// It does not work.
    Fail,
    /// Work is blocked until an operator acts.
    Blocked,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    /// The subject of the check.
    pub(crate) name: &'static str,
    /// The result.
    pub(crate) status: Status,
    /// The finding.
    pub(crate) found: String,
    /// The recommended action; empty when there is none.
    pub(crate) next: &'static str,
}

/// All findings.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The store that was checked.
    pub(crate) subject: String,
    /// One entry for each check, in order.
    pub(crate) checks: Vec<Check>,
}

impl Report {
    /// Creates an empty report.
    pub(crate) fn new(subject: impl Into<String>) -> Self {
        Self { subject: subject.into(), checks: Vec::new() }
    }

    /// Adds a check without a problem.
    pub(crate) fn ok(&mut self, name: &'static str, found: impl Into<String>) {
        self.add(name, Status::Ok, found, "");
    }

    /// Adds a check that needs attention.
    pub(crate) fn warn(&mut self, name: &'static str, found: impl Into<String>, next: &'static str) {
        self.add(name, Status::Warn, found, next);
    }

    /// Adds a check.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        next: &'static str,
    ) {
        self.checks.push(Check { name, status, found: found.into(), next });
    }

    /// Returns the exit code: failures first, then blocked work. Warnings do not fail.
    pub(crate) fn exit(&self) -> Exit {
        let has = |status| self.checks.iter().any(|check| check.status == status);
        if has(Status::Fail) {
            Exit::Failed
        } else if has(Status::Blocked) {
            Exit::Blocked
        } else {
            Exit::Well
        }
    }

    /// Prints the report.
    pub(crate) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        output::say(output::styled(&output::escaped(&self.subject), Tone::Bold))?;
        let mut table = output::table(&["check", "", "found", "what to do next"], &[]);
        for check in &self.checks {
            let mark = match check.status {
                Status::Ok => output::cell("ok", Tone::Good),
                Status::Warn => output::cell("warn", Tone::Caution),
                Status::Fail => output::cell("fail", Tone::Bad),
                Status::Blocked => output::cell("blocked", Tone::Bad),
            };
            let found = output::escaped(&check.found);
            table.add_row([check.name.into(), mark, found.into(), check.next.into()]);
        }
        output::say(table)
    }
}

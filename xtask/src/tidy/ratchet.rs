//! Ratchets: counts that may only fall. `xtask/ratchets.txt` holds the limit of each.

mod prose;
mod retired;

use super::Finding;
use super::tree::Tree;

/// The file of the limits: a name and a number on each line, and comments that begin with `#`.
const LIMITS: &str = "xtask/ratchets.txt";

/// Checks the share of marked phrases in the prose, and names the files with the most.
pub(super) fn prose(tree: &Tree) -> Vec<Finding> {
    let Some(limits) = Limits::read(tree) else { return Vec::new() };
    let counts = prose::count(tree);
    let message =
        format!("{} marked phrases in {} lines of prose; {}", counts.hits(), counts.lines, counts.worst(5));
    limits.check("prose-per-1000", counts.per_1000(), &message)
}

/// Checks the numbers of retired names that are still defined, and lists some of them.
pub(super) fn retired_names(tree: &Tree) -> Vec<Finding> {
    let Some(limits) = Limits::read(tree) else { return Vec::new() };
    let found = retired::find(tree);
    let mut findings = Vec::new();
    for kind in retired::Kind::ALL {
        let of_kind: Vec<&retired::Retired> = found.iter().filter(|name| name.kind == kind).collect();
        let shown: Vec<String> = of_kind.iter().take(5).map(ToString::to_string).collect();
        let count = f64::from(u32::try_from(of_kind.len()).unwrap_or(u32::MAX));
        findings.extend(limits.check(kind.limit(), count, &shown.join(", ")));
    }
    findings
}

/// The text of the limits.
struct Limits<'a>(&'a str);

impl<'a> Limits<'a> {
    /// Returns the limits of a tree. A tree without the file has none.
    fn read(tree: &'a Tree) -> Option<Self> {
        tree.file(LIMITS).map(|file| Self(&file.text))
    }

    /// Returns the line and the value of a limit.
    fn find(&self, name: &str) -> Option<(usize, f64)> {
        self.0.lines().enumerate().find_map(|(at, line)| {
            let (found, value) = line.split_once(' ')?;
            (found == name).then_some((at + 1, value.trim().parse().ok()?))
        })
    }

    /// Returns an error for a count above its limit, and a warning for a limit that can fall.
    fn check(&self, name: &str, count: f64, message: &str) -> Vec<Finding> {
        let Some((line, limit)) = self.find(name) else {
            return vec![Finding::error(
                LIMITS,
                1,
                "ratchet",
                format!("{name} has no limit: add a line for it"),
            )];
        };
        let shown = shown(count);
        if count > limit {
            let text = format!("{name} is {shown}, and {limit} is the limit: {message}");
            return vec![Finding::error(LIMITS, line, "ratchet", text)];
        }
        if slack(limit) + count <= limit {
            let text = format!("{name} has fallen to {shown}: lower its limit from {limit}");
            return vec![Finding::warning(LIMITS, line, "ratchet", text)];
        }
        Vec::new()
    }
}

/// The distance below a limit from which a warning suggests a lower one.
fn slack(limit: f64) -> f64 {
    if limit.fract() == 0.0 { 1.0 } else { 0.2 }
}

fn shown(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count}") } else { format!("{count:.2}") }
}

#[cfg(test)]
mod tests;

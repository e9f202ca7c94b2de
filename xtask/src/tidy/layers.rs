//! The storeys inside `tidelock-core`: a module uses only what stands below it.

use super::Finding;
use super::source;
use super::tree::Tree;

/// Modules of the core crate, each with the modules that it must not know.
const FORBIDDEN: &[(&[&str], &[&str])] = &[
    (&["id", "key", "payload", "clock", "error"], &["crate::lock", "crate::model", "crate::store"]),
    (&["lock"], &["crate::model", "crate::store", "serde"]),
    (&["model"], &["crate::lock", "crate::store"]),
    (&["id", "key", "payload", "clock", "error", "lock", "model", "store"], ENGINES),
    (&["events"], &["crate::reactions"]),
    (&["lease", "authority", "state", "events", "reactions"], ABOVE_ENGINES),
    (
        &["edge", "outbox"],
        &["crate::events", "crate::reactions", "crate::workflow", "crate::books", "crate::schedule"],
    ),
    (&["edge"], &["crate::outbox"]),
    (&["outbox"], &["crate::edge"]),
    (&["books", "projections", "workflow"], &["crate::schedule"]),
];

/// What stands on the store.
const ENGINES: &[&str] = &[
    "crate::lease",
    "crate::authority",
    "crate::state",
    "crate::events",
    "crate::reactions",
    "crate::books",
    "crate::projections",
    "crate::workflow",
    "crate::edge",
    "crate::outbox",
    "crate::schedule",
    "crate::housekeeping",
];

/// What stands on other engines.
const ABOVE_ENGINES: &[&str] = &[
    "crate::books",
    "crate::projections",
    "crate::workflow",
    "crate::edge",
    "crate::outbox",
    "crate::schedule",
];

/// The foundations know nothing of decisions, decisions know nothing of stores, and stores know nothing of leases.
pub(super) fn core_modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.below("crates/core/src").filter(|file| file.has_extension("rs") && !file.is_test()) {
        let Some(module) = module(&file.path) else { continue };
        let forbidden = FORBIDDEN.iter().filter(|(modules, _)| modules.contains(&module));
        let forbidden: Vec<&str> = forbidden.flat_map(|(_, paths)| paths.iter().copied()).collect();
        for (i, line) in source::without_tests(&file.code).lines().enumerate() {
            if let Some(path) = forbidden.iter().find(|path| line.contains(**path)) {
                let message = format!("`{module}` uses {path}, which stands above it: move the code up");
                findings.push(Finding::error(&file.path, i + 1, "layers", message));
            }
        }
    }
    findings
}

/// The top module that a file of the core crate belongs to.
fn module(path: &str) -> Option<&str> {
    let inner = path.strip_prefix("crates/core/src/")?;
    let first = inner.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::core_modules;

    #[test]
    fn modules_use_only_what_stands_below_them() {
        let uses = "//! See [`crate::store`].\nuse crate::model::batch::Batch;\nuse crate::store::Store;\n";
        check(core_modules, &[("crates/core/src/store/mod.rs", uses)], &[]);
        check(
            core_modules,
            &[("crates/core/src/model/commit.rs", uses)],
            &["crates/core/src/model/commit.rs:3"],
        );
        let both = ["crates/core/src/error.rs:2", "crates/core/src/error.rs:3"];
        check(core_modules, &[("crates/core/src/error.rs", uses)], &both);
        check(core_modules, &[("crates/core/src/error/pages/tests.rs", uses)], &[]);
        let above = "use crate::lease::Held;\n";
        check(core_modules, &[("crates/core/src/lease/take.rs", above)], &[]);
        for below in
            ["crates/core/src/store/claim.rs", "crates/core/src/model/lease.rs", "crates/core/src/id.rs"]
        {
            check(core_modules, &[(below, above)], &[&format!("{below}:1")]);
        }
        check(core_modules, &[("crates/sqlite/src/error.rs", uses)], &[]);
    }
}

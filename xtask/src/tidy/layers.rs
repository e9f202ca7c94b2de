//! Rule about the layers of `tidelock-core`: a module uses only modules of its own layer and of the layers below.

use super::Finding;
use super::source;
use super::tree::Tree;

/// The layers, bottom up. Modules of one layer may use each other.
const LAYERS: &[&[&str]] = &[
    &["id", "key", "payload", "clock", "error", "failure", "process"],
    &["runtime"],
    &["telemetry"],
    &["lock"],
    &["model"],
    &["store"],
    &["worker"],
];

/// The engines, above all layers, each with the other engines that it uses.
const ENGINES: &[(&str, &[&str])] = &[
    ("external_update", &[]),
    ("archive", &["events", "lease", "reactions"]),
    ("idempotency", &["lease"]),
    ("events", &[]),
    ("housekeeping", &[]),
    ("lease", &[]),
    ("outbox", &[]),
    ("projections", &["events", "reactions"]),
    ("reactions", &["events", "lease"]),
    ("schedule", &["reactions", "workflow"]),
    ("state", &[]),
    ("workflow", &["lease"]),
];

/// The crates that a layer must not use, although the core crate depends on them.
const FORBIDDEN_CRATES: &[(&str, &str)] = &[("lock", "serde"), ("model", "tokio")];

/// Checks that every module of the core crate has a layer and uses only the layers below it.
pub(super) fn core_modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.below("crates/core/src").filter(|file| file.has_extension("rs") && !file.is_test()) {
        let Some(module) = module(&file.path).filter(|module| *module != "lib") else { continue };
        let mut report = |line: usize, message: String| {
            findings.push(Finding::error(&file.path, line, "layers", message));
        };
        let Some(below) = below(module) else {
            report(1, format!("`{module}` has no layer: add it to LAYERS or ENGINES in xtask"));
            continue;
        };
        for (i, line) in source::without_tests(&file.code).lines().enumerate() {
            for used in modules(line).filter(|used| *used != module && !below.contains(used)) {
                let message = format!("`{module}` uses crate::{used}, which is not below it: move the code");
                report(i + 1, message);
            }
            let forbidden = FORBIDDEN_CRATES.iter().filter(|(of, name)| *of == module && names(line, name));
            for (_, name) in forbidden {
                report(i + 1, format!("`{module}` uses {name}, which it must do without"));
            }
        }
    }
    findings
}

/// Returns the modules that a module may use; `None` for a module without a layer.
fn below(module: &str) -> Option<Vec<&'static str>> {
    let engine = ENGINES.iter().find(|(engine, _)| *engine == module);
    let upto = match engine {
        Some(_) => LAYERS.len(),
        None => LAYERS.iter().position(|layer| layer.contains(&module))? + 1,
    };
    let layers = LAYERS.iter().take(upto).copied().flatten();
    Some(layers.chain(engine.into_iter().flat_map(|(_, used)| *used)).copied().collect())
}

/// Returns the modules of the crate that a line of code names.
fn modules(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::").flat_map(|(at, path)| {
        let rest = line.get(at + path.len()..).unwrap_or_default();
        // `use crate::{a, b}` names several modules.
        let (group, single) = match rest.strip_prefix('{') {
            Some(group) => (group.split('}').next().unwrap_or_default(), false),
            None => (rest, true),
        };
        let names =
            group.split(',').map(|name| name.trim().split(|c: char| !is_word(c)).next().unwrap_or_default());
        names
            .take(if single { 1 } else { usize::MAX })
            .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

fn names(line: &str, name: &str) -> bool {
    line.split(|c: char| !is_word(c)).any(|word| word == name)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the top-level module that a file of the core crate belongs to.
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
    fn modules_use_only_layers_below_them() {
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
        let lease = "use crate::lease::Held;\n";
        check(core_modules, &[("crates/core/src/lease/acquire.rs", lease)], &[]);
        for below in
            ["crates/core/src/store/claim.rs", "crates/core/src/worker/slots.rs", "crates/core/src/id.rs"]
        {
            check(core_modules, &[(below, lease)], &[&format!("{below}:1")]);
        }
        check(core_modules, &[("crates/sqlite/src/error.rs", uses)], &[]);
    }

    #[test]
    fn engines_use_each_other_only_where_it_is_listed() {
        let uses = "use crate::{lease, reactions::Effects};\n";
        check(core_modules, &[("crates/core/src/archive/executor.rs", uses)], &[]);
        check(
            core_modules,
            &[("crates/core/src/schedule/fire.rs", uses)],
            &["crates/core/src/schedule/fire.rs:1"],
        );
        check(core_modules, &[("crates/core/src/state/cell.rs", "use crate::worker::idle;\n")], &[]);
    }

    #[test]
    fn every_module_has_a_layer() {
        check(core_modules, &[("crates/core/src/helpers.rs", "")], &["crates/core/src/helpers.rs:1"]);
        check(core_modules, &[("crates/core/src/lib.rs", "pub mod store;\n")], &[]);
    }

    #[test]
    fn locks_do_without_serde() {
        let uses = "use serde::Serialize;\n";
        check(core_modules, &[("crates/core/src/lock/table.rs", uses)], &["crates/core/src/lock/table.rs:1"]);
        check(core_modules, &[("crates/core/src/lease/row.rs", uses)], &[]);
    }
}

//! Rules about crates: allowed dependencies, and backends that mirror each other.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{File, Tree};

/// Each library crate with the crates of this workspace that it may depend on. Programs may depend on all of them.
const ARROWS: &[(&str, &[&str])] = &[
    ("tidelock-core", &[]),
    ("tidelock-http", &["tidelock-core"]),
    ("tidelock-files", &["tidelock-core"]),
    ("tidelock-otel", &["tidelock-core"]),
    ("tidelock-pgserver", &[]),
    ("tidelock-sealed", &["tidelock-core"]),
    ("tidelock-sqlite", &["tidelock-core"]),
    ("tidelock-postgres", &["tidelock-core"]),
    ("tidelock-tck", &["tidelock-core"]),
    (
        "tidelock",
        &[
            "tidelock-core",
            "tidelock-http",
            "tidelock-files",
            "tidelock-otel",
            "tidelock-sealed",
            "tidelock-server",
            "tidelock-sqlite",
            "tidelock-postgres",
        ],
    ),
    ("tidelock-server", &["tidelock-core"]),
    ("tidelock-console", &["tidelock", "tidelock-core"]),
    ("tidelock-sim", &["tidelock", "tidelock-core"]),
];

/// The programs, on which no crate depends. A separate rule keeps the command line free of the benchmarks' dependencies.
const PROGRAMS: &[&str] = &["tidelock-cli", "tidelock-examples", "tidelock-benches", "xtask"];

/// Database drivers and HTTP libraries, on which the core must not depend.
const NOT_IN_CORE: &[&str] = &[
    "axum",
    "deadpool-postgres",
    "diesel",
    "http",
    "hyper",
    "libsqlite3-sys",
    "postgres",
    "reqwest",
    "rusqlite",
    "sqlx",
    "tokio-postgres",
    "tower",
    "tower-http",
    "tower-service",
];

/// Checks that dependencies point only to lower crates. Development dependencies are exempt. Templates are not in the workspace.
pub(super) fn arrows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let manifests = tree.files().iter().filter(|file| file.name() == "Cargo.toml");
    for file in manifests.filter(|file| !file.path.starts_with("templates/")) {
        let Some(package) = package(file) else { continue };
        if PROGRAMS.contains(&package) {
            findings.extend(heavy_dependencies(file, package));
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package) else {
            let message =
                format!("{package} has no place in the order of crates: add it to xtask/src/tidy/crates.rs");
            findings.push(Finding::error(&file.path, 1, "arrows", message));
            continue;
        };
        for (line, dependency) in dependencies(file) {
            if let Some(message) = objection(package, allowed, dependency) {
                findings.push(Finding::error(&file.path, line, "arrows", message));
            }
        }
    }
    findings
}

/// Rejects other programs, competing libraries and server launchers, which slow down the build of the operator's binary.
fn heavy_dependencies(file: &File, package: &str) -> Vec<Finding> {
    const NOT_IN_CLI: &[&str] = &["lockable", "tidelock-benches", "tidelock-pgserver"];
    let found = dependencies(file).into_iter();
    let heavy = found.filter(|(_, dependency)| package == "tidelock-cli" && NOT_IN_CLI.contains(dependency));
    let finding = |(line, dependency)| {
        let message =
            format!("the command line must not depend on {dependency}: it belongs into the benchmarks");
        Finding::error(&file.path, line, "arrows", message)
    };
    heavy.map(finding).collect()
}

fn objection(package: &str, allowed: &[&str], dependency: &str) -> Option<String> {
    let own = PROGRAMS.contains(&dependency) || ARROWS.iter().any(|(name, _)| *name == dependency);
    if own && !allowed.contains(&dependency) {
        return Some(format!("{package} must not depend on {dependency}: move what it needs down"));
    }
    if package == "tidelock-core" && NOT_IN_CORE.contains(&dependency) {
        return Some(format!("{dependency} is a driver or HTTP: it belongs into a crate above the core"));
    }
    None
}

/// Returns the value of `name` in `[package]`.
fn package(file: &File) -> Option<&str> {
    let (_, section) = file.text.split_once("[package]")?;
    let line = section.lines().find(|line| line.trim_start().starts_with("name"))?;
    line.split('"').nth(1)
}

/// Returns the names under `[dependencies]`, `[build-dependencies]` and their forms for targets, with their lines.
fn dependencies(file: &File) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in file.lines() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (head, name) = section.rsplit_once("dependencies").unwrap_or(("dev-", ""));
            let counts = !head.ends_with("dev-");
            inside = counts && name.is_empty();
            if let (true, Some(name)) = (counts, name.strip_prefix('.')) {
                found.push((number, name));
            }
        } else if inside && !line.starts_with('#') {
            let end = line.find(['.', '=', ' ']).unwrap_or(0);
            found.extend(
                line.split_at_checked(end)
                    .map(|(name, _)| (number, name))
                    .filter(|(_, name)| !name.is_empty()),
            );
        }
    }
    found
}

/// The marker in the opening comment of a file without a counterpart.
const ONLY_HERE: &str = "Only here:";

/// Checks that the backends have the same file names, so that they can be read side by side.
pub(super) fn mirrored_backends(tree: &Tree) -> Vec<Finding> {
    let (sqlite, postgres) = ("crates/sqlite/src", "crates/postgres/src");
    if tree.below(postgres).next().is_none() {
        return Vec::new();
    }
    let mut findings = unmatched(tree, sqlite, postgres);
    findings.extend(unmatched(tree, postgres, sqlite));
    findings
}

fn unmatched(tree: &Tree, here: &str, there: &str) -> Vec<Finding> {
    let relative = |file: &File, base: &str| file.path.strip_prefix(base).unwrap_or_default().to_owned();
    let theirs: BTreeSet<String> = tree.below(there).map(|file| relative(file, there)).collect();
    let alone =
        tree.below(here).filter(|file| file.has_extension("rs") && !theirs.contains(&relative(file, here)));
    let silent = alone
        .filter(|file| !file.text.lines().any(|line| line.starts_with("//!") && line.contains(ONLY_HERE)));
    let message = format!(
        "there is no such file in {there}: mirror the name, or say `//! {ONLY_HERE}` why it has no counterpart"
    );
    silent.map(|file| Finding::error(&file.path, 1, "mirrored-backends", message.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, findings};
    use super::{arrows, mirrored_backends};

    fn manifest(name: &str, body: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{body}")
    }

    #[test]
    fn arrows_point_down() {
        let good =
            manifest("tidelock-sqlite", "[dependencies]\nrusqlite.workspace = true\ntidelock-core = \"0\"\n");
        check(arrows, &[("crates/sqlite/Cargo.toml", &good)], &[]);
        let back = manifest("tidelock-core", "[dependencies]\ntidelock-sqlite.workspace = true\n");
        check(arrows, &[("crates/core/Cargo.toml", &back)], &["crates/core/Cargo.toml:4"]);
        let program = manifest("tidelock", "[dependencies.tidelock-cli]\nversion = \"0\"\n");
        check(arrows, &[("crates/tidelock/Cargo.toml", &program)], &["crates/tidelock/Cargo.toml:3"]);
        let target = manifest("tidelock-core", "[target.'cfg(unix)'.dependencies]\nxtask = \"0\"\n");
        check(arrows, &[("crates/core/Cargo.toml", &target)], &["crates/core/Cargo.toml:4"]);
    }

    #[test]
    fn development_dependencies_and_programs_are_free() {
        let tests = manifest("tidelock-sqlite", "[dev-dependencies]\ntidelock-tck.workspace = true\n");
        let cli = manifest("tidelock-cli", "[dependencies]\ntidelock-server.workspace = true\n");
        check(arrows, &[("crates/sqlite/Cargo.toml", &tests), ("crates/cli/Cargo.toml", &cli)], &[]);
    }

    #[test]
    fn the_command_line_is_free_of_rivals_and_launchers() {
        let cli = |body| manifest("tidelock-cli", body);
        let tests = cli("[dev-dependencies]\ntidelock-pgserver.workspace = true\n");
        check(arrows, &[("crates/cli/Cargo.toml", &tests)], &[]);
        let heavy = cli("[target.'cfg(unix)'.dependencies]\ntidelock-pgserver.workspace = true\n");
        check(arrows, &[("crates/cli/Cargo.toml", &heavy)], &["crates/cli/Cargo.toml:4"]);
    }

    #[test]
    fn the_core_has_no_driver_and_strangers_are_asked_for_their_place() {
        let driver = manifest("tidelock-core", "[dependencies]\naxum = \"0.8\"\n");
        assert!(
            findings(arrows, &[("crates/core/Cargo.toml", &driver)]).concat().contains("axum is a driver")
        );
        let stranger = manifest("tidelock-extra", "");
        check(arrows, &[("crates/extra/Cargo.toml", &stranger)], &["crates/extra/Cargo.toml:1"]);
        check(arrows, &[("Cargo.toml", "[workspace]\n")], &[]);
    }

    #[test]
    fn backends_mirror_each_other_once_there_are_two() {
        let sqlite = ("crates/sqlite/src/claim.rs", "//! Claims.\n");
        check(mirrored_backends, &[sqlite], &[]);
        check(mirrored_backends, &[sqlite, ("crates/postgres/src/claim.rs", "//! Claims.\n")], &[]);
        let lone = ("crates/postgres/src/notify.rs", "//! NOTIFY.\n");
        let places = ["crates/sqlite/src/claim.rs:1", "crates/postgres/src/notify.rs:1"];
        check(mirrored_backends, &[sqlite, lone], &places);
        let told = ("crates/postgres/src/notify.rs", "//! NOTIFY. Only here: SQLite has no such thing.\n");
        check(mirrored_backends, &[sqlite, told], &["crates/sqlite/src/claim.rs:1"]);
    }
}

//! Version matrix: runs the tests of the PostgreSQL backend on other major versions than the default one.
//!
//! It runs the test programs that the workspace's tests have built, so that it costs only their run time and no build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::Database;
use super::install::{self, SUPPORTED};
use crate::{Missing, run};

/// The oldest and the newest supported version. A change of the server between them shows at one of the ends.
pub(crate) const ENDS: [u32; 2] = [14, 18];
/// Every supported version.
pub(crate) const ALL: [u32; 5] = SUPPORTED;

/// The package of the test programs, and the programs that depend on the behaviour of a server version. They cover all cases
/// of the conformance kit, the order of the log, the functions for other languages, plans, truncation and the caller's
/// transaction.
const PACKAGE: &str = "crates/postgres";
const PROGRAMS: [&str; 6] = ["conformance", "from_sql", "order", "own_transaction", "plans", "truncation"];

/// Runs the test programs on each version. `missing` decides whether a version that cannot be installed is skipped or fails.
/// `profile` goes to cargo: `--release`, or nothing.
pub(crate) fn run(versions: &[u32], profile: &[&str], missing: Missing) -> Result<()> {
    let programs = built(profile)?;
    for version in versions {
        if let Err(reason) = install::programs(*version) {
            missing.because(&format!("PostgreSQL {version} was not tested: {reason:#}"))?;
            continue;
        }
        let database = Database::of_version(*version)?;
        for program in &programs {
            let mut test = Command::new(program);
            run::run(database.offer(&mut test).current_dir(run::root().join(PACKAGE)))?;
        }
    }
    Ok(())
}

/// Builds the test programs with the same features as the test command, and returns their paths.
fn built(profile: &[&str]) -> Result<Vec<PathBuf>> {
    let mut build = run::cargo(&["test", "--locked", "--workspace", "--no-run"]);
    build.args(profile).args(["--message-format", "json-render-diagnostics"]);
    let (said, _) = run::capture(&mut build)?;
    let directory = run::root().join(PACKAGE).join("tests");
    let found = |name: &&str| {
        let source = directory.join(format!("{name}.rs"));
        said.lines().find(|line| is_of(line, &source)).and_then(run::executable)
    };
    let programs: Vec<PathBuf> = PROGRAMS.iter().filter_map(found).collect();
    if programs.len() != PROGRAMS.len() {
        bail!("cargo has not built all of {PROGRAMS:?} of {PACKAGE}");
    }
    Ok(programs)
}

/// Returns whether a line of cargo's output is about the target with this source.
fn is_of(line: &str, source: &Path) -> bool {
    line.contains(&format!("\"src_path\":\"{}\"", source.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_of;

    #[test]
    fn a_program_is_recognised_by_its_source() {
        let line =
            r#"{"target":{"name":"order","src_path":"/r/crates/postgres/tests/order.rs"},"executable":"/a"}"#;
        assert!(is_of(line, Path::new("/r/crates/postgres/tests/order.rs")));
        assert!(!is_of(line, Path::new("/r/crates/sqlite/tests/order.rs")));
    }
}

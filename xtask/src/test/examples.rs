//! Every example and every chapter of the tutorial, run as a newcomer would.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::postgres::Database;
use crate::run;
use crate::steps::Failures;

/// The directories with example programs, one file each.
const DIRECTORIES: &[&str] = &["examples", "examples/tutorial"];
/// The chapter that also runs on PostgreSQL, and its schema there.
const ON_POSTGRES: (&str, &str) = ("ch6_machines", "tutorial");
/// The example that needs PostgreSQL. Without a server it only says so.
const WITH_DATABASE: &str = "14_own_tables";

/// Runs the programs, on temporary SQLite files and in memory. Returns those that failed.
pub(super) fn run(database: Option<&Database>) -> Result<Failures> {
    let mut failed = Vec::new();
    for name in names()? {
        let own = database.filter(|_| name == WITH_DATABASE);
        let mut outcome = program(&name).and_then(|program| example(&program, own, None));
        if let (Ok(()), Some(database)) = (&outcome, database.filter(|_| name == ON_POSTGRES.0)) {
            let store = database.schema(ON_POSTGRES.1);
            outcome = program(&name).and_then(|program| example(&program, None, Some(&store)));
        }
        match &outcome {
            Ok(()) => println!("example {name}: ok"),
            Err(error) => {
                println!("example {name}: FAILED\n{error:#}");
                failed.push(name);
            }
        }
    }
    Ok(failed)
}

/// Returns the names of all programs, in order.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for directory in DIRECTORIES {
        for file in std::fs::read_dir(run::root().join(directory))? {
            let path = file?.path();
            let is_example = path.extension().is_some_and(|extension| extension == "rs");
            names.extend(
                path.file_stem().filter(|_| is_example).map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

fn program(name: &str) -> Result<PathBuf> {
    run::built(&["--example", name])
}

/// Runs a program, with the database if it needs one. Without a store, it uses its own.
fn example(program: &PathBuf, database: Option<&Database>, store: Option<&str>) -> Result<()> {
    let mut command = Command::new(program);
    if let Some(database) = database {
        database.offer(&mut command);
    }
    command.current_dir(run::root()).env_remove("TIDELOCK_STORE");
    run::capture(command.envs(store.map(|url| ("TIDELOCK_STORE", url)))).map(drop)
}

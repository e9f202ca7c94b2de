//! Every example and every chapter of the tutorial, run as a newcomer would.

use std::process::Command;

use anyhow::Result;

use crate::postgres::Database;
use crate::run;
use crate::steps::Failures;

/// The directories with example programs, one file each.
const DIRECTORIES: &[&str] = &["examples", "examples/tutorial"];
/// Programs that also run on PostgreSQL. Without a server, the second one prints a notice and exits.
const ON_POSTGRES: &[&str] = &["ch6_machines", "14_own_tables"];

/// Runs the programs, on temporary SQLite files and in memory. Returns those that failed.
pub(super) fn run(database: Option<&Database>) -> Result<Failures> {
    let mut failed = Vec::new();
    for name in names()? {
        match &example(&name, database.filter(|_| ON_POSTGRES.contains(&name.as_str()))) {
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
            let name = path.file_stem().filter(|_| is_example);
            names.extend(name.map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Runs a program on its own store, and then on a server like the database, if there is one.
fn example(name: &str, database: Option<&Database>) -> Result<()> {
    let program = run::built(&["--example", name])?;
    let run = |store: Option<&str>| {
        let mut command = Command::new(&program);
        command.current_dir(run::root()).env_remove("TIDELOCK_STORE").env_remove("DATABASE_URL");
        for variable in ["TIDELOCK_STORE", "DATABASE_URL"] {
            command.envs(store.map(|url| (variable, url)));
        }
        run::capture(&mut command).map(drop)
    };
    run(None)?;
    match database {
        Some(database) => run(Some(database.that_flushes()?.url())),
        None => Ok(()),
    }
}

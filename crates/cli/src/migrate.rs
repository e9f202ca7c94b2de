//! `tidelock migrate`: the applied and the pending migrations of a PostgreSQL store, and their SQL text.
//!
//! If `up` is killed, each migration has been applied completely or not at all. The next `up` continues.

use anyhow::Result;
use serde::Serialize;
use tidelock::postgres::migrate::{self, Migration, Status};

use crate::address::Address;
use crate::args::{Format, Migrate, MigrateSql, MigrateStore};
use crate::exit::{Exit, UsageError};
use crate::output::{self, Tone};
use crate::server_url::ServerUrl;

/// Runs a verb of `migrate`.
pub(crate) async fn run(verb: Migrate) -> Result<Exit> {
    match verb {
        Migrate::Status(options) => {
            let (url, schema) = server(&options.store, options.schema.as_deref())?;
            show(&options, &url, &migrate::status(url.secret(), &schema).await?)
        }
        Migrate::Up(options) => {
            let (url, schema) = server(&options.store, options.schema.as_deref())?;
            show(&options, &url, &migrate::up(url.secret(), &schema).await?)
        }
        Migrate::Sql(options) => sql(&options),
    }
}

/// Returns the database and the schema that a store's name denotes.
fn server(store: &str, schema: Option<&str>) -> Result<(ServerUrl, String)> {
    match Address::parse(store, schema)? {
        Address::Schema { url, schema } => Ok((url, schema)),
        Address::File(path) => {
            let path = path.display();
            let message = format!(
                "{path} means a SQLite file, which every program migrates that opens it; name a PostgreSQL database \
                 (postgres://…), or see the file's version with `tidelock doctor --store {path}`"
            );
            Err(UsageError(message).into())
        }
    }
}

fn sql(options: &MigrateSql) -> Result<Exit> {
    // Without a store, the defaults of any address apply.
    let store = options.store.as_deref().unwrap_or("postgres://");
    let (_, schema) = server(store, options.schema.as_deref())?;
    let text = migrate::sql(&schema, options.from)?;
    if options.from < migrate::newest() {
        output::say(text.trim_end())?;
    } else {
        eprintln!("nothing comes after version {}: the newest is {}", options.from, migrate::newest());
    }
    Ok(Exit::Well)
}

/// The printed report on a schema.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// The database, without its password.
    store: String,
    schema: &'a str,
    /// The installed version; `None` when the database has never held a Tidelock store.
    installed: Option<u32>,
    /// The version that this program needs.
    newest: u32,
    /// Whether the two are the same.
    current: bool,
    migrations: Vec<Line<'a>>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    version: u32,
    name: &'a str,
    /// The time, in microseconds since the epoch.
    applied_at: Option<i64>,
    /// The program that applied it.
    program: Option<&'a str>,
}

fn show(options: &MigrateStore, url: &ServerUrl, status: &Status) -> Result<Exit> {
    let current = status.installed == Some(status.newest);
    if options.output == Format::Json {
        let line = |migration| Line::of(migration);
        output::json(&Report {
            store: url.to_string(),
            schema: &status.schema,
            installed: status.installed,
            newest: status.newest,
            current,
            migrations: status.migrations.iter().map(line).collect(),
        })?;
    } else {
        table(status)?;
    }
    if !current {
        advise(status);
    }
    Ok(Exit::Well)
}

impl<'a> Line<'a> {
    fn of(migration: &'a Migration) -> Self {
        let Migration { version, name, applied_at, program } = migration;
        let applied_at = applied_at.map(|at| at.as_micros());
        Self { version: *version, name, applied_at, program: program.as_deref() }
    }
}

fn table(status: &Status) -> Result<()> {
    let mut table = output::table(&["version", "name", "", "applied at", "by"], &[0]);
    for Migration { version, name, applied_at, program } in &status.migrations {
        let mark = match applied_at {
            Some(_) => output::cell("applied", Tone::Good),
            None => output::cell("missing", Tone::Caution),
        };
        let at = applied_at.map(|at| at.to_string()).unwrap_or_default();
        let by = program.as_deref().map(output::escaped).unwrap_or_default();
        table.add_row([version.to_string().into(), (*name).into(), mark, at.into(), by.into()]);
    }
    output::say(table)
}

/// Prints the recommended action.
fn advise(status: &Status) {
    let schema = output::escaped(&status.schema);
    match status.installed {
        Some(version) => eprintln!("schema {schema} has version {version} of {}", status.newest),
        None => eprintln!("schema {schema} holds no store yet"),
    }
    let from = status.installed.unwrap_or(0);
    eprintln!("hint: `tidelock migrate up --schema {schema}` applies what is missing");
    eprintln!("hint: `tidelock migrate sql --schema {schema} --from {from}` prints it");
}

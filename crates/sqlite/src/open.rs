//! Opening connections: of the writer, with every setting read back, of readers, and of helpers.
//!
//! Every setting is checked. A file system that silently rejects WAL, or a build with other defaults, is found here,
//! before the first acknowledgement.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags};
use tidelock_core::model::pattern::Pattern;
use tidelock_core::store::{Durability, StoreError, StoreErrorKind};

use crate::file_identity::Birth;
use crate::{SqliteOptions, epoch, error, migrate};

const WHAT: &str = "opening the SQLite database";
/// Pages that the writer keeps: 64 MiB.
const WRITER_CACHE_KIB: i64 = 64 * 1024;
/// A log that had to grow beyond this returns the space when it restarts: 64 MiB.
const LOG_BYTES: i64 = 64 * 1024 * 1024;
/// The number of prepared statements that a connection caches; more than there are.
const STATEMENTS: usize = 64;

/// Opens the file for writing, creates or migrates it, and reads back every setting that durability depends on.
pub(crate) fn writer(path: &Path, options: &SqliteOptions) -> Result<(Connection, u32), StoreError> {
    check_path(path, options.create)?;
    if options.create {
        create_private(path)?;
    }
    let mut connection = connect(path, options.create)?;
    connection.busy_timeout(options.busy_timeout).map_err(|e| at(path, &e))?;
    apply_settings(&connection, options).map_err(|e| explain(path, e))?;
    check_writable(&connection).map_err(|e| explain(path, e))?;
    let schema =
        migrate::run(&mut connection, options.shared, options.clock.now()).map_err(|e| explain(path, e))?;
    add_functions(&connection).map_err(|e| at(path, &e))?;
    epoch::confirm(&mut connection, Birth::of(path), options.clock.now())
        .map_err(|failure| explain(path, failure.error))?;
    // From here on the writer does its own waiting, with a better estimate of the time.
    connection.busy_timeout(Duration::ZERO).map_err(|e| at(path, &e))?;
    Ok((connection, schema))
}

/// Opens another connection that only reads.
pub(crate) fn reader(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let connection = helper(path, busy_timeout)?;
    connection.pragma_update(None, "query_only", true).map_err(|e| at(path, &e))?;
    add_functions(&connection).map_err(|e| at(path, &e))?;
    Ok(connection)
}

/// Opens another connection for a background task.
pub(crate) fn helper(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let connection = connect(path, false)?;
    connection.busy_timeout(busy_timeout).map_err(|e| at(path, &e))?;
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(|e| at(path, &e))?;
    Ok(connection)
}

/// Registers the model's own matcher for filters, so that SQL and the reference store cannot differ.
pub(crate) fn add_functions(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("tidelock_matches", 2, flags, |context| {
        let pattern = context
            .get_or_create_aux(0, |source| -> Result<Pattern, Box<dyn Error + Send + Sync>> {
                Ok(Pattern::new(source.as_str()?)?)
            })?;
        Ok(pattern.matches(context.get_raw(1).as_str()?))
    })
}

fn connect(path: &Path, create: bool) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    }
    let connection = Connection::open_with_flags(path, flags).map_err(|e| at(path, &e))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Checks for simple mistakes first, so that the message names them.
fn check_path(path: &Path, create: bool) -> Result<(), StoreError> {
    let cannot = |detail: String| Err(StoreError::new(StoreErrorKind::CannotOpen, what(path), detail));
    if path.is_dir() {
        return cannot("it is a directory, not a file".to_owned());
    }
    if !path.exists() {
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|d| !d.is_dir()) {
            return cannot(format!("the directory {} does not exist", directory.display()));
        }
        if !create {
            return cannot("the file does not exist, and SqliteOptions::create is off".to_owned());
        }
    }
    Ok(())
}

/// Creates a new file that only its user can access. SQLite gives the log beside it the same rights.
#[cfg(unix)]
fn create_private(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {
            Err(StoreError::new(StoreErrorKind::Full, what(path), e.to_string()))
        }
        Err(e) => Err(explain(path, StoreError::new(StoreErrorKind::CannotOpen, WHAT, e.to_string()))),
    }
}

#[cfg(not(unix))]
fn create_private(_path: &Path) -> Result<(), StoreError> {
    Ok(())
}

fn apply_settings(connection: &Connection, options: &SqliteOptions) -> Result<(), StoreError> {
    let (name, number) = match options.durability {
        Durability::Full => ("FULL", 2),
        Durability::Relaxed => ("NORMAL", 1),
        Durability::None => {
            let detail = "SQLite keeps what it acknowledges; Durability::None is for the memory store";
            return Err(StoreError::new(StoreErrorKind::SettingNotInForce, WHAT, detail));
        }
    };
    let mapped = |e: rusqlite::Error| error::map(WHAT, &e);
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(mapped)?;
    in_force("journal_mode", "wal", &mode.to_lowercase())?;
    connection.pragma_update(None, "synchronous", name).map_err(mapped)?;
    let level: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(mapped)?;
    in_force("synchronous", &number.to_string(), &level.to_string())?;
    // On Apple systems a plain flush stops in the drive's cache; elsewhere this changes nothing.
    connection.pragma_update(None, "fullfsync", options.durability == Durability::Full).map_err(mapped)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(mapped)?;
    connection
        .query_row(&format!("PRAGMA journal_size_limit = {LOG_BYTES}"), [], |row| row.get::<_, i64>(0))
        .map_err(mapped)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).map_err(mapped)?;
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(mapped)?;
    if let Some(bytes) = options.max_bytes {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(mapped)?;
        let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
        connection
            .query_row(&format!("PRAGMA max_page_count = {}", pages.max(1)), [], |row| row.get::<_, i64>(0))
            .map_err(mapped)?;
    }
    Ok(())
}

fn in_force(setting: &str, wanted: &str, found: &str) -> Result<(), StoreError> {
    if wanted == found {
        return Ok(());
    }
    let detail = format!("{setting} was set to {wanted} and reads back as {found}");
    Err(StoreError::new(StoreErrorKind::SettingNotInForce, WHAT, detail))
}

/// Detects a read-only file at once. SQLite opens such a file without an error.
fn check_writable(connection: &Connection) -> Result<(), StoreError> {
    match connection.is_readonly(rusqlite::MAIN_DB) {
        Ok(false) => Ok(()),
        Ok(true) => {
            Err(StoreError::new(StoreErrorKind::ReadOnly, WHAT, "the file may not be written by this user"))
        }
        Err(e) => Err(error::map(WHAT, &e)),
    }
}

fn what(path: &Path) -> String {
    format!("{WHAT} {}", path.display())
}

fn at(path: &Path, e: &rusqlite::Error) -> StoreError {
    explain(path, error::map(WHAT, e))
}

/// Names the file, and distinguishes an unwritable directory from other reasons why a file cannot be opened.
fn explain(path: &Path, e: StoreError) -> StoreError {
    let kind = match e.kind {
        StoreErrorKind::CannotOpen if path.exists() || unwritable_parent(path) => StoreErrorKind::ReadOnly,
        kind => kind,
    };
    StoreError::new(kind, what(path), e.detail)
}

fn unwritable_parent(path: &Path) -> bool {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::metadata(parent).is_ok_and(|m| m.permissions().readonly())
}

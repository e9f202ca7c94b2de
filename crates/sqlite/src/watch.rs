//! Hints from other processes: a thread polls SQLite's data version while there are listeners.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tidelock_core::store::{StoreError, Watcher};

use crate::open;
use crate::shutdown::Shutdown;

/// The poll interval while there are listeners. A poll costs a few microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The interval at which the thread checks for listeners.
const IDLE: Duration = Duration::from_millis(50);

/// Starts the thread, which ends when the store is closed.
pub(crate) fn start(
    path: &Path,
    watcher: &Arc<Watcher>,
    busy_timeout: Duration,
    ending: Shutdown,
) -> Result<(), StoreError> {
    let connection = open::helper(path, busy_timeout)?;
    let watcher = Arc::clone(watcher);
    std::thread::Builder::new()
        .name("tidelock-watch".to_owned())
        .spawn(move || watch_changes(connection, &watcher, &ending))
        .map_err(|e| crate::no_thread(&e))?;
    Ok(())
}

fn watch_changes(connection: Connection, watcher: &Watcher, ending: &Shutdown) {
    let mut known = None;
    loop {
        let watched = watcher.is_watched();
        if watched {
            let version = data_version(&connection);
            if version != known {
                known = version;
                watcher.hint();
            }
        }
        if ending.sleep(if watched { LOOK_EVERY } else { IDLE }) {
            drop(connection);
            return;
        }
    }
}

/// Returns the data version. `None` when it cannot be read now: that counts as a change, and a superfluous hint is
/// harmless.
fn data_version(connection: &Connection) -> Option<i64> {
    let mut statement = connection.prepare_cached("PRAGMA data_version").ok()?;
    statement.query_row([], |row| row.get(0)).ok()
}

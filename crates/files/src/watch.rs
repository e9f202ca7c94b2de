//! Hints from other processes and manual edits: a thread polls the directory while there are listeners.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tidelock_core::store::Watcher;

/// The poll interval.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts the thread, which ends soon after the store is dropped.
pub(crate) fn start(documents: PathBuf, watcher: &Arc<Watcher>) -> std::io::Result<()> {
    let watcher = Arc::downgrade(watcher);
    std::thread::Builder::new()
        .name("tidelock-watch".to_owned())
        .spawn(move || scan(&documents, &watcher))
        .map(drop)
}

fn scan(documents: &PathBuf, watcher: &Weak<Watcher>) {
    let (mut known, mut again) = (changed_at(documents), false);
    while let Some(watcher) = watcher.upgrade() {
        let found = changed_at(documents);
        let changed = found != known;
        // File systems have coarse timestamps: a second change in the same tick as the first would go unnoticed.
        if changed || again {
            watcher.hint();
        }
        (known, again) = (found, changed);
        drop(watcher);
        std::thread::sleep(LOOK_EVERY);
    }
}

fn changed_at(documents: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(documents).and_then(|found| found.modified()).ok()
}

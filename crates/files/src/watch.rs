//! Hints from other processes and from hands: a thread looks at the directory while somebody listens.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tidelock_core::store::Watcher;

/// How often the directory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts the thread; it ends soon after the store is gone.
pub(crate) fn start(documents: PathBuf, watcher: &Arc<Watcher>) -> std::io::Result<()> {
    let watcher = Arc::downgrade(watcher);
    std::thread::Builder::new()
        .name("tidelock-watch".to_owned())
        .spawn(move || look(&documents, &watcher))
        .map(drop)
}

fn look(documents: &PathBuf, watcher: &Weak<Watcher>) {
    let (mut known, mut again) = (changed_at(documents), false);
    while let Some(watcher) = watcher.upgrade() {
        let found = changed_at(documents);
        let changed = found != known;
        // File systems count time in ticks: a second change in the tick of the first would go unseen.
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

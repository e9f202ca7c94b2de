//! Signals inside this process: a row that others wait for has changed. They make hand-offs between tasks of one
//! process fast; hints of the store and the poll do the same for other processes, and for what is missed here.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;

static SIGNALS: LazyLock<Mutex<HashMap<Key, Arc<Notify>>>> = LazyLock::new(Mutex::default);

/// Somebody's interest in a row. What nobody is interested in leaves no trace.
pub(crate) struct Signal {
    row: Key,
    notify: Arc<Notify>,
}

/// Listens to what this process does to a row.
pub(crate) fn of(row: &Key) -> Signal {
    let notify = Arc::clone(SIGNALS.lock().entry(row.clone()).or_default());
    Signal { row: row.clone(), notify }
}

/// The row has changed.
pub(crate) fn changed(row: &Key) {
    if let Some(notify) = SIGNALS.lock().get(row) {
        notify.notify_waiters();
    }
}

impl Deref for Signal {
    type Target = Notify;

    fn deref(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let mut signals = SIGNALS.lock();
        // The table's own and this one: nobody else listens, and nobody can begin to while the table is locked.
        if Arc::strong_count(&self.notify) <= 2 {
            signals.remove(&self.row);
        }
    }
}

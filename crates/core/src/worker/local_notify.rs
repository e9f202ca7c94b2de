//! Process-local notifications that a row has changed.
//!
//! They make hand-offs between tasks of one process fast. Hints of the store and polls serve other processes.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;
use crate::process::PerProcess;

static LISTENERS: PerProcess<Mutex<HashMap<Key, Arc<Notify>>>> = PerProcess::new(Mutex::default);

/// A listener for the changes of one row. A row without listeners uses no memory.
pub(crate) struct Listener {
    row: Key,
    notify: Arc<Notify>,
}

/// Listens for changes of a row by this process.
pub(crate) fn listen(row: &Key) -> Listener {
    let notify = LISTENERS.with(|listeners| Arc::clone(listeners.lock().entry(row.clone()).or_default()));
    Listener { row: row.clone(), notify }
}

/// Notifies the listeners of a row.
pub(crate) fn notify(row: &Key) {
    LISTENERS.with(|listeners| {
        if let Some(notify) = listeners.lock().get(row) {
            notify.notify_waiters();
        }
    });
}

impl Deref for Listener {
    type Target = Notify;

    fn deref(&self) -> &Notify {
        &self.notify
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENERS.with(|listeners| {
            let mut listeners = listeners.lock();
            // Two references are the table's and this one. No listener can be added while the table is locked.
            if Arc::strong_count(&self.notify) <= 2 {
                listeners.remove(&self.row);
            }
        });
    }
}

//! Shutdown of a store's threads: they learn that the store is closed, and a caller learns that they have all ended.
//!
//! Only here: PostgreSQL's tasks end with their store.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// A handle that every thread of a store holds. Dropping the last one closes the store for good.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    closed: Mutex<bool>,
    changed: Condvar,
    /// Dropped with the last holder, which wakes the receivers.
    _held: watch::Sender<()>,
}

impl Shutdown {
    /// Creates a handle, and a receiver that resolves after the last handle was dropped.
    pub(crate) fn new() -> (Self, watch::Receiver<()>) {
        let (held, ended) = watch::channel(());
        let shared = Shared { closed: Mutex::new(false), changed: Condvar::new(), _held: held };
        (Self { shared: Arc::new(shared) }, ended)
    }

    /// Returns a handle that does not keep the store from ending.
    pub(crate) fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.shared))
    }

    /// Sleeps until the time has passed or the store is closed. Returns `true` when the store is closed.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut closed = self.shared.closed.lock();
        if !*closed {
            self.shared.changed.wait_for(&mut closed, time);
        }
        *closed
    }
}

/// The handle that wakes the sleeping threads, at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct Closer(std::sync::Weak<Shared>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Closer {
    pub(crate) fn close(&self) {
        if let Some(shared) = self.0.upgrade() {
            *shared.closed.lock() = true;
            shared.changed.notify_all();
        }
    }
}

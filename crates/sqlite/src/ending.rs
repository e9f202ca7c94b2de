//! How the threads of a store learn that it is closed, and how a caller learns that they have all ended.
//!
//! Only here: PostgreSQL's tasks end with their store.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// Held by every thread of a store; when the last one lets go, the store is closed for good.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    closed: Mutex<bool>,
    told: Condvar,
    /// Dropped with the last holder, which is what the receivers wait for.
    _held: watch::Sender<()>,
}

impl Ending {
    /// A new one, and what resolves when nobody holds it any more.
    pub(crate) fn new() -> (Self, watch::Receiver<()>) {
        let (held, ended) = watch::channel(());
        let shared = Shared { closed: Mutex::new(false), told: Condvar::new(), _held: held };
        (Self { shared: Arc::new(shared) }, ended)
    }

    /// A handle that does not keep the store from ending.
    pub(crate) fn closer(&self) -> Closer {
        Closer(Arc::downgrade(&self.shared))
    }

    /// Sleeps, but not past the end; `true` when the store is closed.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut closed = self.shared.closed.lock();
        if !*closed {
            self.shared.told.wait_for(&mut closed, time);
        }
        *closed
    }
}

/// The handle that ends the sleepers, at the latest when it is dropped.
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
            shared.told.notify_all();
        }
    }
}

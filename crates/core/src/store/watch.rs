//! Change hints. They reduce latency, and a missed hint does no harm.

use tokio::sync::watch;

/// The sender of hints.
#[derive(Debug)]
pub struct Watcher {
    sender: watch::Sender<u64>,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { sender: watch::Sender::new(0) }
    }
}

impl Watcher {
    /// Wakes all listeners. Hints that arrive faster than a listener consumes them are merged.
    pub fn hint(&self) {
        self.sender.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns whether there is a listener.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// Returns a listener that receives all hints from now on.
    #[must_use]
    pub fn listen(&self) -> Watch {
        Watch { receiver: self.sender.subscribe() }
    }
}

/// The receiver of hints.
#[derive(Clone, Debug)]
pub struct Watch {
    receiver: watch::Receiver<u64>,
}

impl Watch {
    /// Waits until data may have changed since the last call. Returns `false` when the store is gone.
    ///
    /// # Cancel safety
    /// Cancel safe: a hint that arrives between two calls is returned by the next one.
    pub async fn changed(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }

    /// Returns whether a hint is pending.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.receiver.has_changed().unwrap_or(false)
    }
}

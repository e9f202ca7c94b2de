//! Hints that something may have changed. They make things fast; nothing is wrong when one is missed.

use tokio::sync::watch;

/// The side that gives hints.
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
    /// Wakes everybody who listens. Hints that come faster than they are heard become one.
    pub fn hint(&self) {
        self.sender.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    /// A listener that hears everything from now on.
    #[must_use]
    pub fn listen(&self) -> Watch {
        Watch { receiver: self.sender.subscribe() }
    }
}

/// The side that hears hints.
#[derive(Clone, Debug)]
pub struct Watch {
    receiver: watch::Receiver<u64>,
}

impl Watch {
    /// Waits until something may have changed since the last time. `false` when the store is gone.
    ///
    /// # Cancel safety
    /// Cancel-safe: a hint that comes while nobody waits is heard the next time.
    pub async fn changed(&mut self) -> bool {
        self.receiver.changed().await.is_ok()
    }

    /// Whether a hint is waiting to be heard.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.receiver.has_changed().unwrap_or(false)
    }
}

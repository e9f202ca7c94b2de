//! In-memory value: mutations run one after another, in the order of arrival, and never conflict.

use std::sync::Arc;

use super::codec::Value;
use super::mutation::Mutation;
use super::mutator::{End, Mutator, StartedMutation};
use super::reentry::{self, Within};
use super::{Versioned, WriteOutcome};
use crate::id::{DocVersion, OpId};
use crate::runtime::panic::discard;

/// The value, with a version that counts its changes.
pub(super) struct Memory<T> {
    name: String,
    number: u64,
    value: tokio::sync::Mutex<Versioned<T>>,
    changed: tokio::sync::watch::Sender<DocVersion>,
}

impl<T: Value> Memory<T> {
    pub(super) fn new(name: &str, value: T) -> Self {
        let version = DocVersion(1);
        Self {
            name: name.to_owned(),
            number: reentry::next_number(),
            value: tokio::sync::Mutex::new(Versioned { version, value }),
            changed: tokio::sync::watch::Sender::new(version),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Runs a mutator when its turn comes. If the future is dropped before the end, the old value stays.
    pub(super) async fn run(
        &self,
        mut mutator: Box<dyn Mutator<T>>,
        mutation: Arc<Mutation>,
        within: Within,
    ) {
        let mut value = self.value.lock().await;
        if !mutation.run() {
            return;
        }
        let changed = match mutator.run(value.value.clone(), &within) {
            StartedMutation::Now(changed) => changed,
            StartedMutation::Later(running) => running.await,
        };
        // Nothing is awaited from here on, so the change is either complete or absent.
        let Some(changed) = changed.filter(|_| mutation.write(OpId::new())) else {
            return mutator.end(End::ItsOwn);
        };
        let old = std::mem::replace(&mut value.value, changed);
        value.version = DocVersion(value.version.0.saturating_add(1));
        self.changed.send_replace(value.version);
        mutator.end(End::Did(WriteOutcome::Committed { version: value.version }));
        discard(old);
    }

    /// Returns a receiver that observes every new version.
    pub(super) fn changes(&self) -> tokio::sync::watch::Receiver<DocVersion> {
        self.changed.subscribe()
    }

    pub(super) async fn read(&self) -> Versioned<T> {
        self.value.lock().await.clone()
    }
}

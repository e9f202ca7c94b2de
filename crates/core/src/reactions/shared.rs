//! What the tasks of running reactions share, and how they wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::definition::Definition;
use crate::clock::Timestamp;
use crate::id::Owner;
use crate::lease::Claims;
use crate::lease::working::{self, HUSH};
use crate::store::{SharedStore, StoreError, Watch};
use crate::telemetry::Count;

/// How reactions run in this process.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) owner: Option<Owner>,
    pub(super) concurrency: usize,
    pub(super) prefetch: usize,
    pub(super) grace: Duration,
    pub(super) look_again: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owner: None,
            concurrency: 16,
            prefetch: 16,
            grace: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
        }
    }
}

/// What the tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: SharedStore,
    pub(super) owner: Owner,
    pub(super) options: Options,
    pub(super) definitions: BTreeMap<String, Arc<Definition>>,
    /// Nothing new is begun.
    pub(super) stopping: CancellationToken,
    /// What has begun is broken off.
    pub(super) cut: CancellationToken,
    /// There is work: somebody in this process knows it for sure.
    pub(super) work: Notify,
    /// Everything is broken off, as a crash would.
    pub(super) killed: CancellationToken,
    pub(super) claims: Claims,
    /// How many claims there were.
    pub(super) claimed: Count,
}

impl Shared {
    /// Waits for a while, or until nothing new is to be begun.
    pub(super) async fn pause(&self, wait: Duration) {
        working::pause(wait, &self.stopping).await;
    }

    /// Waits after a failure of the store.
    pub(super) async fn recover(&self, what: &str, error: &StoreError) {
        tracing::warn!(target: crate::telemetry::REACTIONS, %error, "{what}; it is tried again");
        self.pause(working::after(error, self.options.look_again)).await;
    }

    /// How long it is until an instant of the store.
    pub(super) async fn until(&self, at: Option<Timestamp>) -> Duration {
        working::until(&self.store, at, self.options.look_again).await
    }
}

/// Waits for a hint after a look.
pub(super) async fn heard(hints: &mut Watch, looked: Instant) {
    working::hinted(hints, looked + HUSH).await;
}

//! State that all contexts of one activation share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::activation::ActivationRef;
use super::journal_entry::Ran;
use crate::clock::Timestamp;
use crate::store::SharedStore;
use crate::worker::LeasedWork;

/// The run of an activation, and the lease on it.
pub(super) struct Life {
    pub(super) run: Arc<str>,
    /// The id, and the generation if it is not the first. It names effects and progress.
    pub(super) identity: Arc<str>,
    pub(super) generation: u32,
    pub(super) queue: String,
    pub(super) activation: ActivationRef,
    pub(super) hold: Option<(SharedStore, Arc<LeasedWork>)>,
    /// Fires when steps should stop.
    pub(super) token: CancellationToken,
    /// An activation before this one did not complete.
    pub(super) again: bool,
    /// The number of takeovers of the run.
    pub(super) takeovers: u32,
}

impl Life {
    /// Returns the estimated time of the store's clock, for times that are recorded.
    pub(super) fn now(&self) -> Timestamp {
        self.hold.as_ref().map_or(Timestamp::EPOCH, |(store, _)| store.estimated_now())
    }

    /// Returns the times of an attempt that ends now.
    pub(super) fn ran_since(&self, began: Timestamp) -> Ran {
        Ran { began, ended: self.now().max(began) }
    }
}

//! Wait-queue places that this process renews.
//!
//! A waiter behind one of them is notified in this process when the place ends, and need not poll the store.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::key::Key;
use crate::process::PerProcess;

static PLACES: PerProcess<Mutex<HashMap<Key, CancellationToken>>> = PerProcess::new(Mutex::default);

/// Registers a place, with the token that fires when it is lost or left.
pub(super) fn enter(place: &Key, token: &CancellationToken) {
    PLACES.with(|places| places.lock().insert(place.clone(), token.clone()));
}

pub(super) fn leave(place: &Key) {
    PLACES.with(|places| places.lock().remove(place));
}

/// Returns the token of a place that this process renews. Returns `None` for places of other processes, and for one
/// that has ended.
pub(super) fn renewed_here(place: &Key) -> Option<CancellationToken> {
    PLACES.with(|places| places.lock().get(place).filter(|token| !token.is_cancelled()).cloned())
}

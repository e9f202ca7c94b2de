//! Expected results of the demo, known to the parent without reading the store.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::worker::WorkerReport;

/// A piece put into a cart: the customer, the item and the piece number.
pub(crate) type Piece = (usize, String, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Orders whose receipt was returned, with the number of items of each.
    receipts: Mutex<BTreeMap<u64, u64>>,
    /// The latest report of each worker.
    told: Mutex<BTreeMap<u64, WorkerReport>>,
    /// The pieces put into carts.
    put: Mutex<Vec<Piece>>,
    /// Orders that conflicted with a change of the cart, and were decided again.
    pub(crate) conflicts: AtomicU64,
    /// Orders that were placed twice under one id, and recognised.
    pub(crate) recognised: AtomicU64,
    /// Workers that were killed.
    pub(crate) kills: AtomicU64,
    /// Workers that were suspended for longer than their leases.
    pub(crate) stops: AtomicU64,
    /// Workers that exited unexpectedly. The expected number is 0.
    pub(crate) fallen: AtomicU64,
}

impl Expected {
    /// Returns the number of orders.
    pub(crate) fn asked(&self) -> u64 {
        held(&self.receipts).len() as u64
    }

    /// Returns the orders, with the number of items of each.
    pub(crate) fn receipts(&self) -> BTreeMap<u64, u64> {
        held(&self.receipts).clone()
    }

    pub(crate) fn add_receipt(&self, order: u64, items: u64) {
        held(&self.receipts).insert(order, items);
    }

    pub(crate) fn put(&self, piece: Piece) {
        held(&self.put).push(piece);
    }

    /// Returns all pieces put into carts.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        held(&self.put).clone()
    }

    pub(crate) fn hear(&self, worker: u64, told: WorkerReport) {
        held(&self.told).insert(worker, told);
    }

    /// Returns the sum of the reports of all workers, including dead ones.
    pub(crate) fn total(&self) -> WorkerReport {
        let add = |all: WorkerReport, one: &WorkerReport| WorkerReport {
            replayed: all.replayed + one.replayed,
            fenced: all.fenced + one.fenced,
        };
        held(&self.told).values().fold(WorkerReport::default(), add)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

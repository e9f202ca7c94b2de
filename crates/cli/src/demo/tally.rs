//! What the parent knows by itself, without asking the store.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::worker::Told;

/// Something that was put into a cart: by which customer, which item, and its number.
pub(crate) type Piece = (usize, String, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Orders whose receipt came back, and how many items each has.
    receipts: Mutex<BTreeMap<u64, u64>>,
    /// What workers told last.
    told: Mutex<BTreeMap<u64, Told>>,
    /// What was put into carts.
    put: Mutex<Vec<Piece>>,
    /// Orders that found the cart changed, and were decided again.
    pub(crate) conflicts: AtomicU64,
    /// Orders that were placed twice under one id, and recognised.
    pub(crate) recognised: AtomicU64,
    /// Workers that were killed.
    pub(crate) kills: AtomicU64,
    /// Workers that stood still for longer than their leases.
    pub(crate) stops: AtomicU64,
    /// Workers that ended by themselves, which none should.
    pub(crate) fallen: AtomicU64,
}

impl Tally {
    /// How many orders there are.
    pub(crate) fn asked(&self) -> u64 {
        held(&self.receipts).len() as u64
    }

    /// The orders, and how many items each has.
    pub(crate) fn receipts(&self) -> BTreeMap<u64, u64> {
        held(&self.receipts).clone()
    }

    pub(crate) fn add_receipt(&self, order: u64, items: u64) {
        held(&self.receipts).insert(order, items);
    }

    pub(crate) fn put(&self, piece: Piece) {
        held(&self.put).push(piece);
    }

    /// All that was put into carts.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        held(&self.put).clone()
    }

    pub(crate) fn hear(&self, worker: u64, told: Told) {
        held(&self.told).insert(worker, told);
    }

    /// What all workers told, the dead included.
    pub(crate) fn told(&self) -> Told {
        let add = |all: Told, one: &Told| Told {
            replayed: all.replayed + one.replayed,
            fenced: all.fenced + one.fenced,
        };
        held(&self.told).values().fold(Told::default(), add)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

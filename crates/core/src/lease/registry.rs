//! Registry of the leases that this process holds, by owner. It detects tasks that request a lease that they hold.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::Owner;
use crate::lock::TaskId;
use crate::process::PerProcess;
use crate::worker::{LocalLease, LostReason};

static HOLDS: PerProcess<Mutex<HashMap<Owner, Entry>>> = PerProcess::new(Mutex::default);

#[derive(Debug)]
struct Entry {
    task: Option<TaskId>,
    place: &'static Location<'static>,
    kept: Arc<LocalLease>,
}

pub(super) fn enter(
    owner: &Owner,
    task: Option<TaskId>,
    place: &'static Location<'static>,
    kept: &Arc<LocalLease>,
) {
    let entry = Entry { task, place, kept: Arc::clone(kept) };
    HOLDS.with(|holds| holds.lock().insert(owner.clone(), entry));
}

pub(super) fn leave(owner: &Owner) {
    HOLDS.with(|holds| holds.lock().remove(owner));
}

/// Reassigns the hold to that task.
pub(super) fn adopt(owner: &Owner, task: Option<TaskId>) {
    HOLDS.with(|holds| {
        if let Some(entry) = holds.lock().get_mut(owner) {
            entry.task = task;
        }
    });
}

/// Returns where the task acquired the hold, if that owner is a hold of this task.
pub(super) fn own(owner: &Owner, task: Option<TaskId>) -> Option<&'static Location<'static>> {
    HOLDS.with(|holds| {
        let holds = holds.lock();
        let entry = holds.get(owner)?;
        (task.is_some() && entry.task == task).then_some(entry.place)
    })
}

/// Notifies a holder in this process of a loss at once, before its next renewal would fail.
pub(super) fn lose(owner: &Owner, reason: LostReason) {
    let kept = HOLDS.with(|holds| holds.lock().get(owner).map(|entry| Arc::clone(&entry.kept)));
    if let Some(kept) = kept {
        kept.lose(reason);
    }
}

//! Keys and lanes of runs in the store.

use crate::error::InvalidInput;
use crate::id::QueueName;
use crate::key::{Arg, Key, KeyPrefix};
use crate::model::hash;
use crate::worker::local_notify;

/// The kind of a run's document and work row: `tidelock.run("order-17")`.
const RUN: &str = "tidelock.run";
/// The kind of a run's journal: `tidelock.journal("order-17", 0)`.
const JOURNAL: &str = "tidelock.journal";
/// The kind of the documents in which long steps save their progress.
const PROGRESS: &str = "tidelock.progress";
/// The kind of the documents with the values that runs publish.
const VALUES: &str = "tidelock.values";
/// The kind of the documents that register workflows.
const WORKFLOW: &str = "tidelock.workflow";
/// The kind of the documents with the limits of queues.
const QUEUE: &str = "tidelock.queue";
/// The kind of the work rows that are the seats of a queue, its concurrency slots.
const SEAT: &str = "tidelock.seat";
/// The longest id of a run, in bytes. It leaves room for the other parts of the keys that contain it.
pub(super) const MAX_ID_BYTES: usize = 256;
/// The longest name of a workflow, a queue or a step, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 128;
/// The queue of runs and workers that name none.
pub(super) const DEFAULT_QUEUE: &str = "default";

/// Returns the key of a run's document and work row.
pub(super) fn run(id: &str) -> Result<Key, InvalidInput> {
    Key::new(RUN, [id])
}

/// Returns the prefix of the runs whose ids begin with a text.
pub(super) fn runs_from(prefix: &str) -> KeyPrefix {
    KeyPrefix::starting(RUN, &[], prefix)
}

/// Returns the prefix of all runs.
pub(super) fn all_runs() -> KeyPrefix {
    KeyPrefix::kind(RUN)
}

/// Returns the id of the run that a key names.
pub(super) fn run_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(id)) if key.kind() == RUN => Some(id),
        _ => None,
    }
}

/// Returns the key of a run's journal. A run that continues as new gets a new journal.
pub(super) fn journal(id: &str, generation: u32) -> Result<Key, InvalidInput> {
    Key::of(JOURNAL, &[Arg::Str(id.to_owned()), Arg::Int(generation.into())])
}

/// Returns the key of a step's progress in one generation of its run.
pub(super) fn progress(id: &str, identity: &str, step: &str) -> Result<Key, InvalidInput> {
    Key::new(PROGRESS, [id, identity, step])
}

/// Returns the key of the mark that a step has recorded its own end, which it can do once.
pub(super) fn recorded(id: &str, identity: &str, step: &str) -> Result<Key, InvalidInput> {
    Key::new(PROGRESS, [id, identity, step, "end"])
}

/// Returns the name of a run's generation in the keys of its effects. Separators in the id are escaped, so that no two runs
/// share a name.
pub(super) fn identity(id: &str, generation: u32) -> String {
    let id = id.replace('%', "%25").replace(':', "%3A").replace('#', "%23");
    if generation == 0 { id } else { format!("{id}#{generation}") }
}

/// Returns the id of a child, below that of its parent.
pub(super) fn child(parent: &str, generation: u32, name: &str) -> String {
    if generation == 0 { format!("{parent}/{name}") } else { format!("{parent}#{generation}/{name}") }
}

/// Returns the prefix of the progress of all steps of a run.
pub(super) fn all_progress(id: &str) -> KeyPrefix {
    KeyPrefix::under(PROGRESS, &[Arg::Str(id.to_owned())])
}

/// Returns the key of the values that a run has published.
pub(super) fn values(id: &str) -> Result<Key, InvalidInput> {
    Key::new(VALUES, [id])
}

/// Returns the key of a workflow's registration.
pub(super) fn workflow(name: &str) -> Result<Key, InvalidInput> {
    Key::new(WORKFLOW, [name])
}

/// Returns the prefix of all workflows that a worker has ever registered.
pub(super) fn all_workflows() -> KeyPrefix {
    KeyPrefix::kind(WORKFLOW)
}

/// Returns whether a work row belongs to a run.
pub(super) fn is_run(row: &Key) -> bool {
    row.kind() == RUN
}

/// Returns the lane of a queue's runs that have begun.
pub(super) fn queue_name(queue: &str) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("run.{queue}"))
}

/// Returns the lane of a queue's runs that have not begun.
pub(super) fn new_queue_name(queue: &str) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("start.{queue}"))
}

/// The number of lanes over which a queue spreads the runs with a fairness key.
pub(super) const SHARES: u64 = 16;

/// Returns the lane of the runs with a fairness key that have not begun. The hash of the key selects the lane, so a key
/// always has the same lane, and may share it with other keys.
pub(super) fn fair_lane(queue: &str, whose: &str) -> Result<QueueName, InvalidInput> {
    share_queue_name(queue, hash::of(whose) % SHARES)
}

/// Returns one of the lanes for fairness keys.
pub(super) fn share_queue_name(queue: &str, share: u64) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("start{share}.{queue}"))
}

/// Returns the key of a queue's limits. Workers of this process listen on it, so that they need not wait for a hint of the store.
pub(super) fn queue(queue: &str) -> Result<Key, InvalidInput> {
    Key::new(QUEUE, [queue])
}

/// Returns the prefix of all queues.
pub(super) fn all_queues() -> KeyPrefix {
    KeyPrefix::kind(QUEUE)
}

/// Returns the queue that a key names.
pub(super) fn queue_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(name)) if key.kind() == QUEUE => Some(name),
        _ => None,
    }
}

/// Returns the key of a seat of a queue with limited concurrency. The worker that holds its row may drive one run.
pub(super) fn seat(queue: &str, seat: u32) -> Result<Key, InvalidInput> {
    Key::of(SEAT, &[Arg::Str(queue.to_owned()), Arg::Int(seat.into())])
}

/// Returns the number of the seat that a key names.
pub(super) fn seat_of(key: &Key) -> Option<u32> {
    match key.args().as_slice() {
        [Arg::Str(_), Arg::Int(seat)] if key.kind() == SEAT => u32::try_from(*seat).ok(),
        _ => None,
    }
}

/// Returns the lane of a queue's seats.
pub(super) fn seats(queue: &str) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("seat.{queue}"))
}

/// Returns the key of a queue's rate limit: when the next run would begin, if all were spread evenly.
pub(super) fn rate(queue: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.rate", [queue])
}

/// Notifies the workers of this process that a queue has changed, so that they poll at once.
pub(super) fn wake(queue_name: &str) {
    if let Ok(key) = queue(queue_name) {
        local_notify::notify(&key);
    }
}

/// Returns the key of the work row whose holder removes old runs, and its lane.
pub(super) fn retention() -> Result<(Key, QueueName), InvalidInput> {
    Ok((Key::single("tidelock.retention")?, QueueName::new("retention")?))
}

/// Checks a name that a user gives.
pub(super) fn check(what: &'static str, text: &str, longest: usize) -> Result<(), InvalidInput> {
    if text.is_empty() {
        return Err(InvalidInput::name(what, text, "it is empty"));
    }
    if text.len() > longest {
        let reason = format!("it has {} bytes, at most {longest} are allowed", text.len());
        return Err(InvalidInput::name(what, text, reason));
    }
    if text.chars().any(char::is_control) {
        return Err(InvalidInput::name(what, text, "it contains control characters"));
    }
    Ok(())
}

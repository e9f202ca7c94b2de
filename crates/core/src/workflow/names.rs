//! The names that runs have in the store: keys and lanes.

use crate::error::InvalidInput;
use crate::id::Lane;
use crate::key::{Arg, Key, KeyPrefix};
use crate::model::hash;
use crate::worker::local_notify;

/// The kind of a run's document and work row: `tidelock.run("order-17")`.
const RUN: &str = "tidelock.run";
/// The kind of a run's journal: `tidelock.journal("order-17", 0)`.
const JOURNAL: &str = "tidelock.journal";
/// The kind of the documents in which long steps keep how far they are.
const PROGRESS: &str = "tidelock.progress";
/// The kind of the documents with what runs publish.
const VALUES: &str = "tidelock.values";
/// The kind of the documents that say which workflows there are.
const WORKFLOW: &str = "tidelock.workflow";
/// The kind of the documents with what workers of a queue hold to.
const QUEUE: &str = "tidelock.queue";
/// The kind of the work rows that are the seats of a queue.
const SEAT: &str = "tidelock.seat";
/// The longest id of a run, in bytes. It leaves room for what is added to it.
pub(super) const MAX_ID_BYTES: usize = 256;
/// The longest name of a workflow, a queue or a step, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 128;
/// The queue of workflows that name none.
pub(super) const DEFAULT_QUEUE: &str = "default";

/// The document and the work row of a run.
pub(super) fn run(id: &str) -> Result<Key, InvalidInput> {
    Key::new(RUN, [id])
}

/// The runs whose ids begin with a text.
pub(super) fn runs_from(prefix: &str) -> KeyPrefix {
    KeyPrefix::starting(RUN, &[], prefix)
}

/// All runs.
pub(super) fn all_runs() -> KeyPrefix {
    KeyPrefix::kind(RUN)
}

/// The run that a key names.
pub(super) fn run_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(id)) if key.kind() == RUN => Some(id),
        _ => None,
    }
}

/// What a run did, in order. A run that continues as new has a new one.
pub(super) fn journal(id: &str, generation: u32) -> Result<Key, InvalidInput> {
    Key::of(JOURNAL, &[Arg::Str(id.to_owned()), Arg::Int(generation.into())])
}

/// How far a step is, in one generation of its run.
pub(super) fn progress(id: &str, identity: &str, step: &str) -> Result<Key, InvalidInput> {
    Key::new(PROGRESS, [id, identity, step])
}

/// That a step has recorded its own end, which it can do once.
pub(super) fn recorded(id: &str, identity: &str, step: &str) -> Result<Key, InvalidInput> {
    Key::new(PROGRESS, [id, identity, step, "end"])
}

/// What names a generation of a run in the keys of its effects. What separates the parts is escaped in the id, so that no two
/// runs have the same.
pub(super) fn identity(id: &str, generation: u32) -> String {
    let id = id.replace('%', "%25").replace(':', "%3A").replace('#', "%23");
    if generation == 0 { id } else { format!("{id}#{generation}") }
}

/// The id of a child, below that of its parent.
pub(super) fn child(parent: &str, generation: u32, name: &str) -> String {
    if generation == 0 { format!("{parent}/{name}") } else { format!("{parent}#{generation}/{name}") }
}

/// How far all steps of a run are.
pub(super) fn all_progress(id: &str) -> KeyPrefix {
    KeyPrefix::under(PROGRESS, &[Arg::Str(id.to_owned())])
}

/// What a run has published.
pub(super) fn values(id: &str) -> Result<Key, InvalidInput> {
    Key::new(VALUES, [id])
}

/// What is known of a workflow.
pub(super) fn workflow(name: &str) -> Result<Key, InvalidInput> {
    Key::new(WORKFLOW, [name])
}

/// All workflows that a worker has ever known.
pub(super) fn all_workflows() -> KeyPrefix {
    KeyPrefix::kind(WORKFLOW)
}

/// The lane of a queue's runs that are under way.
pub(super) fn lane(queue: &str) -> Result<Lane, InvalidInput> {
    Lane::new(format!("run.{queue}"))
}

/// The lane of a queue's runs that have not begun.
pub(super) fn new_lane(queue: &str) -> Result<Lane, InvalidInput> {
    Lane::new(format!("start.{queue}"))
}

/// How many lanes share out the runs of a queue that are started for somebody.
pub(super) const SHARES: u64 = 16;

/// The lane of runs that have not begun, for somebody: whoever else is in it with them is chance, and always the same.
pub(super) fn fair_lane(queue: &str, whose: &str) -> Result<Lane, InvalidInput> {
    share_lane(queue, hash::of(whose) % SHARES)
}

/// One of them.
pub(super) fn share_lane(queue: &str, share: u64) -> Result<Lane, InvalidInput> {
    Lane::new(format!("start{share}.{queue}"))
}

/// What is known of a queue. Workers of this process listen to it, so that they need not wait for a hint of the store.
pub(super) fn queue(queue: &str) -> Result<Key, InvalidInput> {
    Key::new(QUEUE, [queue])
}

/// All queues.
pub(super) fn all_queues() -> KeyPrefix {
    KeyPrefix::kind(QUEUE)
}

/// The queue that a key names.
pub(super) fn queue_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(name)) if key.kind() == QUEUE => Some(name),
        _ => None,
    }
}

/// A seat of a queue that has only so many: who holds its row may drive one run.
pub(super) fn seat(queue: &str, seat: u32) -> Result<Key, InvalidInput> {
    Key::of(SEAT, &[Arg::Str(queue.to_owned()), Arg::Int(seat.into())])
}

/// The how manieth seat a key names.
pub(super) fn seat_of(key: &Key) -> Option<u32> {
    match key.args().as_slice() {
        [Arg::Str(_), Arg::Int(seat)] if key.kind() == SEAT => u32::try_from(*seat).ok(),
        _ => None,
    }
}

/// The lane of a queue's seats.
pub(super) fn seats(queue: &str) -> Result<Lane, InvalidInput> {
    Lane::new(format!("seat.{queue}"))
}

/// When the next run of a queue would begin, if all were spread evenly.
pub(super) fn rate(queue: &str) -> Result<Key, InvalidInput> {
    Key::new("tidelock.rate", [queue])
}

/// There is something in a queue: workers of this process look at once.
pub(super) fn wake(queue_name: &str) {
    if let Ok(key) = queue(queue_name) {
        local_notify::notify(&key);
    }
}

/// The row of the worker whose turn it is to remove old runs, and its lane.
pub(super) fn retention() -> Result<(Key, Lane), InvalidInput> {
    Ok((Key::single("tidelock.retention")?, Lane::new("retention")?))
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

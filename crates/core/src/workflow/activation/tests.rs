//! Tables of the state machine, and a property: a replay observes what the run observed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod replays;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Action, Activation, ActivationRef, Finish, Moment, OpEvent, OpHandle, Request, Resolution};
use crate::clock::{Due, Timestamp};
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::id::StreamVersion;
use crate::lease::NEVER;
use crate::model::retry::RetryPolicy;
use crate::payload::Payload;
use crate::store::Batch;
use crate::workflow::context_guard::in_workflow;
use crate::workflow::journal_entry::{
    Awaited, ChildEnded, ChildStarted, Done, Ending, JournalEntry, Kind, NamedEntry, SignalReceived,
};
use crate::workflow::journal_entry::{OpId, Placed, Ran, Reason, TimerSet, TimerSpec};

const LINGER: Duration = Duration::from_millis(50);
const AT: Timestamp = Timestamp::from_micros(1_000_000);

fn moment() -> Moment {
    Moment { stopping: false, linger: LINGER, now: None }
}

fn at(now: Timestamp) -> Moment {
    Moment { now: Some(now), ..moment() }
}

/// Creates an activation that has requested its first poll.
fn fresh(history: Vec<JournalEntry>) -> ActivationRef {
    let activation = Activation::new(placed(history), &[]);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    activation
}

fn placed(entries: Vec<JournalEntry>) -> Vec<Placed> {
    let entries = (1..).zip(entries);
    entries.map(|(version, entry)| Placed { version: StreamVersion(version), at: AT, entry }).collect()
}

fn request(activation: &ActivationRef, kind: Kind, name: &str) -> OpHandle {
    let signal = (kind == Kind::Wait).then(|| name.split(' ').next().unwrap().to_owned());
    let (name, input) = (name.to_owned(), None);
    let request = Request { kind, name, input, shielded: false, signal, records_itself: false };
    in_workflow(activation, || OpHandle::request(activation, request))
}

/// Polls an operation once, as the workflow would.
fn poll(op: &OpHandle) -> Option<OpEvent> {
    let mut event: Pin<Box<dyn Future<Output = OpEvent>>> = Box::pin(op.event());
    match event.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => Some(event),
        Poll::Pending => None,
    }
}

fn step(activation: &ActivationRef, name: &str) -> OpHandle {
    let op = request(activation, Kind::Step, name);
    assert!(poll(&op).is_none(), "{name} needs permission");
    op
}

fn run(op: &OpHandle) {
    assert!(matches!(poll(op), Some(OpEvent::Run(_))));
}

fn end(op: &OpHandle, value: &str) {
    op.end_attempt(Ok(Payload::trusted(value)), Ran::EPOCH, &RetryPolicy::default(), Batch::new());
}

fn timer(activation: &ActivationRef, name: &str, wait: Duration) -> OpHandle {
    let op = request(activation, Kind::Timer, name);
    op.begin(|op| (JournalEntry::TimerSet(TimerSet { op, when: TimerSpec::After(wait) }), Batch::new()));
    assert!(poll(&op).is_none());
    op
}

/// Commits the outgoing entries at an instant, as a driver does.
fn commit(activation: &ActivationRef) -> Vec<JournalEntry> {
    let mut activation = activation.lock();
    let mut entries = Vec::new();
    for outgoing in activation.take_outgoing() {
        let Some(entry) = outgoing.entry else { continue };
        entries.push(entry.clone());
        if !outgoing.delivered {
            activation.receive(Placed { version: StreamVersion(99), at: AT, entry });
        }
    }
    entries
}

fn value(op: &OpHandle) -> String {
    match poll(op) {
        Some(OpEvent::Resolved(Resolution::Value(value))) => value.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn id(name: &str, seq: u32) -> OpId {
    OpId { name: name.to_owned(), seq, input: None }
}

fn done(name: &str, seq: u32, value: &str) -> JournalEntry {
    JournalEntry::Done(Done { op: id(name, seq), value: Payload::trusted(value), ran: Ran::EPOCH })
}

fn received(signal: &str, value: &str) -> JournalEntry {
    JournalEntry::Heard(SignalReceived {
        signal: signal.to_owned(),
        id: None,
        value: Payload::trusted(value),
    })
}

fn cancel() -> JournalEntry {
    JournalEntry::Cancel(Reason { reason: "no".to_owned() })
}

#[test]
fn a_lone_step_is_permitted_run_and_committed() {
    let activation = fresh(vec![]);
    let op = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&op);
    assert_eq!(activation.lock().next(moment()), Action::Wait(None));
    end(&op, "1");
    assert_eq!(value(&op), "1", "a lone step is delivered before its commit");
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    assert_eq!(commit(&activation), [done("a", 0, "1")]);
}

#[test]
fn a_step_begins_after_everything_before_it_is_committed() {
    let activation = fresh(vec![]);
    let first = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&first);
    end(&first, "1");
    let second = step(&activation, "b");
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    assert!(poll(&second).is_none());
    commit(&activation);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&second);
}

#[test]
fn parallel_steps_are_delivered_in_the_order_of_their_entries() {
    let activation = fresh(vec![]);
    let (a, b) = (step(&activation, "a"), step(&activation, "b"));
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&a);
    run(&b);
    end(&b, "2");
    end(&a, "1");
    assert!(poll(&a).is_none() && poll(&b).is_none(), "the journal decides the order");
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    assert_eq!(commit(&activation), [done("b", 1, "2"), done("a", 0, "1")]);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert!(poll(&a).is_none());
    assert_eq!(value(&b), "2");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&a), "1");
}

#[test]
fn a_replay_delivers_one_entry_for_each_poll() {
    let activation = fresh(vec![done("b", 1, "2"), done("a", 0, "1")]);
    let (a, b) = (step(&activation, "a"), step(&activation, "b"));
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert!(poll(&a).is_none());
    assert_eq!(value(&b), "2");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&a), "1");
    assert_eq!(activation.lock().finish(), Finish::End);
}

#[test]
fn long_waits_rest_in_the_store_and_short_ones_in_memory() {
    let hour = Duration::from_hours(1);
    let activation = fresh(vec![]);
    let _timer = timer(&activation, "sleep 1", hour);
    assert_eq!(activation.lock().next(moment()), Action::Suspend(Due::After(hour)));

    let activation = fresh(vec![]);
    let short = timer(&activation, "sleep 1", LINGER);
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    commit(&activation);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(activation.lock().next(moment()), Action::ReadClock);
    assert_eq!(activation.lock().next(at(AT)), Action::Wait(Some(LINGER)));
    assert_eq!(activation.lock().next(at(AT.after(LINGER))), Action::Commit);
    assert_eq!(commit(&activation), [JournalEntry::TimerFired(NamedEntry { name: "sleep 1".to_owned() })]);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert!(matches!(poll(&short), Some(OpEvent::Resolved(Resolution::Nothing))));
}

#[test]
fn a_replayed_timer_is_compared_with_the_clock_before_the_run_rests() {
    let set = JournalEntry::TimerSet(TimerSet {
        op: id("sleep 1", 0),
        when: TimerSpec::After(Duration::from_hours(1)),
    });
    let due = AT.after(Duration::from_hours(1));
    for (now, action) in [(AT, Action::Suspend(Due::At(due))), (due, Action::Commit)] {
        let activation = fresh(vec![set.clone()]);
        let _timer = timer(&activation, "sleep 1", Duration::from_hours(1));
        assert_eq!(activation.lock().next(moment()), Action::Poll);
        assert_eq!(activation.lock().next(moment()), Action::ReadClock);
        assert_eq!(activation.lock().next(at(now)), action);
    }
}

#[test]
fn a_signal_that_came_first_is_handed_over_before_the_next_entry() {
    let activation = fresh(vec![received("go", "1"), done("a", 1, "2")]);
    let wait = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&wait).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the entry");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the signal");
    assert_eq!(value(&wait), "1");
    let a = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&a), "2");
}

#[test]
fn a_signal_that_was_not_consumed_is_there_for_the_next_wait() {
    let activation = fresh(vec![received("go", "1")]);
    let first = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&first).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    drop(first);
    let second = request(&activation, Kind::Wait, "go 2");
    assert!(poll(&second).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&second), "1");
    assert!(activation.lock().unread_signals().is_empty());
}

#[test]
fn a_wait_that_is_kept_gives_its_signal_back_and_receives_it_when_it_is_awaited() {
    let activation = fresh(vec![received("go", "1")]);
    let kept = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&kept).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the entry");
    assert_eq!(
        activation.lock().next(moment()),
        Action::Poll,
        "the signal, which the workflow does not take"
    );
    assert_eq!(activation.lock().next(moment()), Action::Wait(None));
    assert_eq!(activation.lock().unread_signals().len(), 1);
    let second = request(&activation, Kind::Wait, "go 2");
    assert!(poll(&second).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&second), "1");
    activation.lock().receive(placed(vec![received("go", "2")]).remove(0));
    assert!(poll(&kept).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the entry");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the signal");
    assert_eq!(value(&kept), "2");
}

#[test]
fn a_step_that_is_kept_after_its_first_poll_does_not_hold_the_run() {
    let activation = fresh(vec![]);
    let kept = step(&activation, "a");
    let timer = timer(&activation, "sleep 1", Duration::from_hours(1));
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    commit(&activation);
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the timer is set");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the step may run, and is not polled");
    let due = AT.after(Duration::from_hours(1));
    assert_eq!(activation.lock().next(at(AT)), Action::Suspend(Due::At(due)));
    assert!(poll(&kept).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&kept);
    drop(timer);
}

#[test]
fn a_step_that_recorded_itself_keeps_the_run_from_resting_beside_a_dropped_timer() {
    let activation = fresh(vec![]);
    let wait = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&wait).is_none());
    let request = Request {
        kind: Kind::Step,
        name: "tx".to_owned(),
        input: None,
        shielded: false,
        signal: None,
        records_itself: true,
    };
    let tx = in_workflow(&activation, || OpHandle::request(&activation, request));
    assert!(poll(&tx).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&tx);
    drop(timer(&activation, "sleep 1", Duration::from_hours(1)));
    tx.end_recorded_attempt(None, &RetryPolicy::default(), Ran::EPOCH);
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    commit(&activation);
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the dropped timer is set");
    assert_eq!(activation.lock().next(moment()), Action::ReadOwnRecords);
}

#[test]
fn a_dropped_step_whose_effects_are_rejected_stays_closed() {
    let activation = fresh(vec![]);
    let wait = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&wait).is_none());
    let op = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&op);
    op.end_attempt(Ok(Payload::null()), Ran::EPOCH, &RetryPolicy::default(), Batch::new());
    drop(op);
    let outgoing = activation.lock().take_outgoing().remove(0);
    activation.lock().reject(&outgoing, "no");
    assert_eq!(activation.lock().next(moment()), Action::Suspend(Due::At(NEVER)));
}

#[test]
fn a_signal_is_handed_over_after_the_commit_of_a_result_that_is_ahead() {
    let activation = fresh(vec![received("go", "7")]);
    let first = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the signal");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the permission");
    run(&first);
    end(&first, "1");
    let wait = request(&activation, Kind::Wait, "go 1");
    assert!(poll(&wait).is_none());
    // A cancellation may come before the entry of the step. A replay then cancels the wait instead.
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    assert!(poll(&wait).is_none(), "the signal is handed over too early");
    commit(&activation);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&wait), "7");
}

#[test]
fn code_that_ignores_its_cancellation_fails() {
    let activation = fresh(vec![cancel()]);
    let mut ops = Vec::new();
    loop {
        match activation.lock().next(moment()) {
            Action::Poll => {}
            Action::Fail(_) => break,
            other => panic!("{other:?}"),
        }
        let op = request(&activation, Kind::Wait, &format!("go {}", ops.len()));
        assert!(poll(&op).is_none());
        ops.push(op);
        assert!(ops.len() < 20_000, "the activation has a limit");
    }
}

#[test]
fn a_wait_without_an_end_rests_until_it_is_woken() {
    let activation = fresh(vec![]);
    let wait = request(&activation, Kind::Wait, "go 1");
    wait.note(|op| JournalEntry::Awaited(Awaited { op }));
    assert!(poll(&wait).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Suspend(Due::At(NEVER)));
}

#[test]
fn a_wait_that_is_kept_and_not_awaited_does_not_rest_the_run() {
    let activation = fresh(vec![]);
    let _kept = request(&activation, Kind::Wait, "go 1");
    assert_eq!(activation.lock().next(moment()), Action::Wait(None), "the code awaits a future of its own");
}

#[test]
fn a_cancelled_run_gives_up_its_waits_and_cancels_its_children() {
    let started = JournalEntry::ChildStarted(ChildStarted { op: id("c", 0), run: "r.c".to_owned() });
    let activation = fresh(vec![started, cancel()]);
    let child = request(&activation, Kind::Child, "c");
    assert!(poll(&child).is_none());
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the child started");
    assert_eq!(activation.lock().next(moment()), Action::Poll, "the cancellation");
    assert_eq!(activation.lock().next(moment()), Action::CancelChildren(vec!["r.c".to_owned()]));
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    let given_up = poll(&child);
    assert!(
        matches!(given_up, Some(OpEvent::Resolved(Resolution::Error(StepError::Cancelled { .. })))),
        "{given_up:?}"
    );
}

#[test]
fn a_child_of_another_generation_does_not_resolve_a_namesake() {
    let started = JournalEntry::ChildStarted(ChildStarted { op: id("c", 0), run: "r#1.c".to_owned() });
    let ended = |run: &str| {
        let (name, run) = ("c".to_owned(), run.to_owned());
        JournalEntry::ChildEnded(ChildEnded { name, run, ending: Ending::Completed(Payload::trusted("1")) })
    };
    let activation = fresh(vec![started, ended("r.c"), ended("r#1.c")]);
    let child = request(&activation, Kind::Child, "c");
    assert!(poll(&child).is_none());
    for _ in 0..2 {
        assert_eq!(activation.lock().next(moment()), Action::Poll);
        assert!(poll(&child).is_none());
    }
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert_eq!(value(&child), "1");
}

#[test]
fn code_that_differs_from_the_journal_fails_with_both_lists() {
    for (history, requests, what) in [
        (vec![done("a", 0, "1")], vec![(Kind::Timer, "a")], "was a step and is a timer now"),
        (
            vec![done("a", 0, "1"), done("b", 1, "2")],
            vec![(Kind::Step, "b"), (Kind::Step, "a")],
            "comes later",
        ),
        (vec![done("a", 0, "1")], vec![(Kind::Step, "b")], "does not ask for it there"),
    ] {
        let activation = fresh(history);
        let ops: Vec<OpHandle> =
            requests.into_iter().map(|(kind, name)| request(&activation, kind, name)).collect();
        ops.iter().for_each(|op| drop(poll(op)));
        let action = loop {
            match activation.lock().next(moment()) {
                Action::Poll => {}
                action => break action,
            }
        };
        let Action::Fail(broken) = action else { panic!("{action:?}") };
        assert!(broken.to_string().contains(what), "{broken}");
    }
}

#[test]
fn code_that_ends_before_the_journal_does_fails() {
    let activation = fresh(vec![done("a", 0, "1")]);
    assert!(matches!(activation.lock().finish(), Finish::Fail(_)));
}

#[test]
fn a_step_that_records_itself_and_was_dropped_makes_the_run_read_its_journal() {
    let own = |activation: &ActivationRef, name: &str| {
        let (name, records_itself) = (name.to_owned(), true);
        let request =
            Request { kind: Kind::Step, name, input: None, shielded: false, signal: None, records_itself };
        let op = in_workflow(activation, || OpHandle::request(activation, request));
        assert!(poll(&op).is_none());
        assert_eq!(activation.lock().next(moment()), Action::Poll);
        run(&op);
        op
    };
    let activation = fresh(vec![]);
    drop(own(&activation, "a"));
    let _next = step(&activation, "b");
    assert_eq!(activation.lock().next(moment()), Action::ReadJournal);
    assert!(activation.lock().has_abandoned());
    let ended = Placed { version: StreamVersion(1), at: AT, entry: done("a", 0, "1") };
    assert_eq!(activation.lock().note_own_record(&ended.entry), Some(false));
    activation.lock().receive(ended);
    assert_eq!(activation.lock().finish(), Finish::Rewind);
    assert_eq!(activation.lock().next(moment()), Action::Rewind);
    // The journal proves a step that is awaited.
    let activation = fresh(vec![]);
    let op = own(&activation, "a");
    op.end_recorded_attempt(None, &RetryPolicy::default(), Ran::EPOCH);
    assert_eq!(activation.lock().next(moment()), Action::ReadOwnRecords);
    activation.lock().prove();
    assert_eq!(
        activation.lock().next(moment()),
        Action::Commit,
        "it did not record its end: the attempt failed"
    );
}

#[test]
fn a_process_that_stops_hands_the_run_back_between_steps() {
    let stopping = Moment { stopping: true, ..moment() };
    let activation = fresh(vec![]);
    let op = step(&activation, "a");
    assert_eq!(activation.lock().next(stopping), Action::Release);
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&op);
    assert_eq!(activation.lock().next(stopping), Action::Wait(None), "a step that runs comes to its end");
}

#[test]
fn an_output_waits_for_entries_that_do_not_fit_into_its_batch() {
    let activation = fresh(vec![]);
    let large = format!("\"{}\"", "x".repeat(3_900_000));
    let ops: Vec<OpHandle> = (0..18).map(|n| step(&activation, &format!("s{n}"))).collect();
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    for op in &ops {
        run(op);
        end(op, &large);
    }
    assert_eq!(activation.lock().finish(), Finish::Commit);
    let groups = super::groups(activation.lock().take_outgoing());
    assert!(groups.len() > 1, "{}", groups.len());
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 18);
    assert_eq!(activation.lock().finish(), Finish::End);
}

#[test]
fn the_first_failure_of_the_code_counts() {
    let activation = fresh(vec![]);
    let _first = request(&activation, Kind::Step, "a");
    let _second = request(&activation, Kind::Step, "a");
    let request = Request {
        kind: Kind::Step,
        name: "b".to_owned(),
        input: None,
        shielded: false,
        signal: None,
        records_itself: false,
    };
    drop(OpHandle::request(&activation, request));
    let action = activation.lock().next(moment());
    assert!(matches!(&action, Action::Fail(broken) if broken.to_string().contains("twice")), "{action:?}");
}

#[test]
fn an_attempt_that_failed_sleeps_and_runs_again() {
    let activation = fresh(vec![]);
    let op = step(&activation, "a");
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    run(&op);
    op.end_attempt(Err(Failure::new("no")), Ran::EPOCH, &RetryPolicy::default(), Batch::new());
    assert_eq!(activation.lock().next(moment()), Action::Commit);
    assert!(matches!(&*commit(&activation), [JournalEntry::Tried(tried)] if tried.attempt == 1));
    assert_eq!(activation.lock().next(moment()), Action::Poll);
    assert!(poll(&op).is_none());
    assert_eq!(activation.lock().next(moment()), Action::ReadClock);
    assert_eq!(activation.lock().next(at(AT.after(Duration::from_hours(1)))), Action::Poll);
    assert!(matches!(poll(&op), Some(OpEvent::Run(2))));
}

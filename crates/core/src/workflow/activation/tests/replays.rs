//! Property test of replays: in whatever order operations end, and wherever the process dies, a replay observes what was
//! committed.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::super::{Action, Activation, ActivationRef, Moment, OpEvent, OpHandle, Request, Resolution};
use super::*;

/// One operation of a generated workflow.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// A step that fails this number of times before it succeeds.
    Step {
        failures: u32,
    },
    Timer {
        millis: u64,
    },
    Signal,
}

/// Stages that follow each other; the parts of a stage run at the same time.
type Program = Vec<Vec<Part>>;
type Log = Arc<Mutex<Vec<String>>>;
type Gates = Arc<Mutex<Vec<oneshot::Sender<()>>>>;

/// The workflow: logs what it observes, in order.
async fn workflow(activation: ActivationRef, program: Program, log: Log, gates: Gates) {
    for (stage, parts) in program.into_iter().enumerate() {
        let ops: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(place, part)| operation(&activation, stage, place, part, &log, &gates))
            .collect();
        join_all(ops).await;
    }
}

fn operation(
    activation: &ActivationRef,
    stage: usize,
    place: usize,
    part: Part,
    log: &Log,
    gates: &Gates,
) -> impl Future<Output = ()> + use<> {
    let (kind, word) = match part {
        Part::Step { .. } => (Kind::Step, "step"),
        Part::Timer { .. } => (Kind::Timer, "timer"),
        Part::Signal => (Kind::Wait, "go"),
    };
    let name = format!("{word} {stage}.{place}");
    let signal = (kind == Kind::Wait).then(|| "go".to_owned());
    let request =
        Request { kind, name: name.clone(), input: None, shielded: false, signal, records_itself: false };
    let op = OpHandle::request(activation, request);
    match part {
        Part::Timer { millis } => {
            let when = TimerSpec::After(Duration::from_millis(millis));
            op.begin(|op| (JournalEntry::TimerSet(TimerSet { op, when }), Batch::new()));
        }
        Part::Signal => op.note(|op| JournalEntry::Awaited(Awaited { op })),
        Part::Step { .. } => {}
    }
    let (log, gates) = (Arc::clone(log), Arc::clone(gates));
    async move {
        loop {
            match op.event().await {
                OpEvent::Resolved(resolution) => {
                    let seen = match resolution {
                        Resolution::Value(value) => value.as_str().to_owned(),
                        Resolution::Nothing => "-".to_owned(),
                        Resolution::Error(error) => error.to_string(),
                    };
                    log.lock().push(format!("{name}={seen}"));
                    return;
                }
                OpEvent::Run(attempt) => {
                    let (open, opened) = oneshot::channel();
                    gates.lock().push(open);
                    drop(opened.await);
                    let Part::Step { failures } = part else { continue };
                    let result = if attempt > failures {
                        Ok(Payload::trusted(&*attempt.to_string()))
                    } else {
                        Err(Failure::new("not yet"))
                    };
                    op.end_attempt(result, Ran::EPOCH, &RetryPolicy::default(), Batch::new());
                }
            }
        }
    }
}

/// The parts of a store that a run needs.
struct World {
    journal: Vec<Placed>,
    now: Timestamp,
    /// Choices, from the test's input.
    choices: VecDeque<u8>,
    /// The observations when the journal was last written.
    committed: Vec<String>,
    signals_left: usize,
}

impl World {
    fn choose(&mut self, most: usize) -> usize {
        usize::from(self.choices.pop_front().unwrap_or(u8::MAX)) % most.max(1)
    }

    fn write(&mut self, entry: JournalEntry) -> Placed {
        let version = StreamVersion(u64::try_from(self.journal.len()).unwrap() + 1);
        let placed = Placed { version, at: self.now, entry };
        self.journal.push(placed.clone());
        placed
    }

    fn send_signal(&mut self) -> Option<Placed> {
        self.signals_left = self.signals_left.checked_sub(1)?;
        let value = self.signals_left.to_string();
        Some(self.write(received("go", &value)))
    }

    /// Runs one activation. Returns its observations if the workflow ended.
    fn live(&mut self, program: &Program) -> Option<Vec<String>> {
        let (log, gates) = (Log::default(), Gates::default());
        let activation = Activation::new(self.journal.clone(), &[]);
        let code = workflow(Arc::clone(&activation), program.clone(), Arc::clone(&log), Arc::clone(&gates));
        let mut future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(code);
        let mut context = Context::from_waker(Waker::noop());
        let mut now = None;
        loop {
            let action = activation.lock().next(Moment { now: now.take(), ..moment() });
            let mut ended = false;
            match action {
                Action::Poll => {
                    ended = in_workflow(&activation, || future.as_mut().poll(&mut context)).is_ready();
                }
                Action::Commit | Action::Suspend(_) => {
                    let suspended = matches!(action, Action::Suspend(_));
                    self.commit(&activation, &log)?;
                    if suspended {
                        self.pass(&action);
                        return None;
                    }
                }
                Action::ReadClock => now = Some(self.now),
                Action::Wait(limit) => {
                    if self.choose(8) == 0 {
                        return None;
                    }
                    if self.choose(3) == 0
                        && let Some(placed) = self.send_signal()
                    {
                        activation.lock().receive(placed);
                    }
                    self.open_gate(&gates);
                    if let Some(limit) = limit {
                        self.now = self.now.after(limit);
                    }
                    ended = in_workflow(&activation, || future.as_mut().poll(&mut context)).is_ready();
                }
                Action::Fail(broken) => panic!("{broken}"),
                other => panic!("{other:?}"),
            }
            if ended {
                assert_eq!(activation.lock().finish(), Finish::End);
                self.commit(&activation, &log)?;
                return Some(log.lock().clone());
            }
        }
    }

    /// Writes the outgoing entries, unless the process dies before or after.
    fn commit(&mut self, activation: &ActivationRef, log: &Log) -> Option<()> {
        if self.choose(10) == 1 {
            return None;
        }
        let ahead = activation.lock().is_ahead();
        let interrupted = ahead && self.choose(6) == 1 && self.send_signal().is_some();
        let outgoing = activation.lock().take_outgoing();
        for next in outgoing {
            let Some(entry) = next.entry else { continue };
            let placed = self.write(entry);
            if !next.delivered {
                activation.lock().receive(placed);
            }
        }
        // The signal precedes a result that the workflow received ahead of the journal, so the driver rewinds.
        if interrupted {
            return None;
        }
        self.committed = log.lock().clone();
        (self.choose(10) != 1).then_some(())
    }

    fn open_gate(&mut self, gates: &Gates) {
        let mut gates = gates.lock();
        if !gates.is_empty() {
            let chosen = self.choose(gates.len());
            drop(gates.remove(chosen));
        }
    }

    /// Advances the clock over a rest of the run, or sends the signal that it waits for.
    fn pass(&mut self, action: &Action) {
        match action {
            Action::Suspend(Due::After(wait)) => self.now = self.now.after(*wait),
            Action::Suspend(Due::At(at)) if *at != NEVER => self.now = self.now.max(*at),
            _ => drop(self.send_signal()),
        }
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (0..3_u32).prop_map(|failures| Part::Step { failures }),
        (0..200_u64).prop_map(|millis| Part::Timer { millis }),
        Just(Part::Signal),
    ]
}

proptest! {
    #[test]
    fn a_replay_observes_what_was_committed(
        program in prop::collection::vec(prop::collection::vec(part(), 1..4), 1..6),
        choices in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let signals_left = program.iter().flatten().filter(|part| matches!(part, Part::Signal)).count();
        let mut world =
            World { journal: vec![], now: AT, choices: choices.into(), committed: vec![], signals_left };
        let parts: usize = program.iter().map(Vec::len).sum();
        for life in 0.. {
            prop_assert!(life < 2_000, "the run does not end: {program:?}");
            let before = world.committed.clone();
            let ended = world.live(&program);
            prop_assert!(world.committed.starts_with(&before), "{before:?} became {:?}", world.committed);
            if let Some(observed) = ended {
                prop_assert_eq!(observed.len(), parts);
                break;
            }
        }
        // Code that only replays observes everything recorded again, in the same order.
        let observed = world.committed.clone();
        let replayed = world.live(&program).unwrap_or_else(|| world.committed.clone());
        prop_assert_eq!(replayed, observed);
    }
}

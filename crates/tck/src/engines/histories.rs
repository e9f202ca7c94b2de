//! Linearizability of recorded histories (S2, S3 and S11). All answers to clients of two processes must have one order,
//! including their versions.

use std::sync::Arc;

use tidelock_core::state::{State, StateRegistry};

use crate::clients::{Knowledge, Plan, Tally, ask, play};
use crate::fault_proxy::{Detour, Gate};
use crate::history::record::{ClientRequest, ClientResponse, Record, RecordModel, RecordOperation};
use crate::history::{Begun, Explained, MOST_STEPS, Outcome as Ended, Recorder, check};
use crate::prelude::*;
use crate::run;

/// Number of clients of a case, half of them on each connection.
const CLIENTS: usize = 8;
const KEYS: usize = 3;
/// Operations per client. `TIDELOCK_OPERATIONS` overrides it.
const OPERATIONS: u64 = 150;
/// A store that takes longer than this per operation of each client runs fewer operations, but at least half.
const EACH: Duration = Duration::from_millis(14);
/// Maximum number of histories to record until all relevant events have happened.
const ROUNDS: u64 = 6;

/// Records histories and searches for their order, until enough has happened.
async fn explained(env: &Env, faults: bool, enough: fn(&Tally) -> bool) -> Tally {
    let (first, name) = (run::seed(), env.backend.name());
    let steps = run::setting("TIDELOCK_OPERATIONS", OPERATIONS) as usize;
    let time = EACH * u32::try_from(steps).unwrap_or(u32::MAX);
    let mut tally = Tally::default();
    for seed in (0..ROUNDS).map(|n| first.wrapping_add(n)) {
        let plan = Plan { seed, clients: CLIENTS, keys: KEYS, steps, time, faults };
        let played = play(env, plan).await;
        match check(&RecordModel, &played.history, MOST_STEPS) {
            Ok(Explained { placed, steps, .. }) => run::say(&format!(
                "tck: seed {seed} on {name}: {placed} operations have an order, found in {steps} steps; {:?}",
                played.tally
            )),
            Err(trouble) => panic!(
                "{name}: {trouble}\n{:?}\nTIDELOCK_SEED={seed} TIDELOCK_OPERATIONS={steps} asks the same again",
                played.tally
            ),
        }
        tally += played.tally;
        if enough(&tally) {
            return tally;
        }
    }
    panic!("seed {first}: this proves nothing, too little happened: {tally:?}");
}

/// All answers about records to clients of two processes have one order that explains them, including their versions.
/// Documents only.
pub async fn s2_recorded_histories_are_linearizable(env: &Env) {
    let tally = explained(env, false, |tally| tally.shared > 0 && tally.again > 0).await;
    assert_eq!((tally.failed, tally.left, tally.unknown), (0, 0, 0), "all is answered: {tally:?}");
}

/// The same holds with clients that time out or cancel. A failed operation never happened. An unknown one happened once
/// or never, and the store resolves which. Documents only.
pub async fn s3_histories_with_faults_are_linearizable(env: &Env) {
    let faults = |tally: &Tally| tally.left > 0 && tally.failed > 0 && tally.had_happened > 0;
    let tally = explained(env, true, faults).await;
    let all = tally.answered + tally.failed + tally.left + tally.had_not;
    assert!(tally.answered * 10 >= all * 7, "most are answered: {tally:?}");
}

/// A record whose next write a case can delay before it reaches the store, and the same record in another process.
struct HeldUp {
    gate: Arc<Gate>,
    record: State<Record>,
    foreign: State<Record>,
    recorder: Recorder<ClientRequest, ClientResponse>,
}

impl HeldUp {
    async fn new(env: &Env, name: &str) -> Self {
        let gate = Arc::new(Gate::default());
        let record = StateRegistry::new(Detour::over(Arc::clone(&gate), &env.store.0)).at(key(name));
        let foreign = StateRegistry::new(Arc::clone(&env.other.0)).at(key(name));
        let held_up = Self { gate, record, foreign, recorder: Recorder::new() };
        held_up.recorded(0, &held_up.record, RecordOperation::Set(Record { count: 1, tag: 1 })).await;
        held_up
    }

    /// Runs an operation and records its answer.
    async fn recorded(&self, side: usize, record: &State<Record>, what: RecordOperation) {
        let begun = self.recorder.call(side, "record", ClientRequest { side, what });
        match ask(record.clone(), what).await {
            Knowledge::Told(told) => self.recorder.end(begun, Ended::Ok(told)),
            other => panic!("{what:?}: {other:?}"),
        }
    }

    /// Runs an operation with a timeout. Returns the operation and its id if the outcome is unknown.
    async fn in_doubt(&self, what: RecordOperation, limit: Duration) -> Option<(Begun, OpId)> {
        let begun = self.recorder.call(2, "record", ClientRequest { side: 0, what });
        match ask(self.record.clone().limit(Some(limit)), what).await {
            Knowledge::Unknown(Some(id)) => return Some((begun, id)),
            Knowledge::Told(told) => self.recorder.end(begun, Ended::Ok(told)),
            Knowledge::Failed => self.recorder.end(begun, Ended::Failed),
            Knowledge::Unknown(None) => {}
        }
        None
    }

    /// Waits until all queued operations are over, resolves the outcome at the store, and checks that the history
    /// agrees.
    async fn settles(&self, env: &Env, (begun, id): (Begun, OpId)) {
        self.recorded(0, &self.record, RecordOperation::Touch).await;
        let receipt = env.other.resolve(id).await.unwrap().into_receipt();
        let told = receipt
            .map(|receipt| ClientResponse::Written { old: None, version: receipt.documents[0].version.0 });
        self.recorder.end(begun, told.map_or(Ended::Failed, Ended::Ok));
        self.recorded(1, &self.foreign, RecordOperation::Read).await;
        if let Err(trouble) = check(&RecordModel, &self.recorder.history(), MOST_STEPS) {
            panic!("the store says {told:?} of operation {id}, and that is not true: {trouble}");
        }
    }
}

/// A busy machine may need more time until a write is in flight.
fn limits() -> impl Iterator<Item = (String, Duration)> {
    (1..=10).map(|n| (n.to_string(), Duration::from_millis(25 * n)))
}

/// A write in doubt then meets a foreign one. The resolution of its id stays correct. Documents only.
pub async fn s11_a_doubtful_write_that_conflicts(env: &Env) {
    for (n, limit) in limits() {
        let held_up = HeldUp::new(env, &format!("s11-conflict-{n}")).await;
        held_up.gate.close();
        let doubt = held_up.in_doubt(RecordOperation::Mutate { add: 10, tag: 2 }, limit).await;
        held_up.recorded(1, &held_up.foreign, RecordOperation::Set(Record { count: 5, tag: 3 })).await;
        held_up.gate.open();
        if let Some(doubt) = doubt {
            return held_up.settles(env, doubt).await;
        }
    }
    panic!("no write was ever in doubt");
}

/// A delta is in doubt, and another one then makes their shared write fail. The resolution of its id stays correct.
/// Documents only.
pub async fn s11_a_doubtful_delta_with_a_misfit(env: &Env) {
    for (n, limit) in limits() {
        let held_up = HeldUp::new(env, &format!("s11-misfit-{n}")).await;
        let (gate, record) = (&held_up.gate, &held_up.record);
        gate.close();
        // While the first write is delayed, the deltas gather behind it. Then they are delayed as well.
        let first = held_up.recorded(0, record, RecordOperation::Mutate { add: 10, tag: 2 });
        let hurried = async {
            let doubt = held_up.in_doubt(RecordOperation::Inc(100), limit).await;
            gate.open();
            doubt
        };
        let misfit = record.push("/count", 1);
        let let_go = async {
            gate.arrived().await;
            gate.close();
            gate.open();
        };
        let ((), doubt, misfit, ()) = tokio::join!(first, hurried, misfit, let_go);
        misfit.unwrap_err();
        if let Some(doubt) = doubt {
            return held_up.settles(env, doubt).await;
        }
    }
    panic!("no delta was ever in doubt");
}

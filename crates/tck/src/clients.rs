//! History clients that use the same records over two connections at once, as two processes would, and record the
//! answers.
//!
//! The seed decides what each client requests, when it sets a short timeout and when it cancels. The scheduler of the
//! machine decides the order of the clients. The same seed makes the same requests, but may get other answers.

use std::ops::AddAssign;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidelock_core::error::{Explain as _, Outcome as Did};
use tidelock_core::id::OpId;
use tidelock_core::state::{
    Change, MutateError, Observer, State, StateError, StateRegistry, WriteOutcome as Wrote,
};
use tidelock_core::store::Store;

use crate::builders::key;
use crate::conn::Conn;
use crate::env::Env;
use crate::fault_proxy::{Dawdle, Detour};
use crate::history::record::{ClientRequest, ClientResponse, Record, RecordOperation};
use crate::history::{Begun, Operation, Outcome, Recorder};
use crate::rng::Rng;

/// The parameters of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Number of clients, half of them on each connection.
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    /// Number of operations per client. After half of them the client stops when the time is up.
    pub(crate) steps: usize,
    pub(crate) time: Duration,
    /// Whether clients sometimes use short timeouts or cancel their operations.
    pub(crate) faults: bool,
}

/// The recorded history and its counts.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) history: Vec<Operation<ClientRequest, ClientResponse>>,
    pub(crate) tally: Tally,
}

/// Counts of the events in a run. A run in which nothing happened proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Answered operations.
    pub(crate) answered: usize,
    /// Operations that their clients cancelled without learning the outcome.
    pub(crate) left: usize,
    /// Operations that certainly did not happen.
    pub(crate) failed: usize,
    /// Operations that timed out during the write, and whose outcome the client later requested from the store.
    pub(crate) unknown: usize,
    /// Of these, the operations that the store knew later, and those that it did not know.
    pub(crate) had_happened: usize,
    pub(crate) had_not: usize,
    /// Writes that several mutations shared.
    pub(crate) shared: usize,
    /// Writes that were retried after a conflict.
    pub(crate) again: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.left += other.left;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.had_happened += other.had_happened;
        self.had_not += other.had_not;
        self.shared += other.shared;
        self.again += other.again;
    }
}

/// An observer that counts what the containers do.
#[derive(Debug, Default)]
struct Seen {
    shared: AtomicUsize,
    again: AtomicUsize,
}

impl Observer for Seen {
    fn mutated(&self, change: &Change<'_>) {
        self.shared.fetch_add(usize::from(change.callers.len() > 1), Ordering::Relaxed);
        self.again.fetch_add(usize::from(change.conflicts > 0), Ordering::Relaxed);
    }
}

/// How a client waits for its answer.
enum Manner {
    Patiently,
    /// With this timeout.
    InAHurry(Duration),
    /// Cancels after this number of polls.
    ForAWhile(usize),
}

/// The knowledge of a client after its operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Knowledge {
    Told(ClientResponse),
    Failed,
    Unknown(Option<OpId>),
}

/// An operation that its client left without an answer.
struct Doubt {
    begun: Begun,
    /// The instant at which the client left.
    left: u64,
    /// The id with which the client later resolves the operation at the store.
    id: Option<OpId>,
}

/// One process with its connection and its records.
struct Side {
    conn: Conn,
    records: Vec<State<Record>>,
}

struct Stage {
    plan: Plan,
    sides: Vec<Side>,
    recorder: Recorder<ClientRequest, ClientResponse>,
    seen: Arc<Seen>,
}

/// Runs the plan on two connections of the case's database.
pub(crate) async fn play(env: &Env, plan: Plan) -> Played {
    let stage = Arc::new(Stage::new([&env.store, &env.other], plan));
    let mut running = Vec::new();
    for client in 0..plan.clients {
        let stage = Arc::clone(&stage);
        running.push(tokio::spawn(async move { stage.client(client).await }));
    }
    let (mut doubts, mut tally) = (Vec::new(), Tally::default());
    for client in running {
        doubts.extend(client.await.expect("a client panicked"));
    }
    stage.come_to_rest().await;
    stage.resolve_doubts(&doubts, &mut tally).await;
    stage.read_final_state().await;
    let mut history = stage.recorder.history();
    tally.left = history.iter().filter(|o| o.outcome == Outcome::Unknown).count();
    over(&mut history, &doubts);
    let count = |is: fn(&Outcome<ClientResponse>) -> bool| history.iter().filter(|o| is(&o.outcome)).count();
    tally.answered = count(|outcome| matches!(outcome, Outcome::Ok(_)));
    tally.failed = count(|outcome| matches!(outcome, Outcome::Failed)) - tally.had_not;
    tally.shared = stage.seen.shared.load(Ordering::Relaxed);
    tally.again = stage.seen.again.load(Ordering::Relaxed);
    Played { history, tally }
}

/// Sets the end of operations in doubt. Mutations of one process run in the order of their calls. When one called after
/// the client left is answered, the operation of that client is over.
fn over(history: &mut [Operation<ClientRequest, ClientResponse>], doubts: &[Doubt]) {
    let queued = |ask: ClientRequest| {
        !matches!(ask.what, RecordOperation::Get | RecordOperation::Read | RecordOperation::Delete)
    };
    for Doubt { begun, left, .. } in doubts {
        let Operation { key, asked, outcome, .. } = &history[begun.0];
        if *outcome == Outcome::Unknown && queued(*asked) {
            let later = history.iter().filter(|o| {
                let answered = matches!(o.outcome, Outcome::Ok(_)) && o.call > *left;
                answered && o.key == *key && o.asked.side == asked.side && queued(o.asked)
            });
            history[begun.0].end = later.map(|o| o.end).min().unwrap_or(u64::MAX);
        }
    }
}

fn name(plan: Plan, record: usize) -> String {
    format!("play-{}-{record}", plan.seed)
}

impl Stage {
    /// Returns the name of a record. Each plan has separate records.
    fn name(&self, record: usize) -> String {
        name(self.plan, record)
    }

    fn new(conns: [&Conn; 2], plan: Plan) -> Self {
        let seen = Arc::new(Seen::default());
        let sides = conns.into_iter().zip(0..).map(|(conn, side)| {
            // Faults need slow writes; with fast ones no timeout ever expires.
            let most = if plan.faults { 60 } else { 4 };
            let store: Arc<dyn Store> = Detour::over(Dawdle::new(plan.seed ^ side, most), &conn.0);
            let states = StateRegistry::new(Arc::clone(&store)).observer(seen.clone());
            let records = (0..plan.keys).map(|k| states.at(key(&name(plan, k)))).collect();
            Side { conn: Conn(store), records }
        });
        Self { plan, sides: sides.collect(), recorder: Recorder::new(), seen: Arc::clone(&seen) }
    }

    /// Runs one client and returns the operations whose outcome it does not know.
    async fn client(&self, client: usize) -> Vec<Doubt> {
        let mut rng = Rng::new(self.plan.seed.wrapping_add(1 + client as u64));
        let side = client % self.sides.len();
        let mut doubts = Vec::new();
        let begun = Instant::now();
        // Half of the operations happen however slow the machine is: a short history shows too little.
        let goes_on = |n: &usize| *n < self.plan.steps / 2 || begun.elapsed() < self.plan.time;
        for n in (0..self.plan.steps).take_while(goes_on) {
            let record = rng.below(self.plan.keys);
            let tag = (client * self.plan.steps + n + 1) as u64;
            let what = draw(&mut rng, tag);
            let manner = if self.plan.faults { self.manner(&mut rng) } else { Manner::Patiently };
            let container = self.sides[side].records[record].clone();
            let begun = self.recorder.call(client, &self.name(record), ClientRequest { side, what });
            let heard = match manner {
                Manner::Patiently => ask(container, what).await,
                Manner::InAHurry(limit) => ask(container.limit(Some(limit)), what).await,
                Manner::ForAWhile(looks) => {
                    for_a_while(ask(container, what), looks).await.unwrap_or(Knowledge::Unknown(None))
                }
            };
            match heard {
                Knowledge::Told(told) => self.recorder.end(begun, Outcome::Ok(told)),
                Knowledge::Failed => self.recorder.end(begun, Outcome::Failed),
                Knowledge::Unknown(id) => {
                    // Some operations stay unresolved.
                    let id = id.filter(|_| !rng.one_in(8));
                    doubts.push(Doubt { begun, left: self.recorder.now(), id });
                }
            }
        }
        doubts
    }

    fn manner(&self, rng: &mut Rng) -> Manner {
        match rng.below(24) {
            0..=3 => Manner::InAHurry(Duration::from_micros(rng.within(0..1_500))),
            4 => Manner::ForAWhile(rng.below(40)),
            _ => Manner::Patiently,
        }
    }

    /// Runs a touch behind all queued operations. Afterwards nothing is in flight.
    async fn come_to_rest(&self) {
        for (side, of) in self.sides.iter().enumerate() {
            for (k, record) in of.records.iter().enumerate() {
                self.ask_and_hear(side, k, record, RecordOperation::Touch).await;
            }
        }
    }

    async fn ask_and_hear(&self, side: usize, k: usize, record: &State<Record>, what: RecordOperation) {
        let begun = self.recorder.call(self.plan.clients + side, &self.name(k), ClientRequest { side, what });
        match ask(record.clone().limit(None), what).await {
            Knowledge::Told(told) => self.recorder.end(begun, Outcome::Ok(told)),
            Knowledge::Failed | Knowledge::Unknown(_) => {
                panic!("{what:?} of {} has no answer at the end", self.name(k))
            }
        }
    }

    /// Resolves the operations in doubt at the store.
    async fn resolve_doubts(&self, doubts: &[Doubt], tally: &mut Tally) {
        for (n, doubt) in doubts.iter().enumerate() {
            let Doubt { begun, id: Some(id), .. } = *doubt else { continue };
            tally.unknown += 1;
            let conn = &self.sides[n % self.sides.len()].conn;
            let resolution = conn.resolve(id).await.expect("the store answers");
            match resolution.into_receipt().and_then(|receipt| receipt.documents.into_iter().next()) {
                Some(written) => {
                    tally.had_happened += 1;
                    let told = ClientResponse::Written { old: None, version: written.version.0 };
                    self.recorder.end(begun, Outcome::Ok(told));
                }
                None => {
                    tally.had_not += 1;
                    self.recorder.end(begun, Outcome::Failed);
                }
            }
        }
    }

    /// Reads the final state from both sides.
    async fn read_final_state(&self) {
        for (side, of) in self.sides.iter().enumerate() {
            for (k, record) in of.records.iter().enumerate() {
                self.ask_and_hear(side, k, record, RecordOperation::Read).await;
            }
        }
    }
}

fn draw(rng: &mut Rng, tag: u64) -> RecordOperation {
    let add = 1 + rng.below(1_000) as i64;
    match rng.below(32) {
        0..=4 => RecordOperation::Read,
        5 | 6 => RecordOperation::Get,
        7..=9 => RecordOperation::Set(Record { count: add, tag }),
        10..=19 => RecordOperation::Mutate { add, tag },
        20 | 21 => RecordOperation::Touch,
        22 => RecordOperation::Refuse,
        23..=30 => RecordOperation::Inc(add),
        _ => RecordOperation::Delete,
    }
}

/// Runs the operation through the public API.
pub(crate) async fn ask(record: State<Record>, what: RecordOperation) -> Knowledge {
    match what {
        RecordOperation::Get => knowledge_of(record.get().await, ClientResponse::Value),
        RecordOperation::Read => knowledge_of(record.read().await, |found| {
            ClientResponse::Found(found.map(|versioned| (versioned.version.0, versioned.value)))
        }),
        RecordOperation::Set(value) => knowledge_of(record.set(value).await, |did| wrote(did, None)),
        RecordOperation::Mutate { add, tag } => {
            let mutate = move |record: &mut Record| {
                let old = *record;
                *record = Record { count: old.count.wrapping_add(add), tag };
                old
            };
            knowledge_of(record.mutate(mutate).await, |did| wrote(did.outcome, Some(did.result)))
        }
        RecordOperation::Touch => {
            knowledge_of(record.mutate(|record| *record).await, |did| wrote(did.outcome, Some(did.result)))
        }
        RecordOperation::Refuse => {
            let refuse = |record: &mut Record| {
                let old = *record;
                record.count += 1_000_000;
                Err::<(), Record>(old)
            };
            match record.try_mutate(refuse).await {
                Err(MutateError::Refused(old)) => Knowledge::Told(ClientResponse::Refused(old)),
                Err(MutateError::State(error)) => unknown_or_failed(&error),
                Ok(_) => panic!("a mutator that refuses was carried out"),
            }
        }
        RecordOperation::Inc(by) => knowledge_of(record.inc("/count", by).await, |did| wrote(did, None)),
        RecordOperation::Delete => knowledge_of(record.delete().await, |()| ClientResponse::Deleted),
    }
}

fn wrote(did: Wrote, old: Option<Record>) -> ClientResponse {
    match (did, old) {
        (Wrote::Unchanged { version }, Some(old)) => ClientResponse::Unchanged { old, version: version.0 },
        (Wrote::Committed { version } | Wrote::Unchanged { version }, old) => {
            ClientResponse::Written { old, version: version.0 }
        }
    }
}

fn knowledge_of<T>(answer: Result<T, StateError>, told: impl FnOnce(T) -> ClientResponse) -> Knowledge {
    match answer {
        Ok(answer) => Knowledge::Told(told(answer)),
        Err(StateError::NotFound { .. }) => Knowledge::Told(ClientResponse::Missing),
        Err(error) => unknown_or_failed(&error),
    }
}

fn unknown_or_failed(error: &StateError) -> Knowledge {
    match error.outcome() {
        Did::NotApplied => Knowledge::Failed,
        Did::Unknown(id) => Knowledge::Unknown(id),
        Did::Applied => panic!("an error after which all is well: {error}"),
    }
}

/// Returns the answer, or `None` if the client cancels before it arrives.
async fn for_a_while<T>(answer: impl Future<Output = T>, looks: usize) -> Option<T> {
    let mut answer = pin!(answer);
    for _ in 0..looks {
        let looked =
            std::future::poll_fn(|context| std::task::Poll::Ready(answer.as_mut().poll(context))).await;
        if let std::task::Poll::Ready(answer) = looked {
            return Some(answer);
        }
        tokio::task::yield_now().await;
    }
    None
}

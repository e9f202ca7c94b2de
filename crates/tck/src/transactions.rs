//! Clients that run transactions over many lists, whose histories the [list-append checker](crate::history::list_append) checks.
//!
//! Half of the lists are documents, half are streams. A client reads several of them in one snapshot, appends to several in one
//! batch that expects what it read (optimistic concurrency), or appends blindly with deltas. Replies may be lost, writes may
//! arrive late, and whole processes may be killed.

mod client;
mod killed;
mod lists;
mod lossy;
mod trace;

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
pub use killed::killed;
pub(crate) use killed::transact;
use lossy::Lossy;
use tidelock_core::store::SharedStore;
use trace::Trace;

use crate::conn::Conn;
use crate::history::Outcome;
use crate::history::list_append::{Executed, Summary, check};
use crate::rng::Rng;
use crate::run;

/// The parameters of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Number of clients, half of them on each connection.
    pub(crate) clients: usize,
    /// Number of transactions per client. After half of them the client stops when the time is up.
    pub(crate) steps: usize,
    pub(crate) time: Duration,
    /// Whether replies are lost and writes arrive late.
    pub(crate) faults: bool,
}

/// Counts of the transactions in a history. A run in which nothing happened proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Transactions that committed, as far as their clients learned.
    pub committed: usize,
    /// Transactions that were certainly not applied.
    pub failed: usize,
    /// Transactions whose outcome stayed unknown.
    pub unknown: usize,
    /// Transactions in doubt that [`resolve`](tidelock_core::store::Store::resolve) reported as applied.
    pub had_happened: usize,
    /// Transactions in doubt that [`resolve`](tidelock_core::store::Store::resolve) reported as not applied.
    pub had_not: usize,
    /// Elements that the final readings contain.
    pub elements: usize,
    /// Dependencies between the transactions.
    pub dependencies: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.failed += other.failed;
        self.unknown += other.unknown;
        self.had_happened += other.had_happened;
        self.had_not += other.had_not;
        self.elements += other.elements;
        self.dependencies += other.dependencies;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, failed, unknown, had_happened, had_not, elements, dependencies } = self;
        write!(
            f,
            "{committed} committed, {failed} not applied, {unknown} unknown; resolved: {had_happened} applied, \
             {had_not} not; {elements} elements, {dependencies} dependencies"
        )
    }
}

/// Number of transactions per client while a test breaks the connections. `TIDELOCK_OPERATIONS` overrides it.
const DISTURBED: u64 = 120;

/// Runs transactions on two connections to one database, which the caller disturbs in the meantime, and checks the history.
///
/// # Panics
/// If the transactions are not strictly serializable.
pub async fn disturbed(name: &str, stores: [SharedStore; 2]) -> Tally {
    let (seed, steps) = (run::seed(), run::setting("TIDELOCK_OPERATIONS", DISTURBED) as usize);
    let plan = Plan { seed, clients: 8, steps, time: Duration::from_secs(3), faults: false };
    let [first, second] = stores.map(Conn);
    play(name, [&first, &second], plan).await
}

/// Runs the plan on two connections to one database, and checks the history.
///
/// # Panics
/// If the transactions are not strictly serializable.
pub(crate) async fn play(name: &str, conns: [&Conn; 2], plan: Plan) -> Tally {
    let trace = Arc::new(Trace::create());
    let (mut running, begun) = (Vec::new(), Instant::now());
    for number in 0..plan.clients {
        let seed = plan.seed.wrapping_add(1 + number as u64);
        let (own, foreign) = (conns[number % 2].clone(), conns[(number + 1) % 2].clone());
        let own = if plan.faults { Conn(Lossy::over(seed, &own.0)) } else { own };
        let mut client = Client::new(number, seed, own, foreign, Arc::clone(&trace));
        running.push(tokio::spawn(async move {
            // Half of the steps happen however slow the machine is: a short history shows too little.
            let goes_on = |n: &usize| *n < plan.steps / 2 || begun.elapsed() < plan.time;
            for _ in (0..plan.steps).take_while(goes_on) {
                client.step().await;
            }
        }));
    }
    for client in running {
        client.await.expect("a client panicked");
    }
    let replay = format!("TIDELOCK_SEED={} TIDELOCK_OPERATIONS={}", plan.seed, plan.steps);
    conclude(name, conns[1], &trace, plan.seed, &replay).await
}

/// Resolves most transactions in doubt, reads every list, and checks the history.
async fn conclude(name: &str, conn: &Conn, trace: &Arc<Trace>, seed: u64, replay: &str) -> Tally {
    let mut rng = Rng::new(seed);
    let mut reader = Client::new(client::READER, seed, conn.clone(), conn.clone(), Arc::clone(trace));
    for id in trace.in_doubt() {
        // Some stay unknown: a reading of their elements is then the only proof.
        if !rng.one_in(4) {
            reader.resolve(id).await;
        }
    }
    let lists = lists::used(&trace.history());
    reader.read_all(&lists).await;
    let history = trace.history();
    let checked = check(&history);
    let mut tally = counts(&history, trace);
    match checked {
        Ok(Summary { elements, dependencies, .. }) => {
            (tally.elements, tally.dependencies) = (elements, dependencies);
        }
        Err(anomalies) => panic!("{name}: {anomalies}\n{tally}\n{replay} plays it again"),
    }
    tally
}

fn counts(history: &[Executed], trace: &Trace) -> Tally {
    let count = |is: fn(&Executed) -> bool| history.iter().filter(|t| is(t)).count();
    let (had_happened, had_not) = trace.resolved();
    Tally {
        committed: count(|t| matches!(t.outcome, Outcome::Ok(_))),
        failed: count(|t| t.outcome == Outcome::Failed),
        unknown: count(|t| t.outcome == Outcome::Unknown),
        had_happened,
        had_not,
        ..Tally::default()
    }
}

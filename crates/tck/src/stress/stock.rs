//! Stress commands on stocks. A stock must never become negative, although the commands request more than there is.
//!
//! Every event names its command and the state that the command saw. A reader of the log can therefore recognise a
//! duplicate command, an event without a command, and a decision on a stale state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::events::{Aggregate, Events, ExecuteError};
use tidelock_core::id::{Position, StreamVersion};

use super::project;
use crate::conn::Conn;
use crate::process::{listen, say};
use crate::rng::Rng;

/// Number of events between two snapshots.
const SNAPSHOTS: u64 = 50;
/// The greatest lag of a projection that a paced task tolerates, and the number of commands between two checks of the
/// lag.
const BEHIND: u64 = 100;
const BURST: u64 = 8;

/// The aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stock {
    pub(crate) left: i64,
    pub(crate) moves: u64,
}

/// The events of a stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StockEvent {
    Moved(Move),
}

/// A change of the stock: items received or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Move {
    /// The task that issued the command, and the number of the command within the task.
    pub(crate) by: u64,
    pub(crate) n: u64,
    pub(crate) count: i64,
    /// The stock on which the command decided.
    pub(crate) before: i64,
}

impl Aggregate for Stock {
    const KIND: &'static str = "stress";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        let StockEvent::Moved(moved) = event;
        self.left += moved.count;
        self.moves += 1;
    }
}

/// The stocks of a store.
pub(crate) fn stocks(conn: &Conn) -> Events {
    Events::new(Arc::clone(&conn.0)).snapshots::<Stock>(SNAPSHOTS)
}

/// The work of one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The number of the process.
    pub(crate) process: u64,
    pub(crate) tasks: u64,
    /// Number of stocks that the commands address.
    pub(crate) stocks: i64,
    /// Whether the commands wait for the projections, so that the workers of the projections can catch up.
    pub(crate) paced: bool,
    pub(crate) seed: u64,
}

/// A report from a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// A command was acknowledged.
    Told { by: u64, n: u64, told: Acknowledgement },
    /// The outcome of a command is unknown.
    Unknown { by: u64, n: u64 },
    /// The other counts, reported when a task ends.
    Rest(Rest),
}

/// The content of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acknowledgement {
    pub(crate) stock: i64,
    pub(crate) version: StreamVersion,
    pub(crate) position: Position,
    pub(crate) left: i64,
}

/// Commands that wrote nothing, and repeated decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Commands that a business rule rejected.
    pub(crate) refused: u64,
    /// Commands that failed with the guarantee that nothing was written.
    pub(crate) gave_up: u64,
    /// Repeated decisions of acknowledged commands.
    pub(crate) again: u64,
}

/// The role of a child process. Its tasks run commands until the parent stops the process.
pub(crate) async fn command(conn: Conn, load: Load) {
    let (events, ending) = (stocks(&conn), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for task in 0..load.tasks {
        let (by, events, conn) = (load.process * load.tasks + task, events.clone(), conn.clone());
        let rng = Rng::new(load.seed.wrapping_add(by));
        let writer = Writer { conn, events, rng, by, n: 0, rest: Rest::default() };
        tasks.push(tokio::spawn(writer.run(load, Arc::clone(&ending))));
    }
    listen().await;
    ending.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("a task panicked");
    }
}

/// One task.
struct Writer {
    conn: Conn,
    events: Events,
    rng: Rng,
    by: u64,
    n: u64,
    rest: Rest,
}

impl Writer {
    async fn run(mut self, load: Load, ending: Arc<AtomicBool>) {
        while !ending.load(Ordering::SeqCst) {
            let stock = self.rng.below(load.stocks as usize) as i64;
            if load.paced && self.is_behind(stock).await {
                // This sleep waits for no condition: another stock may lag less.
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            let burst = if load.paced { BURST } else { 1 };
            for _ in 0..burst {
                self.give(stock).await;
            }
        }
        say(&Said::Rest(self.rest));
    }

    /// Runs one command. It adds to the stock or, three times as often, removes from it.
    async fn give(&mut self, stock: i64) {
        let (by, n) = (self.by, self.n);
        self.n += 1;
        let amount = 1 + self.rng.below(16) as i64;
        let count = if self.rng.one_in(4) { amount } else { -amount };
        let decide = |found: &Stock| {
            let before = found.left;
            let moved = StockEvent::Moved(Move { by, n, count, before });
            if before + count < 0 { Err("there is not enough") } else { Ok([moved]) }
        };
        match self.events.execute(stock, decide).await {
            Ok(done) => {
                self.rest.again += u64::from(done.attempts) - 1;
                let (version, position) = (done.version.expect("one"), done.position.expect("one"));
                let told = Acknowledgement { stock, version, position, left: done.state.left };
                say(&Said::Told { by, n, told });
            }
            Err(ExecuteError::Refused { state, .. }) => {
                assert!(state.left + count < 0, "{} of {state:?} were refused", -count);
                self.rest.refused += 1;
            }
            Err(ExecuteError::Events(error)) => match error.outcome() {
                Outcome::Unknown(_) => say(&Said::Unknown { by, n }),
                Outcome::NotApplied if error.retry() != Retry::Never => self.rest.gave_up += 1,
                _ => panic!("{error}"),
            },
        }
    }

    /// Returns whether the projection of a stock lags far behind.
    async fn is_behind(&self, stock: i64) -> bool {
        let there = self.events.load::<Stock>(stock).await.expect("the store answers").state.moves;
        there > project::counted(&self.conn, stock).await + BEHIND
    }
}

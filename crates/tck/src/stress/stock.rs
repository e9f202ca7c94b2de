//! What processes do under stress: commands on stocks, which must never go below zero, and more is asked for than there is.
//!
//! Every event says who wrote it and what its command saw. So a reader of the log can tell a command that is there twice, one
//! that nobody asked for, and one that decided on a state that was not the newest.

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

/// After how many events a snapshot is taken.
const SNAPSHOTS: u64 = 50;
/// How far a paced task lets the projection of a stock fall behind, and how many commands it gives before it looks again.
const BEHIND: u64 = 100;
const BURST: u64 = 8;

/// The aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stock {
    pub(crate) left: i64,
    pub(crate) moves: u64,
}

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StockEvent {
    Moved(Move),
}

/// Something came in, or went out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Move {
    /// The task that gave the command, and which of its commands it was.
    pub(crate) by: u64,
    pub(crate) n: u64,
    pub(crate) count: i64,
    /// What was left when it was decided.
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

/// What one process is to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Which process it is.
    pub(crate) process: u64,
    pub(crate) tasks: u64,
    /// Stocks that the commands are about.
    pub(crate) stocks: i64,
    /// Whether it waits for the projections, so that those who make them see an end.
    pub(crate) paced: bool,
    pub(crate) seed: u64,
}

/// What a process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    /// A command was acknowledged.
    Told { by: u64, n: u64, told: Told },
    /// Nobody knows what became of a command.
    Unknown { by: u64, n: u64 },
    /// What else there was, at the end of a task.
    Rest(Rest),
}

/// What an acknowledgement said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) stock: i64,
    pub(crate) version: StreamVersion,
    pub(crate) position: Position,
    pub(crate) left: i64,
}

/// What was not written, and how often it was decided once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Commands that a rule refused.
    pub(crate) refused: u64,
    /// Commands that were given up, with the word that nothing was written.
    pub(crate) gave_up: u64,
    /// Decisions after the first one, of the commands that were acknowledged.
    pub(crate) again: u64,
}

/// What a process does: its tasks give commands until it is told to come to an end.
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
                // Not a wait for anything: another stock may be nearer.
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

    /// Gives one command: something comes in, or, three times as often, something is asked for.
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
                let told = Told { stock, version, position, left: done.state.left };
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

    /// Whether the projection of a stock has still much to do.
    async fn is_behind(&self, stock: i64) -> bool {
        let there = self.events.load::<Stock>(stock).await.expect("the store answers").state.moves;
        there > project::counted(&self.conn, stock).await + BEHIND
    }
}

//! Expected results of the stress commands, and the check that the log agrees with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tidelock_core::events::{Aggregate as _, Events};
use tidelock_core::id::{Position, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::store::{Event, LogQuery};

use super::project::Projected;
use super::stock::{Acknowledgement, Move, Rest, Said, Stock, StockEvent, stocks};
use crate::conn::Conn;

/// Number of events per page.
const PAGE: usize = 1_000;

/// The results that the commands of all processes received.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    told: HashMap<(u64, u64), Acknowledgement>,
    unknown: HashSet<(u64, u64)>,
    pub(crate) rest: Rest,
}

/// The fold of the log.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    stocks: BTreeMap<Key, Stock>,
    pub(crate) projected: Projected,
    pub(crate) events: u64,
    /// Events of commands with an unknown outcome.
    pub(crate) surprises: u64,
}

impl Ledger {
    pub(crate) fn hear(&mut self, said: Said) {
        match said {
            Said::Told { by, n, told } => {
                assert_eq!(self.told.insert((by, n), told), None, "task {by} got two results of command {n}");
            }
            Said::Unknown { by, n } => assert!(self.unknown.insert((by, n))),
            Said::Rest(rest) => self.add(rest),
        }
    }

    fn add(&mut self, rest: Rest) {
        self.rest.refused += rest.refused;
        self.rest.gave_up += rest.gave_up;
        self.rest.again += rest.again;
    }

    /// Merges the reports of another process.
    pub(crate) fn and(&mut self, other: Self) {
        self.told.extend(other.told);
        self.unknown.extend(other.unknown);
        self.add(other.rest);
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.told.len() as u64
    }

    pub(crate) fn unknown(&self) -> u64 {
        self.unknown.len() as u64
    }

    /// Checks the log from its start to its end, and that the aggregates load accordingly.
    pub(crate) async fn check(mut self, conn: &Conn, all: i64) -> Fold {
        let (mut fold, mut after) = (Fold::default(), Position(0));
        loop {
            let page = conn.read_log(LogQuery::after(after, PAGE)).await.expect("the store answers");
            for event in &page.events {
                assert!(event.position > after, "positions do not rise: {} after {after}", event.position);
                after = event.position;
                if event.stream.kind() == Stock::KIND {
                    self.meet(&mut fold, event);
                }
            }
            if page.end {
                break;
            }
            after =
                page.scanned_to.expect("a page that is not the last one was looked for somewhere").max(after);
        }
        let mut lost: Vec<_> = self.told.iter().collect();
        lost.truncate(5);
        assert!(lost.is_empty(), "{} were acknowledged and lost, such as {lost:?}", self.told.len());
        fold.check_loaded(conn, all).await;
        fold
    }

    /// Checks one event against the result of its command.
    fn meet(&mut self, fold: &mut Fold, event: &Event) {
        let moved: Move = event.payload.parse().expect("it was written");
        let at = format!("{} at version {}: {moved:?}", event.stream, event.version);
        let left = fold.meet(event, &moved, &at);
        match self.told.remove(&(moved.by, moved.n)) {
            Some(told) => {
                assert_eq!(Stock::stream(told.stock).as_ref(), Ok(&event.stream), "{at} on another stream");
                let found =
                    Acknowledgement { version: event.version, position: event.position, left, ..told };
                assert_eq!(told, found, "{at} differs from the receipt of its command");
            }
            None => {
                assert!(
                    self.unknown.remove(&(moved.by, moved.n)),
                    "{at} is a duplicate, or no command requested it"
                );
                fold.surprises += 1;
            }
        }
    }
}

impl Fold {
    /// Folds one more event and returns the remaining stock.
    fn meet(&mut self, event: &Event, moved: &Move, at: &str) -> i64 {
        let stock = self.stocks.entry(event.stream.clone()).or_default();
        assert_eq!(event.version, StreamVersion(stock.moves), "{at} leaves a hole");
        assert_eq!(moved.before, stock.left, "{at} was not decided on the newest state");
        stock.apply(&StockEvent::Moved(moved.clone()));
        assert!(stock.left >= 0, "{at} was oversold: {stock:?}");
        let left = stock.left;
        self.projected.fold(event);
        self.events += 1;
        left
    }

    /// Checks that the aggregates load as the log says, with and without snapshots.
    async fn check_loaded(&self, conn: &Conn, all: i64) {
        let kept = stocks(conn);
        let plain = Events::new(Arc::clone(&conn.0));
        for id in 0..all {
            let stream = Stock::stream(id).expect("a short key");
            let expected = self.stocks.get(&stream).cloned().unwrap_or_default();
            for events in [&kept, &plain] {
                let loaded = events.load::<Stock>(id).await.expect("the store answers");
                assert_eq!(*loaded.state, expected, "{stream} does not load as the log says");
                assert_eq!(loaded.version.map_or(0, |version| version.0 + 1), expected.moves, "{stream}");
            }
        }
        let known = self.stocks.keys().len();
        assert!(known <= all as usize, "{known} stocks are there, {all} were asked for");
    }
}

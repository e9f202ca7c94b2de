//! One client: it runs transactions one after another and records each of them.

use std::sync::Arc;

use tidelock_core::error::{Explain as _, Outcome as Did};
use tidelock_core::id::OpId;
use tidelock_core::store::{ApplyError, Batch, Receipt, Refusal, Resolution};

use super::lists::{ListId, Snapshot, document, elements, push, snapshot};
use super::trace::Trace;
use crate::conn::Conn;
use crate::history::Outcome;
use crate::history::list_append::{Append, Reading, Transaction};
use crate::rng::Rng;

/// Number of lists that clients use at the same time.
const LISTS: u32 = 6;
/// Number of elements after which a list is replaced.
const LONG: usize = 24;
/// Number of lists that one reading at the end has.
const TOGETHER: usize = 40;
/// Number of elements that a client can append.
const ELEMENTS: u64 = 1_000_000;
/// The number of the client that reads everything at the end.
pub(super) const READER: usize = 999;

pub(super) struct Client {
    number: usize,
    rng: Rng,
    conn: Conn,
    /// Another connection, over which outcomes are resolved.
    foreign: Conn,
    trace: Arc<Trace>,
    appended: u64,
    /// The current generation of each list, as far as this client knows.
    generations: [u32; LISTS as usize],
}

impl Client {
    pub(super) fn new(number: usize, seed: u64, conn: Conn, foreign: Conn, trace: Arc<Trace>) -> Self {
        let (rng, generations) = (Rng::new(seed), [0; LISTS as usize]);
        Self { number, rng, conn, foreign, trace, appended: 0, generations }
    }

    /// Runs one or two transactions.
    pub(super) async fn step(&mut self) {
        let count = 1 + self.rng.below(3);
        let read = self.some_lists(count);
        match self.rng.below(10) {
            0..=2 => drop(self.read(&read).await),
            3..=6 => {
                if let Some(seen) = self.read(&read).await {
                    self.pause().await;
                    self.write(&seen).await;
                }
            }
            _ => self.write(&[]).await,
        }
    }

    /// Reads lists in a transaction of its own.
    async fn read(&mut self, lists: &[ListId]) -> Option<Vec<Snapshot>> {
        let id = self.trace.call(self.number, Transaction::default());
        match snapshot(&self.conn, lists).await {
            Ok(seen) => {
                self.trace.end(id, Outcome::Ok(seen.iter().map(Snapshot::reading).collect()));
                for Snapshot { list, elements, .. } in &seen {
                    if elements.len() >= LONG {
                        self.generations[list.slot as usize] = list.generation + 1;
                    }
                }
                Some(seen)
            }
            Err(_) => {
                self.trace.end(id, Outcome::Failed);
                None
            }
        }
    }

    /// Appends to some lists, on condition that those in `seen` are still the same.
    async fn write(&mut self, seen: &[Snapshot]) {
        let count = 1 + self.rng.below(3);
        let lists = self.some_lists(count);
        let (mut batch, mut appends) = (Batch::new(), Vec::new());
        for snapshot in seen.iter().filter(|snapshot| !lists.contains(&snapshot.list)) {
            batch = snapshot.guard(batch);
        }
        for list in &lists {
            let count = if self.rng.one_in(4) { 2 } else { 1 };
            let new: Vec<u64> = (0..count).map(|_| self.element()).collect();
            appends.extend(new.iter().map(|element| Append { list: list.name(), element: *element }));
            batch = match seen.iter().find(|snapshot| snapshot.list == *list) {
                None => push(batch, *list, &new, &mut self.rng),
                Some(snapshot) if self.rng.one_in(3) => {
                    push(snapshot.guard(batch), *list, &new, &mut self.rng)
                }
                Some(snapshot) => snapshot.extend(batch, &new),
            };
        }
        let asked = Transaction { expects: seen.iter().map(Snapshot::reading).collect(), appends };
        let id = self.trace.call(self.number, asked);
        let batch = batch.op_id(id);
        let outcome = match self.conn.apply(batch.clone()).await {
            Ok(receipt) => Outcome::Ok(merged(&receipt, &lists)),
            Err(error) => unapplied(&error),
        };
        self.trace.end(id, outcome.clone());
        if outcome == Outcome::Unknown {
            self.doubt(id, batch).await;
        }
    }

    /// Resolves an unknown outcome, repeats the batch first, or leaves it.
    async fn doubt(&mut self, id: OpId, batch: Batch) {
        match self.rng.below(4) {
            0 => {}
            1 => {
                // The first attempt may still be on its way, so a failure of the second one proves nothing.
                if self.conn.apply(batch).await.is_ok() {
                    self.trace.end(id, Outcome::Ok(Vec::new()));
                } else {
                    self.resolve(id).await;
                }
            }
            _ => self.resolve(id).await,
        }
    }

    /// Resolves an unknown outcome over the other connection.
    pub(super) async fn resolve(&mut self, id: OpId) {
        match self.foreign.resolve(id).await {
            Ok(Resolution::Applied(_)) => self.trace.end(id, Outcome::Ok(Vec::new())),
            Ok(Resolution::NotApplied) => self.trace.end(id, Outcome::Failed),
            Err(_) => {}
        }
    }

    /// Reads all lists, some of them together.
    pub(super) async fn read_all(&mut self, lists: &[ListId]) {
        for some in lists.chunks(TOGETHER) {
            assert!(self.read(some).await.is_some(), "the store answers at the end");
        }
    }

    /// Lets other clients run between a reading and the write that expects it.
    async fn pause(&mut self) {
        for _ in 0..self.rng.below(4) {
            tokio::task::yield_now().await;
        }
    }

    /// Returns different lists, each in the generation that this client knows.
    fn some_lists(&mut self, count: usize) -> Vec<ListId> {
        let first = self.rng.below(LISTS as usize) as u32;
        let slots = (0..count as u32).map(|n| (first + n * 5) % LISTS);
        slots.map(|slot| ListId { slot, generation: self.generations[slot as usize] }).collect()
    }

    fn element(&mut self) -> u64 {
        self.appended += 1;
        assert!(self.appended < ELEMENTS, "elements are unique");
        self.number as u64 * ELEMENTS + self.appended
    }
}

/// Returns the values that merges arrived at.
fn merged(receipt: &Receipt, lists: &[ListId]) -> Vec<Reading> {
    let reading = |written: &tidelock_core::store::Written| {
        let value = written.value.as_ref()?;
        let list = document(&written.key, lists)?;
        Some(Reading { list: list.name(), elements: elements(value.as_str()) })
    };
    receipt.documents.iter().filter_map(reading).collect()
}

fn unapplied(error: &ApplyError) -> Outcome<Vec<Reading>> {
    if let Some(refusal) = error.refusal() {
        let expected = matches!(refusal, Refusal::Document { .. } | Refusal::Stream { .. });
        assert!(expected, "no other refusal is possible: {refusal}");
    }
    match error.outcome() {
        Did::NotApplied => Outcome::Failed,
        Did::Unknown(_) => Outcome::Unknown,
        Did::Applied => panic!("an error after which all is well: {error}"),
    }
}

//! The order of the elements of each list, and the anomalies that need no cycle.
//!
//! The longest reading of a list is its order, and every other reading must be the beginning of it.

use std::collections::{HashMap, HashSet};

use super::explain::{Anomaly, AnomalyKind, describe};
use super::{Executed, Reading};
use crate::history::Outcome;

/// The lists of a history.
pub(super) struct Lists<'a> {
    pub(super) all: Vec<List<'a>>,
    by_name: HashMap<&'a str, usize>,
    /// Whether each transaction certainly committed.
    pub(super) committed: Vec<bool>,
}

/// One list.
pub(super) struct List<'a> {
    pub(super) name: &'a str,
    /// The longest reading of a committed transaction.
    pub(super) order: &'a [u64],
    /// The append of each element.
    pub(super) writers: HashMap<u64, Writer>,
}

/// The append of an element.
#[derive(Clone, Copy)]
pub(super) struct Writer {
    pub(super) transaction: usize,
    /// Whether the transaction appends no later element to the list.
    last: bool,
}

impl<'a> Lists<'a> {
    pub(super) fn of(history: &'a [Executed]) -> Self {
        let committed = history.iter().map(|t| matches!(t.outcome, Outcome::Ok(_))).collect();
        let mut lists = Self { all: Vec::new(), by_name: HashMap::new(), committed };
        for (n, transaction) in history.iter().enumerate() {
            lists.add(n, transaction);
        }
        let mut fresh: Vec<usize> = (0..history.len()).filter(|n| lists.committed[*n]).collect();
        // A reading may prove that a transaction with an unknown outcome committed. Its own readings then hold, too.
        while !fresh.is_empty() {
            let longer: HashSet<usize> =
                fresh.iter().flat_map(|n| readings(&history[*n])).filter_map(|r| lists.lengthen(r)).collect();
            fresh.clear();
            for element_of in longer {
                let List { order, writers, .. } = &lists.all[element_of];
                for writer in order.iter().filter_map(|element| writers.get(element)) {
                    let n = writer.transaction;
                    if !lists.committed[n] && history[n].outcome == Outcome::Unknown {
                        lists.committed[n] = true;
                        fresh.push(n);
                    }
                }
            }
        }
        lists
    }

    /// Returns the index of a list.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    fn add(&mut self, n: usize, transaction: &'a Executed) {
        for reading in readings(transaction) {
            self.named(&reading.list);
        }
        let mut last: HashMap<&str, u64> = HashMap::new();
        for append in &transaction.asked.appends {
            let writers = &mut self.named(&append.list).writers;
            writers.insert(append.element, Writer { transaction: n, last: true });
            if let Some(before) = last.insert(&append.list, append.element) {
                writers.insert(before, Writer { transaction: n, last: false });
            }
        }
    }

    fn named(&mut self, name: &'a str) -> &mut List<'a> {
        let index = *self.by_name.entry(name).or_insert(self.all.len());
        if index == self.all.len() {
            self.all.push(List { name, order: &[], writers: HashMap::new() });
        }
        &mut self.all[index]
    }

    /// Returns the list if the reading is the longest one so far.
    fn lengthen(&mut self, reading: &'a Reading) -> Option<usize> {
        let index = self.index(&reading.list)?;
        let list = &mut self.all[index];
        let longer = reading.elements.len() > list.order.len();
        if longer {
            list.order = &reading.elements;
        }
        longer.then_some(index)
    }
}

/// Returns all readings of a transaction: those that it expects, and those of its answer.
pub(super) fn readings(transaction: &Executed) -> impl Iterator<Item = &Reading> {
    let answer = match &transaction.outcome {
        Outcome::Ok(readings) => readings.as_slice(),
        _ => &[],
    };
    transaction.asked.expects.iter().chain(answer)
}

/// Returns the first anomaly of each kind that one reading shows alone, or together with the order of its list.
pub(super) fn anomalies(history: &[Executed], lists: &Lists<'_>) -> Vec<Anomaly> {
    let mut found: Vec<Anomaly> = Vec::new();
    let mut add = |anomaly: Option<Anomaly>| {
        if let Some(anomaly) = anomaly.filter(|new| found.iter().all(|old| old.kind != new.kind)) {
            found.push(anomaly);
        }
    };
    for (n, transaction) in history.iter().enumerate().filter(|(n, _)| lists.committed[*n]) {
        add(internal(history, n));
        for reading in readings(transaction) {
            let Some(list) = lists.index(&reading.list).map(|index| &lists.all[index]) else { continue };
            let same = list.order.starts_with(&reading.elements);
            // The elements of a beginning are checked with the longest reading.
            if !same || list.order.len() == reading.elements.len() {
                add(elements(history, n, reading, list));
            }
            add(intermediate(history, n, reading, list));
            if !same {
                add(Some(incompatible(history, n, reading, lists, list)));
            }
        }
    }
    found
}

/// Checks that a transaction reads its own appends, and only after them.
fn internal(history: &[Executed], n: usize) -> Option<Anomaly> {
    let Executed { asked, outcome, .. } = &history[n];
    let own = |list: &str| -> Vec<u64> {
        asked.appends.iter().filter(|append| append.list == list).map(|append| append.element).collect()
    };
    let early = asked.expects.iter().find(|r| own(&r.list).iter().any(|own| r.elements.contains(own)));
    let Outcome::Ok(after) = outcome else { return None };
    let without = after.iter().find(|reading| !reading.elements.ends_with(&own(&reading.list)));
    let reading = early.or(without)?;
    let text = format!(
        "T1 read list {:?} as {:?}, which does not agree with its own appends.\n{}",
        reading.list,
        reading.elements,
        describe(history, &[n])
    );
    Some(Anomaly::new(AnomalyKind::Internal, vec![n], text))
}

/// Checks that each element of a reading was appended once, by a transaction that did not fail.
fn elements(history: &[Executed], n: usize, reading: &Reading, list: &List<'_>) -> Option<Anomaly> {
    let mut seen = HashSet::new();
    for element in &reading.elements {
        let head = format!("T1 read list {:?} with the element {element}", list.name);
        if !seen.insert(element) {
            let text = format!("{head} twice.\n{}", describe(history, &[n]));
            return Some(Anomaly::new(AnomalyKind::Duplicate, vec![n], text));
        }
        let Some(writer) = list.writers.get(element) else {
            let text = format!("{head}, which no transaction appends.\n{}", describe(history, &[n]));
            return Some(Anomaly::new(AnomalyKind::Garbage, vec![n], text));
        };
        if history[writer.transaction].outcome == Outcome::Failed {
            let both = vec![n, writer.transaction];
            let text =
                format!("{head}, which T2 appended. T2 was not applied.\n{}", describe(history, &both));
            return Some(Anomaly::new(AnomalyKind::G1a, both, text));
        }
    }
    None
}

/// Checks that a reading does not end in the middle of another transaction.
fn intermediate(history: &[Executed], n: usize, reading: &Reading, list: &List<'_>) -> Option<Anomaly> {
    let element = reading.elements.last()?;
    let writer = list.writers.get(element).filter(|writer| writer.transaction != n && !writer.last)?;
    let both = vec![n, writer.transaction];
    let text = format!(
        "T1 read list {:?} up to the element {element}, after which T2 appended another one to the list.\n{}",
        list.name,
        describe(history, &both)
    );
    Some(Anomaly::new(AnomalyKind::G1b, both, text))
}

fn incompatible(
    history: &[Executed],
    n: usize,
    reading: &Reading,
    lists: &Lists<'_>,
    list: &List<'_>,
) -> Anomaly {
    let longest = |(n, t): &(usize, &Executed)| {
        lists.committed[*n] && readings(t).any(|r| r.list == list.name && r.elements == list.order)
    };
    let other = history.iter().enumerate().find(longest).map(|(n, _)| n);
    let both: Vec<usize> = [n].into_iter().chain(other).collect();
    let text = format!(
        "T1 read list {:?} as {:?}, and T2 read it as {:?}. Neither is the beginning of the other.\n{}",
        list.name,
        reading.elements,
        list.order,
        describe(history, &both)
    );
    Anomaly::new(AnomalyKind::IncompatibleOrder, both, text)
}

//! Tests of the list-append checker on generated histories. Those of a serial execution are accepted, and one planted anomaly
//! makes each of them rejected.

use std::collections::BTreeMap;
use std::time::Instant;

use tidelock_tck::history::list_append::{Append, Executed, Reading, Transaction, check};
use tidelock_tck::history::{Operation, Outcome};
use tidelock_tck::rng::Rng;

/// Transactions whose calls, effects and ends have a random order. Each takes effect at one instant.
struct Simulation {
    rng: Rng,
    now: u64,
    lists: usize,
    state: BTreeMap<String, Vec<u64>>,
    history: Vec<Executed>,
}

/// A client with a transaction in flight.
struct Busy {
    line: usize,
    happens: bool,
    heard: bool,
    /// The readings of the answer, once it took effect.
    answer: Option<Vec<Reading>>,
}

impl Simulation {
    fn run(seed: u64, clients: usize, transactions: usize, lists: usize) -> Vec<Executed> {
        let (rng, state) = (Rng::new(seed), BTreeMap::new());
        let mut simulation = Self { rng, now: 0, lists, state, history: Vec::new() };
        let mut busy: Vec<Option<Busy>> = (0..clients).map(|_| None).collect();
        while simulation.history.len() < transactions || busy.iter().any(Option::is_some) {
            simulation.now += 1;
            let client = simulation.rng.below(clients);
            busy[client] = match busy[client].take() {
                None if simulation.history.len() < transactions => Some(simulation.begin(client)),
                Some(busy) => simulation.go_on(busy),
                None => None,
            };
        }
        simulation.read_all();
        simulation.history
    }

    fn begin(&mut self, client: usize) -> Busy {
        let lost = self.rng.one_in(12);
        let busy = Busy {
            line: self.history.len(),
            happens: !lost || self.rng.one_in(2),
            heard: !lost || self.rng.one_in(2),
            answer: None,
        };
        // Elements rise with the transactions, and a few of each are not used.
        let first = self.history.len() as u64 * 4;
        let appends = (first..first + self.rng.below(4) as u64).map(|element| self.append(element)).collect();
        let asked = Transaction { expects: Vec::new(), appends };
        let (key, call, outcome) = (String::new(), self.now, Outcome::Unknown);
        self.history.push(Operation { client, key, asked, call, end: u64::MAX, outcome });
        busy
    }

    /// Lists are replaced as they grow, so that readings stay short.
    fn append(&mut self, element: u64) -> Append {
        let list = format!("{}-{}", self.rng.below(self.lists), element / 400);
        Append { list, element }
    }

    fn go_on(&mut self, mut busy: Busy) -> Option<Busy> {
        if busy.happens && busy.answer.is_none() {
            busy.answer = Some(self.perform(busy.line));
            return Some(busy);
        }
        let line = &mut self.history[busy.line];
        line.outcome = match busy.answer {
            Some(answer) if busy.heard => Outcome::Ok(answer),
            None if busy.heard => Outcome::Failed,
            _ => Outcome::Unknown,
        };
        if busy.heard {
            line.end = self.now;
        }
        None
    }

    /// Applies a transaction: first what it expects, then its appends, then its readings.
    fn perform(&mut self, line: usize) -> Vec<Reading> {
        let expected = self.rng.below(3);
        self.history[line].asked.expects = self.some_lists(expected);
        for Append { list, element } in &self.history[line].asked.appends {
            self.state.entry(list.clone()).or_default().push(*element);
        }
        let read = self.rng.below(4);
        self.some_lists(read)
    }

    fn some_lists(&mut self, count: usize) -> Vec<Reading> {
        let names: Vec<String> = self.state.keys().rev().take(self.lists).cloned().collect();
        let mut pick = || (!names.is_empty()).then(|| names[self.rng.below(names.len())].clone());
        let picked: Vec<String> = (0..count).filter_map(|_| pick()).collect();
        picked.into_iter().map(|list| self.reading(list)).collect()
    }

    fn reading(&self, list: String) -> Reading {
        let elements = self.state.get(&list).cloned().unwrap_or_default();
        Reading { list, elements }
    }

    /// Reads every list at the end.
    fn read_all(&mut self) {
        let all = self.state.keys().cloned().map(|list| self.reading(list)).collect();
        let (key, asked) = (String::new(), Transaction::default());
        let (call, end) = (self.now + 1, self.now + 2);
        self.history.push(Operation { client: 99, key, asked, call, end, outcome: Outcome::Ok(all) });
    }
}

/// One planted anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// A reading has an element twice.
    Doubles,
    /// A reading has an element of no transaction.
    Invents,
    /// Two elements of a reading change places.
    Swaps,
    /// A transaction whose element was read was reported as not applied.
    Aborts,
    /// An acknowledged element is missing from all readings.
    Loses,
    /// A reading misses an element that was acknowledged before its call.
    IsStale,
    /// A reading ends between two elements of one transaction.
    Halves,
    /// A transaction reads one list after another transaction and the other list before it.
    Fractures,
    /// Two transactions were applied at the same version of a list.
    Forgets,
}

const MUTATIONS: [Mutation; 9] = [
    Mutation::Doubles,
    Mutation::Invents,
    Mutation::Swaps,
    Mutation::Aborts,
    Mutation::Loses,
    Mutation::IsStale,
    Mutation::Halves,
    Mutation::Fractures,
    Mutation::Forgets,
];

fn answer(line: &mut Executed) -> Option<&mut Vec<Reading>> {
    match &mut line.outcome {
        Outcome::Ok(readings) => Some(readings),
        _ => None,
    }
}

/// Returns the transaction that appends an element.
fn writer(history: &[Executed], element: u64) -> usize {
    (element / 4) as usize % history.len()
}

/// Plants an anomaly at a random place. Returns `false` if the history has none that fits.
fn plant(mutation: Mutation, history: &mut [Executed], rng: &mut Rng) -> bool {
    let (start, length) = (rng.below(history.len()), history.len());
    (0..length).map(|n| (start + n) % length).any(|n| plant_at(mutation, history, n, rng))
}

fn plant_at(mutation: Mutation, history: &mut [Executed], n: usize, rng: &mut Rng) -> bool {
    match mutation {
        Mutation::Doubles | Mutation::Invents | Mutation::Swaps => reorder(mutation, history, n, rng),
        Mutation::Aborts => {
            let Outcome::Ok(readings) = history[n].outcome.clone() else { return false };
            let Some(element) = readings.iter().find_map(|r| r.elements.last()) else { return false };
            let writer = writer(history, *element);
            history[writer].outcome = Outcome::Failed;
            writer != n
        }
        Mutation::Loses => {
            let Executed { asked, outcome: Outcome::Ok(_), .. } = &history[n] else { return false };
            let Some(Append { element, .. }) = asked.appends.first().cloned() else { return false };
            for line in history.iter_mut() {
                line.asked.expects.iter_mut().for_each(|r| r.elements.retain(|e| *e != element));
                let Some(readings) = answer(line) else { continue };
                readings.iter_mut().for_each(|r| r.elements.retain(|e| *e != element));
            }
            true
        }
        Mutation::IsStale | Mutation::Halves | Mutation::Fractures => shorten(mutation, history, n),
        Mutation::Forgets => {
            let Outcome::Ok(_) = history[n].outcome else { return false };
            let own: Vec<u64> = history[n].asked.appends.iter().map(|append| append.element).collect();
            let Some(list) = history[n].asked.appends.first().map(|append| append.list.clone()) else {
                return false;
            };
            let Some(Outcome::Ok(last)) = history.last().map(|line| line.outcome.clone()) else {
                return false;
            };
            let Some(order) = last.into_iter().find(|reading| reading.list == list) else { return false };
            let before: Vec<u64> = order.elements.into_iter().take_while(|e| !own.contains(e)).collect();
            let Some((_, missed)) = before.split_last() else { return false };
            history[n].asked.expects = vec![Reading { list, elements: missed.to_vec() }];
            true
        }
    }
}

fn reorder(mutation: Mutation, history: &mut [Executed], n: usize, rng: &mut Rng) -> bool {
    let Some(readings) = answer(&mut history[n]) else { return false };
    let Some(reading) = readings.iter_mut().find(|r| r.elements.len() > 1) else { return false };
    let elements = &mut reading.elements;
    let at = rng.below(elements.len() - 1);
    match mutation {
        Mutation::Doubles => elements.insert(at, elements[at]),
        Mutation::Invents => elements[at] = u64::MAX,
        _ => elements.swap(at, at + 1),
    }
    true
}

/// Removes the last element of a reading, if a rule forbids that.
fn shorten(mutation: Mutation, history: &mut [Executed], n: usize) -> bool {
    let Outcome::Ok(readings) = history[n].outcome.clone() else { return false };
    for (at, reading) in readings.iter().enumerate() {
        let Some((last, rest)) = reading.elements.split_last() else { continue };
        let by = writer(history, *last);
        let writer = &history[by];
        let own = |list: &str| writer.asked.appends.iter().filter(|append| append.list == list).count();
        let forbidden = match mutation {
            _ if by == n => false,
            Mutation::IsStale => matches!(writer.outcome, Outcome::Ok(_)) && writer.end < history[n].call,
            Mutation::Halves => own(&reading.list) > 1,
            _ => {
                own(&reading.list) == 1
                    && readings.iter().any(|other| {
                        let seen = other.elements.iter().any(|element| *element / 4 == *last / 4);
                        other.list != reading.list && seen
                    })
            }
        };
        if forbidden {
            let rest = rest.to_vec();
            // The same list may have been read more than once.
            let list = reading.list.clone();
            let same = |other: &&mut Reading| other.list == list;
            assert!(at < readings.len());
            answer(&mut history[n])
                .unwrap()
                .iter_mut()
                .filter(same)
                .for_each(|r| r.elements.clone_from(&rest));
            return true;
        }
    }
    false
}

#[test]
fn serial_histories_are_accepted() {
    for seed in 0..300 {
        let clients = 1 + (seed as usize % 9);
        let history = Simulation::run(seed, clients, 120, 3);
        let summary = check(&history).unwrap_or_else(|anomalies| panic!("seed {seed}: {anomalies}"));
        assert!(summary.elements > 50 && summary.dependencies > 100, "seed {seed}: {summary:?}");
    }
}

#[test]
fn planted_anomalies_are_rejected() {
    let mut planted = [0; MUTATIONS.len()];
    for seed in 0..300 {
        let history = Simulation::run(seed, 5, 60, 3);
        for (count, mutation) in planted.iter_mut().zip(MUTATIONS) {
            let mut mutated = history.clone();
            if plant(mutation, &mut mutated, &mut Rng::new(seed)) {
                *count += 1;
                assert!(check(&mutated).is_err(), "seed {seed}: {mutation:?} is accepted");
            }
        }
    }
    assert!(planted.iter().all(|count| *count > 100), "{planted:?}");
}

/// The cost is linear: `TIDELOCK_OPERATIONS=100000` takes five times as long.
#[test]
fn tens_of_thousands_of_transactions_are_checked_in_seconds() {
    let count = std::env::var("TIDELOCK_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let history = Simulation::run(1, 16, count.unwrap_or(20_000), 5);
    let start = Instant::now();
    let summary = check(&history).unwrap_or_else(|anomalies| panic!("{anomalies}"));
    eprintln!("{} transactions in {:?}: {summary:?}", history.len(), start.elapsed());
    let mut broken = history;
    assert!(plant(Mutation::IsStale, &mut broken, &mut Rng::new(1)));
    let start = Instant::now();
    let anomalies = check(&broken).unwrap_err();
    eprintln!("broken, in {:?}: {anomalies}", start.elapsed());
}

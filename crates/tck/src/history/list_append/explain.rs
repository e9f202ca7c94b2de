//! Explanation of an anomaly: the transactions that show it, and why each of them comes before the next.

use std::error::Error;
use std::fmt::{self, Write as _};

use super::cycles::Cycle;
use super::graph::{Edge, Kind};
use super::order::Lists;
use super::{Executed, Reading};
use crate::history::Outcome;

/// Maximum number of elements of a reading in a message.
const SHOWN: usize = 12;

/// A kind of anomaly. Those of Adya have his names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnomalyKind {
    /// A reading contains an element twice, as after a write that was applied twice.
    Duplicate,
    /// A reading contains an element that no transaction appends.
    Garbage,
    /// Two readings of a list have different orders: an element was lost or moved.
    IncompatibleOrder,
    /// A transaction does not read its own appends.
    Internal,
    /// Aborted read: a reading contains an element of a transaction that was not applied.
    G1a,
    /// Intermediate read: a reading contains a part of the appends of another transaction.
    G1b,
    /// Write cycle (dirty write): the writes of two transactions are interleaved.
    G0,
    /// Circular information flow: a cycle of writes and readings.
    G1c,
    /// Read skew or lost update: a cycle with one reading that misses a write.
    GSingle,
    /// Write skew: a cycle with several readings that miss a write.
    G2,
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duplicate => "duplicate element",
            Self::Garbage => "garbage read",
            Self::IncompatibleOrder => "incompatible order",
            Self::Internal => "internal inconsistency",
            Self::G1a => "G1a (aborted read)",
            Self::G1b => "G1b (intermediate read)",
            Self::G0 => "G0 (write cycle)",
            Self::G1c => "G1c (circular information flow)",
            Self::GSingle => "G-single (read skew)",
            Self::G2 => "G2 (write skew)",
        })
    }
}

/// An anomaly of a history.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// The kind.
    pub kind: AnomalyKind,
    /// Whether only real time closes the cycle. Without it the history is serializable, in an order that clients could notice.
    pub real_time: bool,
    /// The transactions that show it, by their index in the history. Those of a cycle are in its order.
    pub transactions: Vec<usize>,
    text: String,
}

impl Anomaly {
    pub(super) fn new(kind: AnomalyKind, transactions: Vec<usize>, text: String) -> Self {
        Self { kind, real_time: false, transactions, text }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real_time = if self.real_time { " in real time" } else { "" };
        write!(f, "{}{real_time}: {}", self.kind, self.text)
    }
}

/// The anomalies of a history, at most one of each kind.
#[derive(Clone, Debug)]
pub struct Anomalies(pub Vec<Anomaly>);

impl fmt::Display for Anomalies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the transactions are not strictly serializable")?;
        self.0.iter().try_for_each(|anomaly| write!(f, "\n{anomaly}"))
    }
}

impl Error for Anomalies {}

/// Explains a cycle.
pub(super) fn cycle(history: &[Executed], lists: &Lists<'_>, cycle: &Cycle) -> Anomaly {
    let transactions: Vec<usize> = cycle.steps.iter().map(|(n, _)| *n).collect();
    let mut text =
        format!("{} transactions have no order.\n{}", transactions.len(), describe(history, &transactions));
    for (n, (_, edge)) in cycle.steps.iter().enumerate() {
        let (from, to) = (n + 1, (n + 1) % transactions.len() + 1);
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  T{from} comes before T{to}: {}", reason(edge, lists, from, to));
    }
    Anomaly { kind: cycle.kind, real_time: cycle.real_time, transactions, text }
}

fn reason(edge: &Edge, lists: &Lists<'_>, from: usize, to: usize) -> String {
    let Some(list) = lists.all.get(edge.list) else { return String::new() };
    let name = list.name;
    let element = |at: usize| list.order.get(at);
    match (edge.kind, edge.at.checked_sub(1).and_then(element), element(edge.at)) {
        (Kind::RealTime, ..) => format!("T{from} ended before T{to} was called."),
        (Kind::Ww, Some(before), Some(after)) => {
            format!("T{from} appended {before} to list {name:?}, and T{to} appended {after} behind it.")
        }
        (Kind::Ww, Some(before), None) => format!(
            "T{from} appended {before} to list {name:?}, and no reading up to there contains the append of T{to}."
        ),
        (Kind::Wr, Some(last), _) => {
            format!("T{from} appended {last} to list {name:?}, which is the last element that T{to} read.")
        }
        (Kind::Rw, _, Some(next)) => {
            format!("T{from} read list {name:?} without {next}, the next element, which T{to} appended.")
        }
        _ => format!("T{from} read list {name:?} without the element that T{to} appended."),
    }
}

/// Lists transactions, one on a line.
pub(super) fn describe(history: &[Executed], transactions: &[usize]) -> String {
    let lines: Vec<String> =
        transactions.iter().zip(1..).map(|(n, number)| line(number, &history[*n])).collect();
    lines.join("\n")
}

fn line(number: usize, transaction: &Executed) -> String {
    let Executed { client, asked, call, end, outcome, .. } = transaction;
    let end = if *end == u64::MAX { String::new() } else { end.to_string() };
    let mut text = format!("  T{number} = client {client} [{call}..{end}]");
    for reading in &asked.expects {
        let _ = write!(text, " expects {}", shown(reading));
    }
    for append in &asked.appends {
        let _ = write!(text, " appends {} to {:?}", append.element, append.list);
    }
    match outcome {
        Outcome::Ok(readings) => {
            for reading in readings {
                let _ = write!(text, " reads {}", shown(reading));
            }
            text += ": ok";
        }
        Outcome::Failed => text += ": not applied",
        Outcome::Unknown => text += ": unknown",
    }
    text
}

fn shown(reading: &Reading) -> String {
    let Reading { list, elements } = reading;
    let left = elements.len().saturating_sub(SHOWN);
    let last: Vec<String> = elements[left..].iter().map(u64::to_string).collect();
    let dots = if left > 0 { format!("{left} elements, ") } else { String::new() };
    format!("{list:?} = [{dots}{}]", last.join(", "))
}

//! List-append checker: strict serializability of transactions over many lists, after Elle.
//!
//! Clients append unique elements to lists and read whole lists. A reading reveals the order of the writes before it, so the
//! dependencies between transactions follow from the history alone:
//!
//! - **ww**: one transaction appended an element directly behind an element of the other.
//! - **wr**: one transaction read a list that ends with an element of the other.
//! - **rw**: one transaction read a list without the next element, which the other appended.
//! - **real time**: one transaction ended before the other was called.
//!
//! The history is strictly serializable if these dependencies have no cycle. A cycle gets the name that Adya gave it: `G0` has
//! only ww, `G1c` also wr, `G-single` exactly one rw, `G2` several. Other anomalies need no cycle: a reading of an aborted
//! write (`G1a`) or of half a transaction (`G1b`), two readings in different orders, an element that is there twice.
//!
//! A transaction with an unknown outcome counts as committed once a reading contains one of its elements. An element that was
//! acknowledged and is missing from a later reading is a cycle through real time, so a lost write needs no rule of its own.
//!
//! The cost is linear in the size of the history, until an anomaly is found and explained.
//!
//! ```
//! use tidelock_tck::history::list_append::{Append, AnomalyKind, Reading, Transaction, check};
//! use tidelock_tck::history::{Operation, Outcome};
//!
//! let append = |list: &str, element| Append { list: list.to_owned(), element };
//! let reading = |list: &str, elements: &[u64]| Reading { list: list.to_owned(), elements: elements.to_vec() };
//! let ended = |client, asked, call, end, read| Operation {
//!     client, key: String::new(), asked, call, end, outcome: Outcome::Ok(read),
//! };
//! let writes = Transaction { expects: vec![], appends: vec![append("x", 1), append("y", 2)] };
//! let skewed = vec![reading("x", &[1]), reading("y", &[])];
//! let anomalies = check(&[
//!     ended(0, writes, 1, 4, vec![]),
//!     ended(1, Transaction::default(), 2, 3, skewed),
//! ]).unwrap_err();
//! assert_eq!(anomalies.0[0].kind, AnomalyKind::GSingle);
//! println!("{anomalies}");
//! ```

mod cycles;
mod explain;
mod graph;
mod order;

use serde::{Deserialize, Serialize};

pub use explain::{Anomalies, Anomaly, AnomalyKind};

use super::Operation;

/// The request of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// The lists that must still read like this at the commit (optimistic concurrency). They hold before the appends.
    pub expects: Vec<Reading>,
    /// The elements that the transaction appends, in order.
    pub appends: Vec<Append>,
}

/// A list as a transaction read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The name of the list.
    pub list: String,
    /// All elements of the list, in order.
    pub elements: Vec<u64>,
}

/// One append of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// The name of the list.
    pub list: String,
    /// The element. No other append of the history has the same one.
    pub element: u64,
}

/// A transaction with its instants and its outcome. The answer has the lists that it read after its appends. The key of the
/// operation is not used.
pub type Executed = Operation<Transaction, Vec<Reading>>;

/// Statistics of a history without an anomaly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Transactions that committed.
    pub committed: usize,
    /// Lists with at least one element.
    pub lists: usize,
    /// Elements that a reading contains.
    pub elements: usize,
    /// Dependencies between the transactions.
    pub dependencies: usize,
}

/// Checks that the committed transactions of a history have one order that explains all readings and agrees with real time.
///
/// # Errors
/// Returns the anomalies. Of several cycles, only the shortest one of the most severe kind is among them.
pub fn check(history: &[Executed]) -> Result<Summary, Anomalies> {
    let lists = order::Lists::of(history);
    let graph = graph::Graph::of(history, &lists);
    let mut anomalies = order::anomalies(history, &lists);
    anomalies.extend(cycles::worst(&graph).map(|cycle| explain::cycle(history, &lists, &cycle)));
    if anomalies.is_empty() {
        return Ok(Summary {
            committed: lists.committed.iter().filter(|committed| **committed).count(),
            lists: lists.all.iter().filter(|list| !list.order.is_empty()).count(),
            elements: lists.all.iter().map(|list| list.order.len()).sum(),
            dependencies: graph.dependencies(),
        });
    }
    Err(Anomalies(anomalies))
}

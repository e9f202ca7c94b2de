//! The dependency graph of the transactions.
//!
//! Real time would need an edge for each pair of transactions that do not overlap. One node for each end instead forms a chain,
//! so that the graph stays linear in the size of the history. Two more nodes for each list represent its end, from which edges
//! lead to the appends that no reading contains.

use std::collections::HashSet;

use super::order::{Lists, readings};
use super::{Executed, Reading};

/// A kind of dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A write before a write.
    Ww,
    /// A write before a reading that contains it.
    Wr,
    /// A reading before a write that it does not contain.
    Rw,
    /// An end before a call.
    RealTime,
    /// The rest of a dependency over a virtual node. It belongs to every set.
    Rest,
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const fn of(kinds: &[Kind]) -> Self {
        let (mut bits, mut n) = (0, 0);
        while n < kinds.len() {
            #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
            let kind = kinds[n];
            bits |= 1 << kind as u8;
            n += 1;
        }
        Self(bits)
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        kind == Kind::Rest || self.0 & (1 << kind as u8) != 0
    }

    pub(super) fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u8)
    }
}

/// An edge to a later node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) kind: Kind,
    /// The list, and the number of its elements before the dependency.
    pub(super) list: usize,
    pub(super) at: usize,
}

/// The graph. The first nodes are the transactions; the others are virtual.
pub(super) struct Graph {
    pub(super) edges: Vec<Vec<Edge>>,
    transactions: usize,
}

impl Graph {
    pub(super) fn of(history: &[Executed], lists: &Lists<'_>) -> Self {
        let mut graph = Self { edges: vec![Vec::new(); history.len()], transactions: history.len() };
        graph.add_writes(lists);
        for (n, transaction) in history.iter().enumerate().filter(|(n, _)| lists.committed[*n]) {
            for reading in readings(transaction) {
                graph.add_reading(n, reading, lists);
            }
        }
        graph.add_unread(history, lists);
        graph.add_real_time(history, lists);
        graph
    }

    /// Returns whether the node is a transaction.
    pub(super) fn is_transaction(&self, node: usize) -> bool {
        node < self.transactions
    }

    /// Returns the number of dependencies that involve a list.
    pub(super) fn dependencies(&self) -> usize {
        self.edges.iter().flatten().filter(|edge| !matches!(edge.kind, Kind::RealTime | Kind::Rest)).count()
    }

    fn add(&mut self, from: usize, edge: Edge) {
        if from != edge.to {
            self.edges[from].push(edge);
        }
    }

    fn node(&mut self) -> usize {
        self.edges.push(Vec::new());
        self.edges.len() - 1
    }

    fn add_writes(&mut self, lists: &Lists<'_>) {
        for (index, list) in lists.all.iter().enumerate() {
            for (at, pair) in list.order.windows(2).enumerate() {
                let writers = (list.writers.get(&pair[0]), list.writers.get(&pair[1]));
                if let (Some(before), Some(after)) = writers {
                    let edge = Edge { to: after.transaction, kind: Kind::Ww, list: index, at: at + 1 };
                    self.add(before.transaction, edge);
                }
            }
        }
    }

    fn add_reading(&mut self, n: usize, reading: &Reading, lists: &Lists<'_>) {
        let Some(index) = lists.index(&reading.list) else { return };
        let (list, at) = (&lists.all[index], reading.elements.len());
        // A reading in another order is an anomaly of its own, and has no place in this one.
        if !list.order.starts_with(&reading.elements) {
            return;
        }
        if let Some(writer) = reading.elements.last().and_then(|last| list.writers.get(last)) {
            self.add(writer.transaction, Edge { to: n, kind: Kind::Wr, list: index, at });
        }
        if let Some(writer) = list.order.get(at).and_then(|next| list.writers.get(next)) {
            self.add(n, Edge { to: writer.transaction, kind: Kind::Rw, list: index, at });
        }
    }

    /// Adds the committed appends that no reading contains. They come after all that the readings contain.
    fn add_unread(&mut self, history: &[Executed], lists: &Lists<'_>) {
        let read: Vec<HashSet<u64>> = lists.all.iter().map(|l| l.order.iter().copied().collect()).collect();
        let mut unread: Vec<Vec<usize>> = vec![Vec::new(); lists.all.len()];
        for (n, transaction) in history.iter().enumerate().filter(|(n, _)| lists.committed[*n]) {
            for append in &transaction.asked.appends {
                let index = lists.index(&append.list);
                if let Some(index) = index.filter(|i| !read[*i].contains(&append.element)) {
                    unread[index].push(n);
                }
            }
        }
        let mut ends: Vec<Option<usize>> = vec![None; lists.all.len()];
        for (index, writers) in unread.into_iter().enumerate().filter(|(_, writers)| !writers.is_empty()) {
            let (list, at) = (&lists.all[index], lists.all[index].order.len());
            let (after_write, after_read) = (self.node(), self.node());
            ends[index] = Some(after_read);
            let last = list.order.last().and_then(|last| list.writers.get(last));
            if let Some(last) = last.filter(|last| !writers.contains(&last.transaction)) {
                self.add(last.transaction, Edge { to: after_write, kind: Kind::Ww, list: index, at });
            }
            for to in writers {
                self.add(after_write, Edge { to, kind: Kind::Rest, list: index, at });
                self.add(after_read, Edge { to, kind: Kind::Rest, list: index, at });
            }
        }
        for (n, transaction) in history.iter().enumerate().filter(|(n, _)| lists.committed[*n]) {
            for reading in readings(transaction) {
                let Some(index) = lists.index(&reading.list) else { continue };
                if let Some(to) = ends[index].filter(|_| lists.all[index].order == reading.elements) {
                    let at = reading.elements.len();
                    // A transaction that read the list before its own append does not depend on itself.
                    let own = transaction.asked.appends.iter().any(|append| append.list == reading.list);
                    if !own {
                        self.add(n, Edge { to, kind: Kind::Rw, list: index, at });
                    }
                }
            }
        }
    }

    fn add_real_time(&mut self, history: &[Executed], lists: &Lists<'_>) {
        let committed = || history.iter().enumerate().filter(|(n, _)| lists.committed[*n]);
        let mut ends: Vec<(u64, usize)> =
            committed().filter(|(_, t)| t.end != u64::MAX).map(|(n, t)| (t.end, n)).collect();
        ends.sort_unstable();
        let first = self.edges.len();
        let time = |to| Edge { to, kind: Kind::RealTime, list: 0, at: 0 };
        for (k, (_, n)) in ends.iter().enumerate() {
            let node = self.node();
            self.add(*n, time(node));
            if k > 0 {
                self.add(node - 1, time(node));
            }
        }
        for (n, transaction) in committed() {
            let before = ends.partition_point(|(end, _)| *end < transaction.call);
            if before > 0 {
                self.add(first + before - 1, time(n));
            }
        }
    }
}

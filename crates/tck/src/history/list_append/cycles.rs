//! Cycles of the dependency graph: strongly connected components (Tarjan), and the shortest cycle in one of them.

use std::collections::VecDeque;

use super::explain::AnomalyKind;
use super::graph::{Edge, Graph, Kind, Kinds};

/// A cycle: for each of its transactions, the edge that leads to the next one. A path over virtual nodes is one step.
#[derive(Debug)]
pub(super) struct Cycle {
    pub(super) kind: AnomalyKind,
    pub(super) real_time: bool,
    pub(super) steps: Vec<(usize, Edge)>,
}

/// The kinds of cycles from the most to the least severe: the edge that each needs, and the edges of the rest.
const LEVELS: [(AnomalyKind, Kind, Kinds); 4] = [
    (AnomalyKind::G0, Kind::Ww, Kinds::of(&[Kind::Ww])),
    (AnomalyKind::G1c, Kind::Wr, Kinds::of(&[Kind::Ww, Kind::Wr])),
    (AnomalyKind::GSingle, Kind::Rw, Kinds::of(&[Kind::Ww, Kind::Wr])),
    (AnomalyKind::G2, Kind::Rw, Kinds::of(&[Kind::Ww, Kind::Wr, Kind::Rw])),
];
const ALL: Kinds = Kinds::of(&[Kind::Ww, Kind::Wr, Kind::Rw, Kind::RealTime]);

/// Maximum number of edges from which a shortest cycle is searched.
const TRIES: usize = 500;

/// Returns the shortest cycle of the most severe kind. Cycles without real time come first.
pub(super) fn worst(graph: &Graph) -> Option<Cycle> {
    if components(graph, ALL).iter().all(|component| *component == ALONE) {
        return None;
    }
    for real_time in [false, true] {
        for (kind, needs, rest) in LEVELS {
            let rest = if real_time { rest.with(Kind::RealTime) } else { rest };
            if let Some(steps) = shortest(graph, needs, rest) {
                return Some(Cycle { kind, real_time, steps });
            }
        }
    }
    None
}

/// The component of a node that is on no cycle.
const ALONE: usize = usize::MAX;

/// Returns the shortest cycle of an edge of one kind and a path of other kinds.
fn shortest(graph: &Graph, needs: Kind, rest: Kinds) -> Option<Vec<(usize, Edge)>> {
    let component = components(graph, rest.with(needs));
    let mut search = Search::new(graph, rest, &component);
    let mut best: Option<Vec<(usize, Edge)>> = None;
    let mut tries = 0;
    for (from, edges) in graph.edges.iter().enumerate() {
        let inside = |edge: &&Edge| edge.kind == needs && component[from] == component[edge.to];
        for edge in edges.iter().filter(inside).filter(|_| component[from] != ALONE) {
            if tries == TRIES || best.as_ref().is_some_and(|best| best.len() <= 2) {
                return best;
            }
            tries += 1;
            if let Some(path) = search.path(edge.to, from) {
                let cycle = compressed(graph, (from, *edge), path);
                if best.as_ref().is_none_or(|best| cycle.len() < best.len()) {
                    best = Some(cycle);
                }
            }
        }
    }
    best
}

/// Joins the edges of a cycle over virtual nodes to one step between two transactions.
fn compressed(graph: &Graph, first: (usize, Edge), path: Vec<(usize, Edge)>) -> Vec<(usize, Edge)> {
    let mut steps: Vec<(usize, Edge)> = std::iter::once(first).chain(path).collect();
    let start = steps.iter().position(|(from, _)| graph.is_transaction(*from)).unwrap_or_default();
    steps.rotate_left(start);
    let mut joined: Vec<(usize, Edge)> = Vec::new();
    for (from, edge) in steps {
        match joined.last_mut().filter(|_| !graph.is_transaction(from)) {
            Some((_, before)) => before.to = edge.to,
            None => joined.push((from, edge)),
        }
    }
    joined
}

/// A breadth-first search inside a component. Steps to virtual nodes have no length.
struct Search<'a> {
    graph: &'a Graph,
    kinds: Kinds,
    component: &'a [usize],
    /// The search that reached each node last, and the edge by which it did.
    reached: Vec<(usize, Option<(usize, Edge)>)>,
    count: usize,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, kinds: Kinds, component: &'a [usize]) -> Self {
        Self { graph, kinds, component, reached: vec![(0, None); graph.edges.len()], count: 0 }
    }

    fn path(&mut self, start: usize, goal: usize) -> Option<Vec<(usize, Edge)>> {
        self.count += 1;
        let mut queue = VecDeque::from([(start, None)]);
        while let Some((node, by)) = queue.pop_front() {
            if self.reached[node].0 == self.count {
                continue;
            }
            self.reached[node] = (self.count, by);
            if node == goal {
                return Some(self.back(goal));
            }
            for edge in &self.graph.edges[node] {
                let inside = self.component[edge.to] == self.component[start];
                if inside && self.kinds.has(edge.kind) && self.reached[edge.to].0 != self.count {
                    let next = (edge.to, Some((node, *edge)));
                    match self.graph.is_transaction(edge.to) {
                        true => queue.push_back(next),
                        false => queue.push_front(next),
                    }
                }
            }
        }
        None
    }

    /// Returns the edges of the path to a node, from its start.
    fn back(&self, goal: usize) -> Vec<(usize, Edge)> {
        let mut path = Vec::new();
        let mut node = goal;
        while let (_, Some(step)) = self.reached[node] {
            path.push(step);
            node = step.0;
        }
        path.reverse();
        path
    }
}

/// Returns the strongly connected component of each node over edges of these kinds (Tarjan, without recursion).
fn components(graph: &Graph, kinds: Kinds) -> Vec<usize> {
    let count = graph.edges.len();
    let mut tarjan = Tarjan {
        index: vec![0; count],
        low: vec![0; count],
        on_stack: vec![false; count],
        stack: Vec::new(),
        next: 0,
        component: vec![ALONE; count],
    };
    for root in 0..count {
        if tarjan.index[root] == 0 {
            tarjan.visit(graph, kinds, root);
        }
    }
    tarjan.component
}

struct Tarjan {
    /// The order in which nodes were visited, from 1. Zero means not visited.
    index: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    component: Vec<usize>,
}

impl Tarjan {
    fn visit(&mut self, graph: &Graph, kinds: Kinds, root: usize) {
        let mut path = vec![(root, 0)];
        self.enter(root);
        while let Some((node, at)) = path.last_mut() {
            let node = *node;
            let Some(edge) = graph.edges[node].get(*at) else {
                path.pop();
                self.leave(node);
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[node]);
                }
                continue;
            };
            *at += 1;
            if !kinds.has(edge.kind) {
                continue;
            }
            if self.index[edge.to] == 0 {
                self.enter(edge.to);
                path.push((edge.to, 0));
            } else if self.on_stack[edge.to] {
                self.low[node] = self.low[node].min(self.index[edge.to]);
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.next += 1;
        (self.index[node], self.low[node]) = (self.next, self.next);
        self.on_stack[node] = true;
        self.stack.push(node);
    }

    /// Closes the component of which the node is the root.
    fn leave(&mut self, node: usize) {
        if self.low[node] != self.index[node] {
            return;
        }
        let start = self.stack.iter().rposition(|other| *other == node).unwrap_or_default();
        let members = self.stack.split_off(start);
        // A component of one node has no cycle, because no edge leads from a node to itself.
        let component = if members.len() > 1 { node } else { ALONE };
        for member in members {
            self.on_stack[member] = false;
            self.component[member] = component;
        }
    }
}

//! Those who wait for one term, in the order of arrival: a linked list in a vector. Joining, leaving from anywhere and
//! being served take the same short time, however many wait, and nothing is left behind.

/// The place of somebody in the queue. It is free again after it was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat(u32);

/// Nobody.
const END: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    /// `None` while the seat is free.
    value: Option<T>,
    /// Towards the front; in a free seat, the next free one.
    before: u32,
    /// Towards the back.
    after: u32,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue<T> {
    nodes: Vec<Node<T>>,
    front: u32,
    back: u32,
    free: u32,
    len: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), front: END, back: END, free: END, len: 0 }
    }
}

impl<T> Queue<T> {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn node(&mut self, at: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(at as usize)
    }

    /// Joins at the back. `None` when there are as many as can be counted.
    pub(super) fn push(&mut self, value: T) -> Option<Seat> {
        let node = Node { value: Some(value), before: self.back, after: END };
        let at = self.free;
        let at = match self.nodes.get_mut(at as usize) {
            Some(free) => {
                let next = free.before;
                *free = node;
                self.free = next;
                at
            }
            None => {
                let at = u32::try_from(self.nodes.len()).ok().filter(|at| *at != END)?;
                self.nodes.push(node);
                at
            }
        };
        let back = std::mem::replace(&mut self.back, at);
        match self.node(back) {
            Some(before) => before.after = at,
            None => self.front = at,
        }
        self.len += 1;
        Some(Seat(at))
    }

    /// Leaves, from wherever it is.
    pub(super) fn remove(&mut self, seat: Seat) -> Option<T> {
        let free = self.free;
        let node = self.node(seat.0)?;
        let value = node.value.take()?;
        let (before, after) = (node.before, node.after);
        node.before = free;
        self.free = seat.0;
        match self.node(before) {
            Some(before) => before.after = after,
            None => self.front = after,
        }
        match self.node(after) {
            Some(after) => after.before = before,
            None => self.back = before,
        }
        self.len -= 1;
        Some(value)
    }

    /// Whoever is at the front.
    pub(super) fn front(&self) -> Option<&T> {
        self.nodes.get(self.front as usize)?.value.as_ref()
    }

    /// Takes whoever is at the front.
    pub(super) fn pop(&mut self) -> Option<(Seat, T)> {
        let seat = Seat(self.front);
        self.remove(seat).map(|value| (seat, value))
    }

    pub(super) fn get(&self, seat: Seat) -> Option<&T> {
        self.nodes.get(seat.0 as usize)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, seat: Seat) -> Option<&mut T> {
        self.node(seat.0)?.value.as_mut()
    }

    /// Everybody, from the front on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let step = |node: &&Node<T>| self.nodes.get(node.after as usize);
        std::iter::successors(self.nodes.get(self.front as usize), step)
            .filter_map(|node| node.value.as_ref())
    }
}

#[cfg(test)]
mod tests;

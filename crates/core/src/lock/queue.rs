//! Wait queue of one term, in the order of arrival: a linked list in a vector. Pushing, popping and removing from any
//! position take constant time, whatever the length. Free slots are reused.

/// The slot of a waiter in the queue. It becomes free when the waiter is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueSlot(u32);

/// The end of the list: no slot.
const END: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    /// `None` while the slot is free.
    value: Option<T>,
    /// The neighbour towards the front; in a free slot, the next free one.
    before: u32,
    /// The neighbour towards the back.
    after: u32,
}

/// A first-in, first-out queue with removal from any position.
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
    /// Returns the number of waiters.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn node(&mut self, at: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(at as usize)
    }

    /// Appends a waiter. Returns `None` when all slot numbers are in use.
    pub(super) fn push(&mut self, value: T) -> Option<QueueSlot> {
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
        Some(QueueSlot(at))
    }

    /// Removes a waiter from any position.
    pub(super) fn remove(&mut self, seat: QueueSlot) -> Option<T> {
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

    /// Returns the waiter at the front.
    pub(super) fn front(&self) -> Option<&T> {
        self.nodes.get(self.front as usize)?.value.as_ref()
    }

    /// Removes the waiter at the front.
    pub(super) fn pop(&mut self) -> Option<(QueueSlot, T)> {
        let seat = QueueSlot(self.front);
        self.remove(seat).map(|value| (seat, value))
    }

    pub(super) fn get(&self, seat: QueueSlot) -> Option<&T> {
        self.nodes.get(seat.0 as usize)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, seat: QueueSlot) -> Option<&mut T> {
        self.node(seat.0)?.value.as_mut()
    }

    /// Iterates over the waiters from the front to the back.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let step = |node: &&Node<T>| self.nodes.get(node.after as usize);
        std::iter::successors(self.nodes.get(self.front as usize), step)
            .filter_map(|node| node.value.as_ref())
    }
}

#[cfg(test)]
mod tests;

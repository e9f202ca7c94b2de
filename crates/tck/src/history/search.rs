//! Depth-first search for an order, with a memory of the visited states.
//!
//! The next operation must have been called before the first answer among the unplaced operations. The search tries
//! operations with an answer first. It places operations with unknown outcomes only where nothing else fits.

use super::seen::Seen;
use super::taken::{OperationRef, Taken};
use super::{Model, OperationOf, Outcome};

/// The result of the search.
pub(super) enum Found<S> {
    /// An order with its number of operations, and the number of steps.
    Order { placed: usize, steps: u64 },
    /// No order exists. This is the longest prefix of one.
    None(Deepest<S>),
    /// The step limit was reached. `placed` is the greatest number of operations that had a place.
    TooLong { placed: usize },
}

/// The longest order that was found.
pub(super) struct Deepest<S> {
    /// Indices in the history, in this order.
    pub(super) placed: Vec<usize>,
    /// The state of the key after them.
    pub(super) state: S,
    /// The candidates for the next operation, none of which fits.
    pub(super) stuck: Vec<usize>,
}

/// Searches for an order of the operations called up to `until`. Operations answered later count as unanswered.
pub(super) fn run<M: Model>(
    model: &M,
    history: &[&OperationOf<M>],
    until: u64,
    most_steps: u64,
) -> Found<M::State> {
    Search::new(model, history, until).run(most_steps)
}

/// An operation that must have a place.
struct PlacedOperation {
    index: usize,
    call: u64,
    end: u64,
}

/// An operation that may have a place.
struct Maybe {
    index: usize,
    call: u64,
    /// Operations called after this instant are not placed before this one.
    end: u64,
}

/// One place in the order under construction.
struct Frame<S> {
    /// The operation at this place, or `None` at the start.
    took: Option<OperationRef>,
    state: S,
    /// The candidates for the next place.
    choices: Vec<(OperationRef, S)>,
    /// The first answer among the unplaced operations.
    first_end: u64,
    /// The last call among the placed operations.
    last_call: u64,
    /// The last call among the placed operations that must have a place.
    last_known: u64,
    /// Whether the choices include operations with unknown outcomes.
    with_maybes: bool,
}

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [&'a OperationOf<M>],
    known: Vec<PlacedOperation>,
    maybe: Vec<Maybe>,
    taken: Taken,
    seen: Seen<M::State>,
    steps: u64,
    /// The longest dead end: the number of mandatory operations in it, the whole path, and the state after it.
    deepest: (usize, Vec<OperationRef>, M::State),
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, history: &'a [&'a OperationOf<M>], until: u64) -> Self {
        let (mut known, mut maybe) = (Vec::new(), Vec::new());
        for (index, operation) in history.iter().enumerate().filter(|(_, o)| o.call <= until) {
            let (call, end) = (operation.call, operation.end);
            match operation.outcome {
                Outcome::Failed => {}
                Outcome::Ok(_) if end <= until => known.push(PlacedOperation { index, call, end }),
                Outcome::Ok(_) => maybe.push(Maybe { index, call, end: u64::MAX }),
                Outcome::Unknown => maybe.push(Maybe { index, call, end }),
            }
        }
        known.sort_by_key(|known| known.call);
        maybe.sort_by_key(|maybe| maybe.call);
        let taken = Taken::none(known.len(), maybe.len());
        let deepest = (0, Vec::new(), model.start());
        Self { model, history, known, maybe, taken, seen: Seen::new(), steps: 0, deepest }
    }

    fn run(mut self, most_steps: u64) -> Found<M::State> {
        if self.known.is_empty() {
            return Found::Order { placed: 0, steps: 0 };
        }
        let mut path = vec![self.frame(None, self.model.start(), (0, 0))];
        while let Some(frame) = path.last_mut() {
            if let Some((place, state)) = frame.choices.pop() {
                self.taken.put(place);
                if self.taken.count() == self.known.len() {
                    return Found::Order { placed: path.len(), steps: self.steps };
                }
                let calls = self.calls(frame, place);
                let over = self.maybe.iter().enumerate().filter(|(_, maybe)| maybe.end < calls.1);
                let maybes = self.taken.maybes(over.map(|(n, _)| n));
                if !self.seen.is_new(&self.taken, maybes, &state) {
                    self.taken.remove(place);
                    continue;
                }
                if self.steps == most_steps {
                    return Found::TooLong { placed: self.deepest.0.max(self.taken.count()) };
                }
                self.steps += 1;
                path.push(self.frame(Some(place), state, calls));
            } else if !frame.with_maybes {
                frame.with_maybes = true;
                frame.choices = self.maybes(frame);
            } else {
                self.remember(&path);
                if let Some(place) = path.pop().and_then(|frame| frame.took) {
                    self.taken.remove(place);
                }
            }
        }
        Found::None(self.longest())
    }

    /// Returns the mandatory operations that may come next, and the first answer among them.
    fn window(&self) -> (Vec<usize>, u64) {
        let (mut window, mut first_end) = (Vec::new(), u64::MAX);
        for (n, known) in self.known.iter().enumerate().skip(self.taken.first()) {
            if self.taken.has(OperationRef::Known(n)) {
                continue;
            }
            if known.call > first_end {
                break;
            }
            first_end = first_end.min(known.end);
            window.push(n);
        }
        (window, first_end)
    }

    /// Returns the last calls after placing `place` on top of a frame.
    fn calls(&self, frame: &Frame<M::State>, place: OperationRef) -> (u64, u64) {
        match place {
            OperationRef::Maybe(n) => (frame.last_call.max(self.maybe[n].call), frame.last_known),
            OperationRef::Known(n) => {
                let call = self.known[n].call;
                (frame.last_call.max(call), frame.last_known.max(call))
            }
        }
    }

    fn frame(&self, took: Option<OperationRef>, state: M::State, calls: (u64, u64)) -> Frame<M::State> {
        let (mut window, first_end) = self.window();
        let ((last_call, last_known), choices) = (calls, Vec::new());
        let mut frame = Frame { took, state, choices, first_end, last_call, last_known, with_maybes: false };
        let answered = |n: &usize| {
            let operation = self.history[self.known[*n].index];
            let Outcome::Ok(answer) = &operation.outcome else { return None };
            Some((operation, answer))
        };
        let open = |(operation, answer)| self.model.open(&frame.state, operation, answer);
        if !window.iter().filter_map(answered).all(open) {
            // A mandatory operation can no longer be placed, so this branch is a dead end.
            frame.with_maybes = true;
            return frame;
        }
        // The search tries the last choice first: the operation that was answered first.
        window.sort_by_key(|n| std::cmp::Reverse(self.known[*n].end));
        let mut next = Vec::new();
        for n in window {
            if let Some((operation, answer)) = answered(&n) {
                self.model.step(&frame.state, operation, Some(answer), &mut next);
                let looks = next.contains(&frame.state) && self.model.only_looks(operation, answer);
                if looks && !self.ends_one(&frame, operation.call) {
                    // Any valid order can also have this operation here, so no other choice needs a try.
                    frame.choices = vec![(OperationRef::Known(n), frame.state.clone())];
                    frame.with_maybes = true;
                    return frame;
                }
                frame.choices.extend(next.drain(..).map(|state| (OperationRef::Known(n), state)));
            }
        }
        frame
    }

    /// Returns whether such a call rules out an operation with an unknown outcome that may still come next.
    fn ends_one(&self, frame: &Frame<M::State>, call: u64) -> bool {
        let ended = |maybe: &Maybe| frame.last_call < maybe.end && maybe.end < call;
        self.maybe
            .iter()
            .enumerate()
            .any(|(n, maybe)| ended(maybe) && !self.taken.has(OperationRef::Maybe(n)))
    }

    /// Returns the operations with unknown outcomes that may come next. Those without an effect are left out.
    fn maybes(&self, frame: &Frame<M::State>) -> Vec<(OperationRef, M::State)> {
        let (mut choices, mut next) = (Vec::new(), Vec::new());
        for (n, maybe) in self.maybe.iter().enumerate().rev() {
            let place = OperationRef::Maybe(n);
            let in_time = maybe.call < frame.first_end && frame.last_call < maybe.end;
            if in_time && !self.taken.has(place) {
                self.model.step(&frame.state, self.history[maybe.index], None, &mut next);
                let changed = next.drain(..).filter(|next| *next != frame.state);
                choices.extend(changed.map(|next| (place, next)));
            }
        }
        choices
    }

    fn remember(&mut self, path: &[Frame<M::State>]) {
        let count = self.taken.count();
        if let Some(last) = path.last().filter(|_| count > self.deepest.0) {
            let places = path.iter().filter_map(|frame| frame.took).collect();
            self.deepest = (count, places, last.state.clone());
        }
    }

    fn longest(mut self) -> Deepest<M::State> {
        let (_, places, state) = self.deepest.clone();
        self.taken = Taken::none(self.known.len(), self.maybe.len());
        places.iter().for_each(|place| self.taken.put(*place));
        let index = |place: &OperationRef| match place {
            OperationRef::Known(n) => self.known[*n].index,
            OperationRef::Maybe(n) => self.maybe[*n].index,
        };
        let stuck = self.window().0.into_iter().map(|n| self.known[n].index).collect();
        Deepest { placed: places.iter().map(index).collect(), state, stuck }
    }
}

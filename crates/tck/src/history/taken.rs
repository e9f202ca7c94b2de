//! Bit sets of the placed operations. The key derived from them grows with the number of overlapping operations, not
//! with the length of the history.

/// The set of placed operations.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    /// The mandatory operations, in the order of their calls.
    known: Bits,
    /// The optional operations.
    maybe: Bits,
    /// The first mandatory operation that is not placed.
    first: usize,
    /// The number of placed mandatory operations.
    count: usize,
}

/// One operation, by its index within its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationRef {
    Known(usize),
    Maybe(usize),
}

impl Taken {
    pub(super) fn none(known: usize, maybe: usize) -> Self {
        Self { known: Bits::none(known), maybe: Bits::none(maybe), first: 0, count: 0 }
    }

    pub(super) fn has(&self, place: OperationRef) -> bool {
        match place {
            OperationRef::Known(n) => self.known.has(n),
            OperationRef::Maybe(n) => self.maybe.has(n),
        }
    }

    pub(super) fn put(&mut self, place: OperationRef) {
        match place {
            OperationRef::Maybe(n) => self.maybe.flip(n),
            OperationRef::Known(n) => {
                self.known.flip(n);
                self.count += 1;
                while self.known.has(self.first) {
                    self.first += 1;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, place: OperationRef) {
        match place {
            OperationRef::Maybe(n) => self.maybe.flip(n),
            OperationRef::Known(n) => {
                self.known.flip(n);
                self.count -= 1;
                self.first = self.first.min(n);
            }
        }
    }

    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the placed optional operations, except those in `but`.
    pub(super) fn maybes(&self, but: impl Iterator<Item = usize>) -> Box<[u64]> {
        let mut maybes = self.maybe.clone();
        for n in but.filter(|n| self.maybe.has(*n)) {
            maybes.flip(n);
        }
        maybes.0.into_boxed_slice()
    }

    /// Returns a compact key of the placed mandatory operations. It omits the full words before the first gap and
    /// everything after the last set bit.
    pub(super) fn known(&self) -> Box<[u64]> {
        let full = self.first / WORD;
        let mut key = vec![full as u64];
        let mut missing = self.count - full * WORD;
        for word in self.known.0.get(full..).unwrap_or_default() {
            if missing == 0 {
                break;
            }
            missing -= word.count_ones() as usize;
            key.push(*word);
        }
        key.into_boxed_slice()
    }
}

const WORD: usize = 64;

#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn none(length: usize) -> Self {
        Self(vec![0; length.div_ceil(WORD)])
    }

    fn has(&self, n: usize) -> bool {
        self.0.get(n / WORD).is_some_and(|word| word >> (n % WORD) & 1 == 1)
    }

    fn flip(&mut self, n: usize) {
        if let Some(word) = self.0.get_mut(n / WORD) {
            *word ^= 1 << (n % WORD);
        }
    }
}

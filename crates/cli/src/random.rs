//! A small generator (SplitMix64): enough to spread load and to choose victims, and no good for secrets.

use std::time::Duration;

/// The generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator that differs every time.
    pub(crate) fn fresh() -> Self {
        let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
        Self(high ^ low.rotate_left(32))
    }

    /// A generator that is the same every time: its first number is a fingerprint of the seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(end).unwrap_or(0)).unwrap_or(0)
    }

    /// A time between the two.
    pub(crate) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let room = longest.saturating_sub(shortest).as_micros();
        let extra = u128::from(self.next()).checked_rem(room).unwrap_or(0);
        shortest + Duration::from_micros(u64::try_from(extra).unwrap_or(0))
    }
}

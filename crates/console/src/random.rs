//! Random numbers (SplitMix64) for load and fault injection. They are predictable, so never use them for secrets.

use std::time::Duration;

/// The generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with a fresh seed.
    #[must_use]
    pub fn fresh() -> Self {
        let (high, low) = uuid::Uuid::now_v7().as_u64_pair();
        Self(high ^ low.rotate_left(32))
    }

    /// Creates a generator with a fixed seed. Its first number is a hash of the seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "an endless generator needs no Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.next().checked_rem(end).unwrap_or(0)).unwrap_or(0)
    }

    /// Returns a duration between the two.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let room = longest.saturating_sub(shortest).as_micros();
        let extra = u128::from(self.next()).checked_rem(room).unwrap_or(0);
        shortest + Duration::from_micros(u64::try_from(extra).unwrap_or(0))
    }
}

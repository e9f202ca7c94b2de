//! Zipf-distributed keys, as in real loads: a few are frequent, most are rare. Every run draws the same
//! keys.

use std::sync::Arc;

/// The number of draws before they repeat.
const DRAWS: usize = 1 << 15;

/// Draws of the numbers below `keys`. The n-th number is drawn n times as rarely as the first.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The number of keys.
    pub keys: u32,
    /// The drawn numbers.
    pub draws: Arc<[u32]>,
}

impl Zipf {
    /// Draws the numbers.
    #[must_use]
    pub fn new(keys: u32) -> Self {
        let mut sum = 0.0;
        let weight = |number: u32| {
            sum += 1.0 / f64::from(number + 1);
            sum
        };
        let below: Vec<f64> = (0..keys).map(weight).collect();
        let mut state = 0;
        let draw = |_| {
            let point = fraction(&mut state) * sum;
            let number = below.partition_point(|upper| *upper <= point);
            u32::try_from(number).unwrap_or(u32::MAX).min(keys.saturating_sub(1))
        };
        Self { keys, draws: (0..DRAWS).map(draw).collect() }
    }
}

/// Returns a number from 0 up to, but excluding, 1 (SplitMix64).
fn fraction(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_comes_half_as_often_as_the_first() {
        let zipf = Zipf::new(10_000);
        let count = |wanted| zipf.draws.iter().filter(|number| **number == wanted).count() as f64;
        assert!((0.08..0.13).contains(&(count(0) / DRAWS as f64)));
        assert!((0.4..0.6).contains(&(count(1) / count(0))));
        assert!(zipf.draws.iter().all(|number| *number < 10_000));
        assert_eq!(zipf.draws, Zipf::new(10_000).draws);
        assert!(Zipf::new(1).draws.iter().all(|number| *number == 0));
    }
}

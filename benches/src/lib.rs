//! Micro benchmarks of the pure parts, and the place where comparisons with other libraries go.
//!
//! The workloads on stores are in the command line (`tidelock bench store`), so that users can repeat them. What needs
//! dependencies that no library should bring along goes here: [`lock`] holds other people's locks, under the loads that
//! `tidelock bench lock` runs. There is no framework: [`measure`] repeats a call in rounds and returns the median.

pub mod lock;

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds of which the median is taken.
const ROUNDS: usize = 9;
/// About how long one round takes.
const ROUND: Duration = Duration::from_millis(100);

/// Repeats a call and returns how long it takes: the median of several rounds, in nanoseconds.
pub fn measure<T>(mut call: impl FnMut() -> T) -> f64 {
    let calls = calibrate(&mut call);
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            for _ in 0..calls {
                black_box(call());
            }
            started.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds.get(ROUNDS / 2).copied().unwrap_or_default()
}

/// How many calls fill a round.
fn calibrate<T>(call: &mut impl FnMut() -> T) -> u32 {
    let mut calls: u32 = 1;
    loop {
        let started = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        if started.elapsed() >= ROUND || calls >= 1 << 30 {
            return calls;
        }
        calls *= 2;
    }
}

//! Loads and helpers of the benchmarks, for the program `tidelock-bench` and the micro benchmarks.
//!
//! [`lock`] puts other libraries' locks under the same loads as Tidelock's. [`measure`] repeats a call in rounds and returns
//! the median, without a framework.

pub mod lock;

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rounds of which the median is taken.
const ROUNDS: usize = 9;
/// About how long one round takes.
const ROUND: Duration = Duration::from_millis(100);

/// Repeats a call, and returns the median nanoseconds of several rounds.
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

/// Returns the number of calls that fill a round.
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

//! The cost of an uncontended lock: `cargo bench -p tidelock-benches --bench lock`. The `lock` suite of `tidelock-bench`
//! is the whole comparison.
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::time::Duration;

use tidelock_benches::lock::{Failed, HashMap, Keyed, Mutexes, Ours, Pool, alone};
use tokio::runtime::Runtime;

/// The number of rounds in which all candidates take turns, so that a noisy moment hits all of them or is outvoted.
const ROUNDS: usize = 9;
const SLICE: Duration = Duration::from_millis(100);

fn main() -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let round = [
            one::<Ours>(&runtime)?,
            one::<Mutexes>(&runtime)?,
            one::<Pool>(&runtime)?,
            one::<HashMap>(&runtime)?,
        ];
        rounds.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    let names = ["tidelock", "tokio::sync::Mutex", "lockable::LockPool", "lockable::LockableHashMap"];
    for (name, mut all) in names.into_iter().zip(rounds) {
        all.sort_by(f64::total_cmp);
        println!("{name:<28} {:>8.1} ns", all.get(ROUNDS / 2).copied().unwrap_or_default());
    }
    Ok(())
}

fn one<K: Keyed>(runtime: &Runtime) -> Result<f64, Failed> {
    Ok(runtime.block_on(alone::<K>(SLICE))?.cpu_ns())
}

//! `cargo xtask soak`: runs the long variants of the tests, controlled by environment variables that the tests read.
//!
//! - Ignored tests with `soak` in their names run for `TIDELOCK_SOAK_MINUTES`.
//! - Tests that kill processes (`killed` in their names) do so `TIDELOCK_ROUNDS` times, from `TIDELOCK_SEED` on, or again
//!   and again for `TIDELOCK_KILL_SECONDS`. Those that cut the power (`killed_by_power_cuts`) do so for as many seeds.
//! - Processes under stress (`stress` in the names of their tests) work for `TIDELOCK_STRESS_SECONDS`: two minutes each,
//!   where the test command gives them 20 seconds.
//! - Two releases of one program (`restart_in_any_order` in the names of their cases) restart for `TIDELOCK_ROLLING_SECONDS`.
//! - Services are simulated under random faults (`cargo xtask sim`), from a fresh seed on.
//! - Clients whose histories are recorded (`are_linearizable` or `are_serializable` in the names of their tests) ask
//!   `TIDELOCK_OPERATIONS` times each.
//! - Processes crash at the points of a scenario (`crash_point` in the names of its cases), also at `TIDELOCK_CRASH_PAIRS`
//!   random pairs of points.
//! - The differential runner plays `TIDELOCK_SEQUENCES` sequences from `TIDELOCK_SEED` on.
//! - The tests of the PostgreSQL backend run on every supported major version.
//! - shuttle tries `TIDELOCK_SCHEDULES` schedules of the locks.
//!
//! A failure prints its seed, and the command that replays it.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::postgres::{Database, versions};
use crate::{Missing, checked, run, sim};

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The duration of each soak test, in minutes.
    pub(crate) minutes: u64,
    /// The number of seeds of the differential runner.
    pub(crate) seeds: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { minutes: 10, seeds: 8 }
    }
}

impl Options {
    /// Reads `--minutes N` and `--seeds N`.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(name) = args.next() {
            let target = match name.as_str() {
                "--minutes" => &mut options.minutes,
                "--seeds" => &mut options.seeds,
                other => bail!("`soak` has no option {other:?}"),
            };
            let value = args.next().with_context(|| format!("{name} needs a number"))?;
            *target = value.parse().with_context(|| format!("{name} needs a number, found {value:?}"))?;
        }
        Ok(options)
    }
}

/// The number of random sequences per seed and backend.
const SEQUENCES: u64 = 2_000;
/// The number of processes to kill for each requested minute.
const KILLS_PER_MINUTE: u64 = 100;
/// The duration of each test that kills processes repeatedly.
const KILL_SECONDS: u64 = 20;
/// The duration of each stress scenario. It is limited, because acknowledged writes are kept in memory until they are verified.
const STRESS_SECONDS: u64 = 120;
/// The duration for which two releases restart concurrently.
const ROLLING_SECONDS: u64 = 60;
/// The number of operations of each client whose history is recorded.
const OPERATIONS: u64 = 1_000;

/// The number of random pairs of crashes in each scenario.
const CRASH_PAIRS: u64 = 500;

/// The number of schedules that shuttle tries in each test, for each requested minute.
const SCHEDULES_PER_MINUTE: u64 = 500_000;

/// Runs the soak tests, the kills, the stress, and then the differential runner, with fresh seeds.
pub(crate) fn run(options: &Options) -> Result<()> {
    let database = Database::ready()?;
    let minutes = options.minutes;
    run::step(&format!("soak tests, {minutes} minutes each"), || {
        let mut tests = run::cargo(&["test", "--release", "--workspace", "--", "--ignored", "soak"]);
        run::run(database.offer(&mut tests).env("TIDELOCK_SOAK_MINUTES", minutes.to_string()))
    })?;
    let first = fresh_seed();
    run::step(&format!("simulation, {minutes} minutes from seed {first}"), || {
        sim::run(&sim::Options::lasting(first, minutes))
    })?;
    let kills = minutes.saturating_mul(KILLS_PER_MINUTE);
    run::step(&format!("{kills} kills from seed {first}"), || {
        let amounts = [("TIDELOCK_ROUNDS", kills), ("TIDELOCK_KILL_SECONDS", KILL_SECONDS)];
        seeded(&database, "killed", first, &amounts)
    })?;
    run::step(&format!("stress, {STRESS_SECONDS} s for each scenario"), || {
        seeded(&database, "stress", first, &[("TIDELOCK_STRESS_SECONDS", STRESS_SECONDS)])
    })?;
    run::step(&format!("rolling releases, {ROLLING_SECONDS} s on each store"), || {
        seeded(&database, "restart_in_any_order", first, &[("TIDELOCK_ROLLING_SECONDS", ROLLING_SECONDS)])
    })?;
    run::step(&format!("crash points, {CRASH_PAIRS} pairs for each scenario"), || {
        seeded(&database, "crash_point", first, &[("TIDELOCK_CRASH_PAIRS", CRASH_PAIRS)])
    })?;
    for seed in (0..options.seeds).map(|i| first.wrapping_add(i)) {
        run::step(&format!("differential, seed {seed}"), || {
            seeded(&database, "differential", seed, &[("TIDELOCK_SEQUENCES", SEQUENCES)])
        })?;
        run::step(&format!("histories, seed {seed}"), || {
            seeded(&database, "are_linearizable", seed, &[("TIDELOCK_OPERATIONS", OPERATIONS)])
        })?;
        run::step(&format!("transactions, seed {seed}"), || {
            seeded(&database, "are_serializable", seed, &[("TIDELOCK_OPERATIONS", OPERATIONS)])
        })?;
    }
    run::step("PostgreSQL 14 to 18", || versions::run(&versions::ALL, &["--release"], Missing::Skips))?;
    let schedules = minutes.saturating_mul(SCHEDULES_PER_MINUTE);
    run::step(&format!("{schedules} schedules of each test of the locks"), || {
        if checked::run(Some(schedules), |_| {})? {
            return Ok(());
        }
        bail!("a model checker found a fault; it printed the schedule that shows it")
    })?;
    println!("soak: nothing failed");
    Ok(())
}

/// Runs the tests whose names contain `filter` with a seed and amounts.
fn seeded(database: &Database, filter: &str, seed: u64, amounts: &[(&str, u64)]) -> Result<()> {
    let mut tests = run::cargo(&["test", "--release", "--workspace", filter]);
    tests.env("TIDELOCK_SEED", seed.to_string());
    let mut replay = format!("TIDELOCK_SEED={seed}");
    for (name, amount) in amounts {
        tests.env(name, amount.to_string());
        replay += &format!(" {name}={amount}");
    }
    run::run(database.offer(&mut tests)).with_context(|| {
        format!("seed {seed} failed; replay it with {replay} cargo test --release --workspace {filter}")
    })
}

/// Returns a seed that no earlier run had.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

//! `cargo xtask ha`: injects faults into a highly available PostgreSQL cluster under load, and checks a ledger.
//!
//! Patroni and etcd run three servers. A load writes through a list of hosts, through HAProxy and through PgBouncer in
//! transaction mode. Each round injects one fault, waits for the cluster and the load to recover, and compares the load's
//! ledger with the store:
//!
//! - *lost*: a write was acknowledged and is not there. Never with synchronous replication; counted without it.
//! - *doubled*: a write is there twice. Never.
//! - *repeated* fences and positions: the same number was given out for two things. Never.
//!
//! All processes and files are in a directory that is removed when this program ends, even if it is killed. Linux only.

mod cluster;
mod fault;
mod home;
mod load;
mod network;
mod patroni;
mod report;
mod tools;
mod ways;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use self::cluster::Cluster;
use self::fault::Fault;
use self::load::Load;
use self::patroni::{Mode, Timing};
use self::report::Round;
use self::tools::Tools;
use crate::{Missing, run};

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    minutes: u64,
    modes: Vec<Mode>,
    only: Option<Fault>,
    seed: Option<u64>,
    timing: Timing,
    postgres: Option<u32>,
    missing: Missing,
}

impl Default for Options {
    fn default() -> Self {
        let modes = vec![Mode::Sync, Mode::Async];
        let (timing, missing) = (Timing::default(), Missing::default());
        Self { minutes: 30, modes, only: None, seed: None, timing, postgres: None, missing }
    }
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--minutes" => options.minutes = number(arg, value()?)?,
                "--seed" => options.seed = Some(number(arg, value()?)?),
                "--postgres" => options.postgres = Some(number(arg, value()?)?),
                "--patroni-defaults" => options.timing = Timing::Defaults,
                "--require" => options.missing = Missing::Fails,
                "--mode" => options.modes = modes(value()?)?,
                "--only" => options.only = Some(fault(value()?)?),
                other => bail!("`ha` has no option {other:?}"),
            }
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{name} needs a number, found {text:?}"))
}

fn modes(text: &str) -> Result<Vec<Mode>> {
    match text {
        "sync" => Ok(vec![Mode::Sync]),
        "async" => Ok(vec![Mode::Async]),
        "both" => Ok(vec![Mode::Sync, Mode::Async]),
        other => bail!("--mode is sync, async or both, found {other:?}"),
    }
}

fn fault(text: &str) -> Result<Fault> {
    let names = || Fault::ALL.map(Fault::name).join(", ");
    let found = Fault::ALL.into_iter().find(|fault| fault.name() == text);
    found.with_context(|| format!("--only is one of {}, found {text:?}", names()))
}

/// The time for which the load runs before a fault, and after the cluster is healthy again.
const CALM: Duration = Duration::from_secs(3);

/// Runs the rounds, prints a table, and fails when a guarantee was violated.
pub(crate) fn run(options: &Options) -> Result<()> {
    let tools = match Tools::ready(options.postgres) {
        Ok(tools) => tools,
        Err(reason) => return options.missing.because(&format!("the cluster was not tested: {reason:#}")),
    };
    let program = load_program()?;
    let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seed = options.seed.unwrap_or_else(fresh);
    println!("seed {seed}; {}", options.timing.describe());
    let mut rounds = Vec::new();
    let share = Duration::from_secs(options.minutes * 60) / u32::try_from(options.modes.len())?.max(1);
    for mode in &options.modes {
        let outcome = play(options, &tools, &program, *mode, share, seed, &mut rounds);
        if let Err(error) = outcome {
            println!("{}", report::table(&rounds));
            return Err(
                error.context(format!("the {} cluster failed; replay with --seed {seed}", mode.name()))
            );
        }
    }
    let file = run::root().join("target").join("ha.json");
    std::fs::write(&file, report::json(&rounds, options.timing.describe()))?;
    println!("\n{}the rounds are in {}", report::table(&rounds), file.display());
    let broken = rounds.iter().filter(|round| !round.broken().is_empty()).count();
    if broken > 0 {
        bail!("a promise was broken in {broken} of {} rounds; replay with --seed {seed}", rounds.len());
    }
    Ok(())
}

/// Builds the load generator. It builds only one package, because the rest of the workspace is not needed.
fn load_program() -> Result<PathBuf> {
    let mut build =
        run::cargo(&["build", "--locked", "--package", "tidelock-postgres", "--example", "ha_load"]);
    let (said, _) = run::capture(build.args(["--message-format", "json-render-diagnostics"]))?;
    said.lines().filter_map(run::executable).next_back().context("cargo has built no load")
}

/// Runs rounds on one cluster for the given time: every fault in turn, in an order that the seed determines.
fn play(
    options: &Options,
    tools: &Tools,
    program: &Path,
    mode: Mode,
    share: Duration,
    seed: u64,
    rounds: &mut Vec<Round>,
) -> Result<()> {
    let begun = Instant::now();
    let mut cluster = Cluster::start(tools, mode, options.timing)?;
    println!("{}: three servers run after {}", mode.name(), run::seconds(begun.elapsed()));
    let begun = Instant::now();
    let mut random = seed;
    let mut left: Vec<Fault> = Vec::new();
    while begun.elapsed() < share {
        if left.is_empty() {
            left = options.only.map_or_else(|| shuffled(&mut random), |only| vec![only]);
        }
        let Some(fault) = left.pop() else { bail!("there is no fault") };
        let round = play_round(&mut cluster, program, fault, next(&mut random))
            .with_context(|| format!("round {} ({})", rounds.len() + 1, fault.name()))?;
        println!("{:3} {}", rounds.len() + 1, round.line());
        rounds.push(round);
    }
    Ok(())
}

/// Runs one round: a fault under load.
fn play_round(cluster: &mut Cluster, program: &Path, fault: Fault, seed: u64) -> Result<Round> {
    let begun = Instant::now();
    cluster.wait_until_healthy()?;
    let schema = format!("ha_{}", seed % 1_000_000);
    let mut load = Load::start(program, cluster, &schema, seed)?;
    std::thread::sleep(CALM);
    let node = fault.inject(cluster)?;
    if let Some(lasts) = fault.lasts() {
        std::thread::sleep(lasts);
    } else if cluster.wait_for_another(node).is_some() {
        load.promoted()?;
        std::thread::sleep(CALM);
    } else {
        println!("    no other primary within {:?}", cluster.timing.failover_limit());
    }
    fault.heal(cluster, node)?;
    cluster.wait_until_healthy()?;
    let stuck = load.flows();
    std::thread::sleep(CALM);
    let numbers = load.end()?;
    Ok(Round { mode: cluster.mode, fault, seed, took: begun.elapsed(), stuck, numbers })
}

/// Returns all faults, in an order that the seed determines.
fn shuffled(random: &mut u64) -> Vec<Fault> {
    let mut faults: Vec<(u64, Fault)> = Fault::ALL.into_iter().map(|fault| (next(random), fault)).collect();
    faults.sort_by_key(|(number, _)| *number);
    faults.into_iter().map(|(_, fault)| fault).collect()
}

/// Returns the next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{Fault, Mode, Options, Timing, shuffled};

    #[test]
    fn options_are_read() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), Options::default());
        let found = parse("--minutes 5 --mode async --only stop-both --seed 9 --patroni-defaults").unwrap();
        assert_eq!((found.minutes, found.modes, found.only), (5, vec![Mode::Async], Some(Fault::StopBoth)));
        assert_eq!((found.seed, found.timing), (Some(9), Timing::Defaults));
        assert!(parse("--only nothing").unwrap_err().to_string().contains("kill-postgres"));
        assert!(parse("--mode fast").is_err() && parse("--minutes").is_err() && parse("--fast").is_err());
    }

    #[test]
    fn a_seed_decides_the_order_and_leaves_no_fault_out() {
        let order = |mut seed| shuffled(&mut seed);
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        assert!(Fault::ALL.iter().all(|fault| order(7).contains(fault)));
    }
}

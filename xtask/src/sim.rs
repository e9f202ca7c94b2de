//! `cargo xtask sim`: simulates services under random faults, with many seeds on every core.
//!
//! The workload is the ladder of guarantees of `tidelock-sim`. A failing seed is reduced to the faults that it needs, and its
//! trace is printed. `target/sim.json` has the result.

use anyhow::{Context as _, Result, bail};

use crate::run;

/// The options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The number of seeds.
    seeds: u64,
    /// The first seed.
    first: u64,
    /// The only seed, whose trace is printed.
    seed: Option<u64>,
    /// The duration after which no further seed starts.
    minutes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seeds: 10_000, first: 0, seed: None, minutes: None }
    }
}

impl Options {
    /// Runs seeds for a time, from one on.
    pub(crate) fn lasting(first: u64, minutes: u64) -> Self {
        Self { seeds: u64::MAX - first, first, seed: None, minutes: Some(minutes) }
    }

    /// Reads `--seeds N`, `--first N`, `--seed N` and `--minutes N`.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(name) = args.next() {
            let value = args.next().with_context(|| format!("{name} needs a number"));
            let number = || -> Result<u64> {
                let value = value?;
                value.parse().with_context(|| format!("{name} needs a number, found {value:?}"))
            };
            match name.as_str() {
                "--seeds" => options.seeds = number()?,
                "--first" => options.first = number()?,
                "--seed" => options.seed = Some(number()?),
                "--minutes" => options.minutes = Some(number()?),
                other => bail!("`sim` has no option {other:?}"),
            }
        }
        Ok(options)
    }
}

/// Builds the simulation in release mode and runs the seeds.
pub(crate) fn run(options: &Options) -> Result<()> {
    let result = run::root().join("target/sim.json");
    let program =
        ["run", "--quiet", "--release", "--locked", "-p", "tidelock-sim", "--example", "seeds", "--"];
    let mut command = run::cargo(&program);
    command.args(["--seeds", &options.seeds.to_string(), "--first", &options.first.to_string()]);
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(minutes) = options.minutes {
        command.args(["--minutes", &minutes.to_string()]);
    }
    run::run(command.arg("--json").arg(&result))
}

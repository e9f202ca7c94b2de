//! Runs the ladder workload with many seeds: `cargo run --release -p tidelock-sim --example seeds -- --seeds 10000`.
//!
//! `--seed S` runs one seed and prints its trace; `--minutes M` ends after a time; `--json FILE` writes the result.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program prints its progress and results")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tidelock_sim::{Seeds, Summary, ladder, trace_of};

struct Options {
    first: u64,
    seeds: u64,
    seed: Option<u64>,
    limit: Option<Duration>,
    threads: Option<usize>,
    json: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { first: 0, seeds: 1_000, seed: None, limit: None, threads: None, json: None };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--first" => options.first = number()?,
            "--seeds" => options.seeds = number()?,
            "--seed" => options.seed = Some(number()?),
            "--minutes" => options.limit = Some(Duration::from_secs(number()? * 60)),
            "--threads" => options.threads = usize::try_from(number()?).ok(),
            "--json" => options.json = Some(value),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.seed {
        let (failure, trace) = trace_of(seed, ladder::scenario);
        trace.iter().for_each(|line| println!("{line}"));
        if failure.is_none() {
            println!("seed {seed} passes");
            return ExitCode::SUCCESS;
        }
    }
    let range = options
        .seed
        .map_or(options.first..options.first.saturating_add(options.seeds), |seed| seed..seed + 1);
    let mut seeds = Seeds::new(range);
    if let Some(limit) = options.limit {
        seeds = seeds.limit(limit);
    }
    if let Some(threads) = options.threads {
        seeds = seeds.threads(threads);
    }
    let (started, shown) = (Instant::now(), AtomicU64::new(0));
    let summary = seeds.run_with(ladder::scenario, |done| {
        let second = started.elapsed().as_secs();
        if shown.fetch_max(second, Ordering::Relaxed) < second && second.is_multiple_of(10) {
            eprintln!("{done} seeds, {} a second", done / second.max(1));
        }
    });
    print(&summary);
    if let Some(file) = &options.json
        && let Err(error) = std::fs::write(file, format!("{:#}\n", result(&summary)))
    {
        eprintln!("error: cannot write {file}: {error}");
        return ExitCode::FAILURE;
    }
    if summary.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(summary: &Summary) {
    let Summary { seeds, turns, simulated, took, faults, failure, .. } = summary;
    println!(
        "{seeds} seeds in {took:.1?}, {:.0} a second; {turns} turns, {faults} faults, {:.0} simulated hours",
        per_second(summary),
        simulated.as_secs_f64() / 3_600.0
    );
    match failure {
        None => println!("no failure"),
        Some(failure) => println!("\n{failure}"),
    }
}

fn per_second(summary: &Summary) -> f64 {
    let seeds = u32::try_from(summary.seeds).unwrap_or(u32::MAX);
    f64::from(seeds) / summary.took.as_secs_f64().max(1e-9)
}

fn result(summary: &Summary) -> serde_json::Value {
    let failure = summary.failure.as_ref().map(|failure| {
        let faults: Vec<String> = failure.faults.iter().map(ToString::to_string).collect();
        json!({ "seed": failure.seed, "message": failure.message, "faults": faults, "planned": failure.planned,
            "trace": failure.trace })
    });
    json!({
        "seeds": summary.seeds,
        "seconds": summary.took.as_secs_f64(),
        "seeds_per_second": per_second(summary),
        "turns": summary.turns,
        "faults": summary.faults,
        "simulated_seconds": summary.simulated.as_secs(),
        "failure": failure,
    })
}

//! `store --processes N`: several processes commit to one store, and every acknowledged commit is accounted for.

use std::collections::HashMap;
use std::process::ExitCode;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use tidelock::prelude::*;
use tidelock_console::address::Address;
use tidelock_console::bench::machine::{Machine, command_line};
use tidelock_console::bench::report::rate;
use tidelock_console::bench::statistics::ratio;
use tidelock_console::bench::until_interrupted;
use tidelock_console::output::{self, Format, Tone};
use tidelock_console::progress::Progress;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::plan::Plan;
use super::producer::{ProcessResult, READY};
use crate::args::StoreArgs;
use crate::suite::server::BenchServer;
use crate::suite::work_files::WorkFiles;

const PAGE: usize = 5_000;

/// Measures processes on one SQLite file. Fails when a commit is lost or a caller got an error.
pub(crate) async fn run_on_file(options: &StoreArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let files = WorkFiles::create(options.path.as_deref())?;
    let result = measure(&plan, &Address::File(files.store().to_owned())).await?;
    conclude(options, "sqlite", &plan, Machine::here(files.directory().path()), result)
}

/// Measures processes on one schema of a PostgreSQL server, and drops it. Fails as on a file.
pub(crate) async fn run_on_server(options: &StoreArgs) -> Result<ExitCode> {
    let plan = Plan::of(options);
    let mut server = BenchServer::open(options.url.as_deref(), options.path.as_deref()).await?;
    let schema = server.schema("bench_tidelock");
    let address = Address::Schema { url: server.url().clone(), schema };
    server.announce();
    let result = until_interrupted(measure(&plan, &address)).await;
    let machine = server.machine();
    server.close().await;
    conclude(options, "postgres", &plan, machine, result?)
}

/// Runs all processes, and verifies the log.
async fn measure(plan: &Plan, address: &Address) -> Result<(Vec<ProcessResult>, Verified)> {
    let progress = Progress::new(2);
    progress.say(format!("{} processes commit", plan.processes));
    // Creates the store first, so that migrations are not measured.
    address.open().await?.close().await;
    let processes = run_processes(plan, address).await?;
    progress.done(1);
    progress.say("counting the log");
    let store = address.open_existing().await?;
    let verified = verify(&*store.shared()).await;
    store.close().await;
    Ok((processes, verified?))
}

fn conclude(
    options: &StoreArgs,
    store: &'static str,
    plan: &Plan,
    machine: Machine,
    (processes, log): (Vec<ProcessResult>, Verified),
) -> Result<ExitCode> {
    let report = Report::of(store, plan, machine, processes, log);
    report.print(options.output)?;
    Ok(if report.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A child process and its pipes.
struct Started {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Started {
    fn new(plan: &Plan, address: &Address, number: u32) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = address
            .hand_over(command.arg("producer"))
            .args(["--process", &number.to_string(), "--producers", &plan.producers.to_string()])
            .args(["--seconds", &Duration::from_secs_f64(plan.pace.seconds).as_secs_f64().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a second process of this program")?;
        let input = child.stdin.take().context("cannot talk to the child: it has no standard input")?;
        let output = BufReader::new(
            child.stdout.take().context("cannot talk to the child: it has no standard output")?,
        )
        .lines();
        Ok(Self { child, input, output })
    }

    async fn line(&mut self) -> Result<String> {
        self.output
            .next_line()
            .await?
            .context("cannot measure: a child process exited early; see its message above")
    }
}

/// Starts all processes, releases them together, and collects their results.
async fn run_processes(plan: &Plan, address: &Address) -> Result<Vec<ProcessResult>> {
    let mut started = Vec::new();
    for number in 1..=plan.processes {
        started.push(Started::new(plan, address, number)?);
    }
    for process in &mut started {
        if process.line().await? != READY {
            bail!("cannot measure: a child process did not open the store");
        }
    }
    for process in &mut started {
        process.input.write_all(b"go\n").await?;
    }
    let mut results = Vec::new();
    for process in &mut started {
        results.push(serde_json::from_str(&process.line().await?)?);
        process.child.wait().await?;
    }
    Ok(results)
}

/// The content of the log.
#[derive(Debug, Default, Serialize)]
struct Verified {
    /// Events in the log.
    events: u64,
    /// Streams in the log.
    streams: usize,
    /// Streams whose versions have a gap or are out of order.
    broken_streams: usize,
    /// Positions that do not increase.
    broken_positions: u64,
}

async fn verify(store: &dyn Store) -> Result<Verified> {
    let mut verified = Verified::default();
    // The next expected version of each stream, or none after a wrong one.
    let mut expected: HashMap<Key, Option<StreamVersion>> = HashMap::new();
    let mut last = Position(0);
    loop {
        let page = store.read_log(LogQuery::after(last, PAGE)).await?;
        for event in page.events {
            verified.events += 1;
            verified.broken_positions += u64::from(event.position <= last);
            last = event.position;
            let next = expected.entry(event.stream).or_insert(Some(StreamVersion(0)));
            *next = next.filter(|version| *version == event.version).map(StreamVersion::next);
        }
        if page.end {
            break;
        }
    }
    verified.streams = expected.len();
    verified.broken_streams = expected.values().filter(|next| next.is_none()).count();
    Ok(verified)
}

#[derive(Debug, Serialize)]
struct Report {
    command: String,
    store: &'static str,
    params: Plan,
    machine: Machine,
    processes: Vec<ProcessResult>,
    total_per_s: f64,
    acknowledged: u64,
    log: Verified,
    lost: u64,
    unasked: u64,
    errors: u64,
    well: bool,
}

impl Report {
    fn of(
        store: &'static str,
        plan: &Plan,
        machine: Machine,
        processes: Vec<ProcessResult>,
        log: Verified,
    ) -> Self {
        let acknowledged = processes.iter().map(|p| p.commits).sum::<u64>();
        let errors = processes.iter().flat_map(|p| p.errors.values()).sum();
        let whole = acknowledged == log.events && log.broken_streams == 0 && log.broken_positions == 0;
        Self {
            command: command_line(),
            store,
            params: plan.clone(),
            machine,
            total_per_s: processes.iter().map(|p| p.per_s).sum(),
            lost: acknowledged.saturating_sub(log.events),
            unasked: log.events.saturating_sub(acknowledged),
            well: whole && errors == 0,
            processes,
            acknowledged,
            log,
            errors,
        }
    }

    fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        output::say(format_args!("{} · {}", output::escaped(&self.command), self.machine))?;
        let header = ["process", "commits", "per second", "p50 µs", "p99 µs", "per flush", "errors"];
        let mut table = output::table(&header, &[1, 2, 3, 4, 5]);
        for process in &self.processes {
            table.add_row(cells(process));
        }
        output::say(table)?;
        let Self { lost, unasked, .. } = self;
        output::say(format_args!(
            "acknowledged {}, in the log {}, lost {lost}, unasked {unasked}; {} of {} streams broken",
            output::number(self.acknowledged),
            output::number(self.log.events),
            self.log.broken_streams,
            output::number(self.log.streams as u64),
        ))?;
        output::say(format_args!("{} commits per second in all", rate(self.total_per_s)))?;
        let (verdict, tone) =
            if self.well { ("✓ nothing lost, no errors", Tone::Good) } else { ("✗ not well", Tone::Bad) };
        output::say(output::styled(verdict, tone))
    }
}

fn cells(process: &ProcessResult) -> [String; 7] {
    let per_flush = ratio(process.commits as f64, process.groups as f64);
    let errors = process.errors.iter().map(|(code, count)| format!("{code} × {count}"));
    let errors = errors.collect::<Vec<_>>().join(", ");
    [
        process.process.to_string(),
        output::number(process.commits),
        rate(process.per_s),
        rate(process.p50_us),
        rate(process.p99_us),
        format!("{per_flush:.1}"),
        if errors.is_empty() { "none".to_owned() } else { errors },
    ]
}

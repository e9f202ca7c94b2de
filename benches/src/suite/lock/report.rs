//! The report of the `lock` suite: one JSON document, or a table with a column for each library.

use anyhow::Result;
use serde::Serialize;
use tidelock_benches::lock::{CPU_TIME_IS_KNOWN, DETECTION};
use tidelock_console::bench::machine::{Machine, command_line};
use tidelock_console::bench::report::{Aim, Ratio, Ratios, rate};
use tidelock_console::bench::statistics::ratio;
use tidelock_console::output::{self, Format};

use super::Plan;
use super::held::{Weight, Weights};
use super::round::{Latency, Queue, Round, Three, Turns};

/// The report of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    command: String,
    /// Whether the measured locks detect re-entrancy, lock order and deadlocks.
    detection: bool,
    params: Plan,
    machine: Machine,
    results: Results,
    rounds: Vec<Round>,
    #[serde(flatten)]
    ratios: Ratios,
    /// Whether every waiter was served.
    well: bool,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Results {
    #[serde(flatten)]
    round: Round,
    memory: Weights,
}

impl Report {
    /// Summarises the rounds.
    pub(super) fn of(plan: &Plan, machine: Machine, memory: Weights, rounds: Vec<Round>) -> Self {
        let results = Results { round: Round::median(&rounds, plan.waiters), memory };
        let ratios = Ratios::of(compare(&rounds));
        let Three { tidelock, tokio, lockable } = results.round.waiters;
        let well = [tidelock, tokio, lockable].iter().all(|queue| queue.hand_offs == plan.waiters);
        let mut notes = notes(plan);
        notes.extend(ratios.notes());
        let (command, params) = (command_line(), plan.clone());
        Self { command, detection: DETECTION, params, machine, results, rounds, ratios, well, notes }
    }

    /// Whether every waiter was served.
    pub(super) fn is_well(&self) -> bool {
        self.well
    }

    /// Prints the report.
    pub(super) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            return output::json(self);
        }
        let Machine { cores, os, arch, .. } = &self.machine;
        let detection = if self.detection { "on" } else { "off" };
        let command = output::escaped(&self.command);
        output::say(format_args!("{command} · {cores} cores · {os} {arch} · detection {detection}"))?;
        let mut table = output::table(&["measured", "tidelock", "tokio", "lockable"], &[1, 2, 3]);
        for line in self.results.lines(&self.params) {
            table.add_row(line);
        }
        output::say(table)?;
        self.ratios.print()?;
        for note in &self.notes {
            output::say(format_args!("· {note}"))?;
        }
        Ok(())
    }
}

/// The faster of the two types of `lockable`.
fn lockable_alone(round: &Round) -> f64 {
    round.uncontended.lockable_pool.cpu_ns.min(round.uncontended.lockable_map.cpu_ns)
}

fn compare(rounds: &[Round]) -> Vec<Ratio> {
    let aim_to_tokio = if DETECTION { 1.5 } else { 1.0 };
    let compare = |name: &str, aim, pick: fn(&Round) -> (f64, f64)| {
        Ratio::of(name, aim, rounds, |round| {
            let (ours, theirs) = pick(round);
            ratio(ours, theirs)
        })
    };
    vec![
        compare("uncontended_to_tokio", Aim::AtMost(aim_to_tokio), |r| {
            (r.uncontended.tidelock.cpu_ns, r.uncontended.tokio.cpu_ns)
        }),
        compare("uncontended_to_lockable", Aim::AtMost(0.6), |r| {
            (r.uncontended.tidelock.cpu_ns, lockable_alone(r))
        }),
        compare("zipf_to_tokio", Aim::None, |r| (r.zipf.tidelock.cpu_ns, r.zipf.tokio.cpu_ns)),
        compare("zipf_to_lockable", Aim::AtMost(0.7), |r| (r.zipf.tidelock.cpu_ns, r.zipf.lockable.cpu_ns)),
        compare("contended_to_tokio", Aim::None, |r| (r.one_key.tidelock.cpu_ns, r.one_key.tokio.cpu_ns)),
        compare("contended_to_lockable", Aim::None, |r| {
            (r.one_key.tidelock.cpu_ns, r.one_key.lockable.cpu_ns)
        }),
        compare("hand_off_to_tokio", Aim::None, |r| (r.hand_off.tidelock.p50_ns, r.hand_off.tokio.p50_ns)),
        compare("waiters_to_tokio", Aim::None, |r| (r.waiters.tidelock.cpu_ns, r.waiters.tokio.cpu_ns)),
        compare("waiters_to_lockable", Aim::None, |r| (r.waiters.tidelock.cpu_ns, r.waiters.lockable.cpu_ns)),
    ]
}

impl Results {
    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let Plan { tasks, zipf_keys, waiters, held_keys, .. } = plan;
        let Round { uncontended, one_key, zipf, hand_off, waiters: queue } = &self.round;
        let (keys, queued) = (rate(f64::from(*zipf_keys)), rate(f64::from(*waiters)));
        let cpu = |name: String, [a, b, c]: [f64; 3]| [name, rate(a), rate(b), rate(c)];
        let turns = |t: &Three<Turns>, pick: fn(&Turns) -> f64| {
            [pick(&t.tidelock), pick(&t.tokio), pick(&t.lockable)]
        };
        let queues =
            |pick: fn(&Queue) -> f64| [pick(&queue.tidelock), pick(&queue.tokio), pick(&queue.lockable)];
        let latency = |name: &str, pick: fn(&Latency) -> f64| {
            let shown = [&hand_off.tidelock, &hand_off.tokio].map(|l| rate(pick(l)));
            let [tidelock, tokio] = shown;
            [name.to_owned(), tidelock, tokio, String::new()]
        };
        let weight = |name: &str, pick: fn(&Weight) -> String| {
            let Weights { tidelock, lockable } = &self.memory;
            [
                format!("{name} of {} keys, bytes", rate(f64::from(*held_keys))),
                pick(tidelock),
                String::new(),
                pick(lockable),
            ]
        };
        let alone = [uncontended.tidelock.cpu_ns, uncontended.tokio.cpu_ns, lockable_alone(&self.round)];
        vec![
            cpu("uncontended, CPU ns".to_owned(), alone),
            cpu(format!("{tasks} tasks on 1 key, CPU ns"), turns(one_key, |t| t.cpu_ns)),
            cpu(format!("{tasks} tasks on 1 key, per second"), turns(one_key, |t| t.per_s)),
            cpu(format!("{tasks} tasks on {keys} keys, CPU ns"), turns(zipf, |t| t.cpu_ns)),
            cpu(format!("{tasks} tasks on {keys} keys, per second"), turns(zipf, |t| t.per_s)),
            latency("hand-off p50, ns", |l| l.p50_ns),
            latency("hand-off p99, ns", |l| l.p99_ns),
            cpu(format!("{queued} waiters, CPU ns for each"), queues(|q| q.cpu_ns)),
            cpu(format!("{queued} waiters, µs until none is left"), queues(|q| q.drain_ms * 1e3)),
            cpu(format!("{queued} waiters, hand-offs"), queues(|q| f64::from(q.hand_offs))),
            weight("held, each", |w| w.held_bytes.to_string()),
            weight("released, each", |w| w.idle_bytes.to_string()),
        ]
    }
}

/// Remarks on how to read the numbers.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = vec![
        "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
        format!(
            "tokio: one mutex, or an array of {} mutexes that always exist, found by index",
            rate(f64::from(plan.zipf_keys))
        ),
        "uncontended: without cooperative yielding, which tokio's mutex does and Tidelock's does not"
            .to_owned(),
        "bytes are resident memory with guards and without keys, including memory that the allocator keeps"
            .to_owned(),
    ];
    if !CPU_TIME_IS_KNOWN {
        notes.push("this system does not report CPU time; wall-clock time stands in for it".to_owned());
    }
    notes
}

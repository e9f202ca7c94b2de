//! The measurements of one round on PostgreSQL, and the comparison and display of rounds.

use serde::Serialize;
use tidelock_console::bench::claim::Claims;
use tidelock_console::bench::postgres_baseline::CONNECTIONS;
use tidelock_console::bench::report::{Aim, Measured, Ratio, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};
use tidelock_console::output;

use super::super::plan::Plan;
use super::aged::Aged;
use super::wake::{Samples, Wake};

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Round {
    /// Handwritten transactions, on 16 connections.
    pub(crate) plain16: Commits,
    /// The same under a table lock.
    pub(crate) plain16_table_lock: Commits,
    /// Handwritten single statements, on 16 connections.
    pub(crate) single_statement16: Commits,
    /// Handwritten single statements of one writer.
    pub(crate) single_statement1: Commits,
    /// The store's commits, of one producer.
    pub(crate) commit_1: Commits,
    /// The store's commits, of many producers.
    pub(crate) commit_n: Commits,
    /// The mean commit group of many producers.
    pub(crate) commit_n_mean_group: f64,
    /// The short queue with 1 worker, and with 4 and 16.
    claim_small: Claims,
    claim_small_4: Claims,
    claim_small_16: Claims,
    /// The long queue with 1 worker, and with 4 and 16.
    claim_large: Claims,
    claim_large_4: Claims,
    claim_large_16: Claims,
    /// The latency of notifications.
    wake: Wake,
    /// The queue beside an old snapshot and the sweep of a large table, measured once for all rounds.
    pub(crate) aged: Aged,
    #[serde(skip)]
    samples: Samples,
}

impl Round {
    /// Returns the short queue's slot for a number of workers.
    pub(crate) fn small_mut(&mut self, workers: usize) -> &mut Claims {
        match workers {
            1 => &mut self.claim_small,
            4 => &mut self.claim_small_4,
            _ => &mut self.claim_small_16,
        }
    }

    /// Returns the long queue's slot for a number of workers.
    pub(crate) fn large_mut(&mut self, workers: usize) -> &mut Claims {
        match workers {
            1 => &mut self.claim_large,
            4 => &mut self.claim_large_4,
            _ => &mut self.claim_large_16,
        }
    }

    /// Records the latency of notifications.
    pub(crate) fn record_wake(&mut self, mut samples: Samples) {
        self.wake = samples.wake();
        self.samples = samples;
    }
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let claims = |pick: fn(&Self) -> Claims| Claims::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        // One round has too few notifications for a percentile, so these come from all rounds.
        let mut samples = Samples::default();
        rounds.iter().for_each(|round| samples.merge(round.samples.clone()));
        Self {
            plain16: commits(|r| r.plain16),
            plain16_table_lock: commits(|r| r.plain16_table_lock),
            single_statement16: commits(|r| r.single_statement16),
            single_statement1: commits(|r| r.single_statement1),
            commit_1: commits(|r| r.commit_1),
            commit_n: commits(|r| r.commit_n),
            commit_n_mean_group: median(rounds, |r| r.commit_n_mean_group),
            claim_small: claims(|r| r.claim_small),
            claim_small_4: claims(|r| r.claim_small_4),
            claim_small_16: claims(|r| r.claim_small_16),
            claim_large: claims(|r| r.claim_large),
            claim_large_4: claims(|r| r.claim_large_4),
            claim_large_16: claims(|r| r.claim_large_16),
            wake: samples.wake(),
            aged: rounds.first().map(|round| round.aged).unwrap_or_default(),
            samples,
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let many = format!("commit{}", plan.producers);
        let large = plan.large_name();
        let beside = |name: &str, aim: Aim, baseline: fn(&Self) -> Commits| {
            Ratio::of(format!("{many}_to_{name}"), aim, rounds, |r| {
                ratio(r.commit_n.per_s, baseline(r).per_s)
            })
        };
        vec![
            beside("plain", Aim::AtLeast(5.0), |r| r.plain16),
            beside("table_lock", Aim::None, |r| r.plain16_table_lock),
            beside("single_statement", Aim::AtLeast(2.5), |r| r.single_statement16),
            Ratio::of("commit1_to_single_statement1", Aim::AtLeast(0.9), rounds, |r| {
                ratio(r.commit_1.per_s, r.single_statement1.per_s)
            }),
            Ratio::of(format!("claim_{large}_to_1k"), Aim::AtMost(2.0), rounds, |r| {
                ratio(r.claim_large.claim_p50_us, r.claim_small.claim_p50_us)
            }),
            Ratio::of("claim_beside_snapshot", Aim::AtLeast(0.8), rounds, |r| {
                ratio(r.aged.jobs_beside_per_s, r.aged.jobs_before_per_s)
            }),
            Ratio::of(format!("sweep_idle_{}_ms", plan.documents_name()), Aim::AtMost(50.0), rounds, |r| {
                r.aged.sweep_idle_ms
            }),
        ]
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let commits = |name: String, c: Commits| [name, rate(c.per_s), rate(c.p50_us), rate(c.p99_us)];
        let calls = |name: &str, p50, p99| [name.to_owned(), String::new(), rate(p50), rate(p99)];
        let n = plan.producers;
        let shared = format!("{n} producers on {CONNECTIONS} connections");
        let mut lines = vec![
            commits(format!("handwritten transactions, {shared}"), self.plain16),
            commits(format!("handwritten, under a table lock, {shared}"), self.plain16_table_lock),
            commits(format!("by hand, one statement, {shared}"), self.single_statement16),
            commits("by hand, one statement, 1 producer".to_owned(), self.single_statement1),
            commits("commit, 1 producer".to_owned(), self.commit_1),
            commits(format!("commit, {n} producers"), self.commit_n),
        ];
        let (small, large) = (plan.small_rows, plan.large_rows);
        for (workers, rows, c) in [
            ("1 worker", small, self.claim_small),
            ("4 workers", small, self.claim_small_4),
            ("16 workers", small, self.claim_small_16),
            ("1 worker", large, self.claim_large),
            ("4 workers", large, self.claim_large_4),
            ("16 workers", large, self.claim_large_16),
        ] {
            let name = |verb: &str| format!("{verb}, {workers}, {} rows", output::number(rows.into()));
            lines.push([name("claim"), rate(c.turns_per_s), rate(c.claim_p50_us), rate(c.claim_p99_us)]);
            lines.push(calls(&name("ack"), c.ack_p50_us, c.ack_p99_us));
        }
        let Wake { after_ack_p50_us, after_ack_p99_us, after_start_p50_us, after_start_p99_us, .. } =
            self.wake;
        lines.push(calls("notified, after the acknowledgement", after_ack_p50_us, after_ack_p99_us));
        lines.push(calls("notified, after the commit started", after_start_p50_us, after_start_p99_us));
        let jobs = output::number(plan.aged_jobs.into());
        let rates = |name: String, per_s| [name, rate(per_s), String::new(), String::new()];
        lines.push(rates("jobs, before a snapshot".to_owned(), self.aged.jobs_before_per_s));
        lines.push(rates(format!("jobs, beside it after {jobs} jobs"), self.aged.jobs_beside_per_s));
        lines
    }

    fn notes(&self) -> Vec<String> {
        [
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios",
            "handwritten: select the stream's head, insert the event, update the head; same columns and payload",
            "a transaction is 5 round trips, a statement is 1; neither shows readers positions in order, the lock does",
            "claims per second count rows that were claimed, acknowledged and enqueued again",
            "percentiles of notifications are over all rounds",
            "the snapshot and the idle sweep are measured once; a job is enqueued, claimed and acknowledged",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain([format!("mean commit group: {:.1}", self.commit_n_mean_group)])
        .collect()
    }
}

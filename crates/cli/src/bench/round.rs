//! The measurements of a round, their ratios, and a verdict for the operator.

use serde::Serialize;
use tidelock_console::bench::claim::Claims;
use tidelock_console::bench::report::{Aim, Measured, Ratio, rate};
use tidelock_console::bench::statistics::{Commits, median, ratio};

use super::Plan;
use super::baseline::Rates;

/// The measurements of one round, or the medians of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Round {
    /// The baselines, per second.
    pub(super) baseline_per_s: Rates,
    /// Commits of one caller.
    pub(super) commit_1: Commits,
    /// Commits of many callers.
    pub(super) commit_n: Commits,
    /// The mean commit group of many callers.
    pub(super) commit_n_mean_group: f64,
    /// Claims of one worker.
    pub(super) claim_1: Claims,
    /// Claims of many workers.
    pub(super) claim_n: Claims,
    /// The share of the baseline that one caller reaches, as the median of the rounds.
    #[serde(skip)]
    one_caller_share: f64,
}

/// A ratio: a rate of the store over a baseline.
#[derive(Debug)]
pub(super) struct Comparison {
    name: &'static str,
    rate: fn(&Round) -> f64,
    baseline: &'static str,
    aim: Aim,
}

const fn many(name: &'static str, baseline: &'static str, aim: Aim) -> Comparison {
    Comparison { name, rate: |r| r.commit_n.per_s, baseline, aim }
}

const fn one(name: &'static str, baseline: &'static str, aim: Aim) -> Comparison {
    Comparison { name, rate: |r| r.commit_1.per_s, baseline, aim }
}

const CLAIMS: Comparison = Comparison {
    name: "claim_ack_to_driver",
    rate: |r| r.claim_1.turns_per_s,
    baseline: "claim_ack",
    aim: Aim::None,
};

/// The ratios in memory.
pub(super) const MEMORY: &[Comparison] =
    &[one("commit1_to_map", "map1", Aim::None), many("commit64_to_map", "map", Aim::None)];

/// The ratios on SQLite.
pub(super) const SQLITE: &[Comparison] = &[
    many("commit64_to_floor", "floor", Aim::AtLeast(0.6)),
    many("commit64_to_fdatasync", "fdatasync", Aim::AtLeast(8.0)),
    one("commit1_to_fdatasync", "fdatasync", Aim::AtLeast(0.7)),
    CLAIMS,
];

/// The ratios on PostgreSQL.
pub(super) const POSTGRES: &[Comparison] = &[
    many("commit64_to_plain", "plain", Aim::AtLeast(5.0)),
    many("commit64_to_single_statement", "single_statement", Aim::AtLeast(2.5)),
    one("commit1_to_single_statement1", "single_statement1", Aim::AtLeast(0.9)),
    CLAIMS,
];

/// The labels of the baselines in the table.
const LABELS: &[(&str, &str)] = &[
    ("map1", "baseline: map, 1 task"),
    ("map", "baseline: map, 64 tasks"),
    ("fdatasync", "baseline: fdatasync"),
    ("floor", "baseline: bare driver, same groups"),
    ("plain", "baseline: handwritten transactions, 64 callers"),
    ("single_statement", "baseline: handwritten statement, 64 callers"),
    ("single_statement1", "baseline: handwritten statement, 1 caller"),
    ("claim_ack", "baseline: handwritten claim + ack, 1 worker"),
];

impl Round {
    fn baseline(&self, name: &str) -> f64 {
        self.baseline_per_s.get(name).copied().unwrap_or_default()
    }

    /// Returns the name of the limit and the share of its baseline that one caller reaches.
    fn share_of_one_caller(&self) -> Option<(&'static str, f64, f64)> {
        let limits = [("the disk", "fdatasync", 0.7), ("the server", "single_statement1", 0.9)];
        let (limit, name, aim) = limits.into_iter().find(|(_, name, _)| self.baseline(name) > 0.0)?;
        Some((limit, aim, ratio(self.commit_1.per_s, self.baseline(name))))
    }

    /// Names the bottleneck of a single caller, which group commit cannot hide.
    fn verdict(&self) -> Option<String> {
        let (limit, aim, _) = self.share_of_one_caller()?;
        let reached = 100.0 * self.one_caller_share;
        let verdict = if self.one_caller_share >= aim {
            format!("{limit} is the bottleneck")
        } else {
            format!("{limit} could do more; Tidelock or other load is the bottleneck")
        };
        Some(format!("one caller reaches {reached:.0} % of the baseline: {verdict}"))
    }
}

impl Measured for Round {
    type Plan = Plan;

    fn median(rounds: &[Self]) -> Self {
        let commits =
            |pick: fn(&Self) -> Commits| Commits::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let claims = |pick: fn(&Self) -> Claims| Claims::median(&rounds.iter().map(pick).collect::<Vec<_>>());
        let names = rounds.iter().flat_map(|round| round.baseline_per_s.keys().copied());
        Self {
            baseline_per_s: names.map(|name| (name, median(rounds, |r| r.baseline(name)))).collect(),
            commit_1: commits(|r| r.commit_1),
            commit_n: commits(|r| r.commit_n),
            commit_n_mean_group: median(rounds, |r| r.commit_n_mean_group),
            claim_1: claims(|r| r.claim_1),
            claim_n: claims(|r| r.claim_n),
            one_caller_share: median(rounds, |r| r.share_of_one_caller().map_or(0.0, |(_, _, share)| share)),
        }
    }

    fn ratios(rounds: &[Self], plan: &Plan) -> Vec<Ratio> {
        let compare = |c: &Comparison| {
            Ratio::of(c.name, c.aim, rounds, |round| ratio((c.rate)(round), round.baseline(c.baseline)))
        };
        plan.comparisons.iter().map(compare).collect()
    }

    fn lines(&self, plan: &Plan) -> Vec<[String; 4]> {
        let none = String::new;
        let commits = |name, c: Commits| [name, rate(c.per_s), rate(c.p50_us), rate(c.p99_us)];
        let latency = |name: &str, p50, p99| [name.to_owned(), none(), rate(p50), rate(p99)];
        let known = LABELS.iter().filter(|(name, _)| self.baseline_per_s.contains_key(name));
        let mut lines: Vec<_> = known
            .map(|(name, label)| [(*label).to_owned(), rate(self.baseline(name)), none(), none()])
            .collect();
        let (one, many) = (self.claim_1, self.claim_n);
        lines.extend([
            commits("commit, 1 caller".to_owned(), self.commit_1),
            commits(format!("commit, {} callers", plan.producers), self.commit_n),
            ["claim + ack, 1 worker".to_owned(), rate(one.turns_per_s), none(), none()],
            latency("  claim", one.claim_p50_us, one.claim_p99_us),
            latency("  ack", one.ack_p50_us, one.ack_p99_us),
            [format!("claim + ack, {} workers", plan.workers), rate(many.turns_per_s), none(), none()],
        ]);
        lines
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.verdict().into_iter().collect();
        if self.commit_n_mean_group > 1.0 {
            notes.push(format!("{:.1} commits share a flush with 64 callers", self.commit_n_mean_group));
        }
        notes.push("a claimed row is acknowledged and enqueued again: three commits".to_owned());
        notes.push(
            "numbers are medians over the rounds; a ratio is the median of the rounds' ratios".to_owned(),
        );
        notes
    }
}

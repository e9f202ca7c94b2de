//! Turns of several writers, simulated on a virtual clock.

use std::time::{Duration, Instant};

use super::{Contention, WriteTurn};

const MILLI: Duration = Duration::from_millis(1);
const LENGTH: Duration = Duration::from_secs(10);

/// The habits of a writer: the duration of a write with its mutator, the pause until its next mutation, and the delay of
/// every fourth step on a busy machine.
#[derive(Clone, Copy)]
struct Habits {
    write: Duration,
    think: Duration,
    late: Duration,
}

/// Writes of 0.4 ms, back to back.
const FAST: Habits =
    Habits { write: Duration::from_micros(400), think: Duration::from_micros(50), late: Duration::ZERO };

enum Step {
    Start,
    Gap(Instant),
    Wait,
    Commit(u64),
}

/// A driver, as `Combiner::base` runs one.
struct Writer {
    habits: Habits,
    contention: Contention,
    step: Step,
    at: Instant,
    carried: Option<u64>,
    commits: u32,
    steps: u32,
    is_late: bool,
}

impl Writer {
    fn new(habits: Habits, at: Instant) -> Self {
        let contention = Contention::default();
        Self {
            habits,
            contention,
            step: Step::Start,
            at,
            carried: None,
            commits: 0,
            steps: 0,
            is_late: false,
        }
    }

    /// Performs the next step on the record, whose version is given.
    fn run(&mut self, record: &mut u64) {
        self.steps += 1;
        if matches!(self.step, Step::Gap(_) | Step::Wait) && !self.is_late {
            let late = if self.steps.is_multiple_of(4) { self.habits.late } else { Duration::ZERO };
            self.contention.delayed(late);
            self.at += late;
            self.is_late = !late.is_zero();
            if self.is_late {
                return;
            }
        }
        self.is_late = false;
        let (now, found) = (self.at, Some(*record));
        match self.step {
            Step::Start => self.start(*record),
            Step::Gap(_) if self.carried != Some(*record) => {
                self.contention.gap_used(found, now);
                self.start(*record);
            }
            Step::Gap(end) if now >= end => {
                self.contention.gap_unused(now);
                self.start(*record);
            }
            Step::Gap(_) => self.at += self.contention.poll(),
            Step::Wait if self.contention.read(found, now) => self.attempt(*record),
            Step::Wait => self.at += self.contention.pause(now),
            Step::Commit(base) if base == *record => {
                *record += 1;
                self.commits += 1;
                self.carried = Some(*record);
                self.contention.wrote(self.habits.write, now);
                self.at += self.habits.think;
                self.step = Step::Start;
            }
            Step::Commit(_) => {
                self.contention.lost(found, self.habits.write, now);
                self.start(*record);
            }
        }
    }

    fn start(&mut self, record: u64) {
        match self.contention.next(self.at) {
            WriteTurn::Write => self.attempt(self.carried.unwrap_or(record)),
            WriteTurn::Read => self.attempt(record),
            WriteTurn::Gap(gap) => self.step = Step::Gap(self.at + gap),
            WriteTurn::Wait => {
                self.carried = None;
                self.at += self.contention.pause(self.at);
                self.step = Step::Wait;
            }
        }
    }

    fn attempt(&mut self, base: u64) {
        self.at += self.habits.write;
        self.step = Step::Commit(base);
    }
}

/// Returns the commits of each writer.
fn race(habits: &[Habits]) -> Vec<u32> {
    let start = Instant::now();
    let mut record = 1;
    let mut writers: Vec<Writer> = habits.iter().map(|habits| Writer::new(*habits, start)).collect();
    while let Some(next) =
        writers.iter_mut().min_by_key(|writer| writer.at).filter(|next| next.at < start + LENGTH)
    {
        next.run(&mut record);
    }
    writers.iter().map(|writer| writer.commits).collect()
}

/// Returns the commits of each writer in per cent of what it commits alone.
fn rates(habits: &[Habits]) -> Vec<u32> {
    let alone = habits.iter().map(|habits| race(&[*habits]).iter().sum::<u32>());
    race(habits).into_iter().zip(alone).map(|(commits, alone)| commits * 100 / alone).collect()
}

#[test]
fn a_writer_without_rivals_loses_little_to_gaps() {
    for write in [MILLI / 5, MILLI, 10 * MILLI] {
        let commits = race(&[Habits { write, ..FAST }]).iter().sum::<u32>();
        let most = LENGTH.as_micros() / (write + FAST.think).as_micros();
        assert!(u128::from(commits) * 100 >= most * 95, "{commits} of {most} writes");
    }
}

#[test]
fn equal_writers_get_equal_shares_and_waste_little() {
    for write in [MILLI / 5, MILLI, 10 * MILLI] {
        for writers in [2, 3, 5] {
            let rates = rates(&vec![Habits { write, ..FAST }; writers]);
            let total: u32 = rates.iter().sum();
            assert!(total >= 60, "{write:?}: {rates:?}");
            let fair = total / u32::try_from(writers).unwrap_or(u32::MAX);
            assert!(rates.iter().all(|rate| *rate >= fair / 2), "{write:?}: {rates:?}");
        }
    }
}

#[test]
fn a_slow_rival_takes_no_more_than_its_share_of_the_time() {
    for slow in [2 * MILLI, 6 * MILLI, 22 * MILLI, 30 * MILLI] {
        let rates = rates(&[FAST, Habits { write: slow, ..FAST }]);
        assert!(rates.iter().all(|rate| *rate >= 33), "{slow:?}: {rates:?}");
    }
    let slow = Habits { write: 6 * MILLI, ..FAST };
    let rates = rates(&[FAST, slow, slow, slow]);
    assert!(rates.iter().all(|rate| *rate >= 12), "{rates:?}");
}

#[test]
fn a_rival_with_pauses_is_served_soon_and_costs_little() {
    for think in [5 * MILLI, 100 * MILLI] {
        let rates = rates(&[FAST, Habits { think, ..FAST }]);
        assert!(rates.iter().all(|rate| *rate >= 40), "{think:?}: {rates:?}");
    }
}

#[test]
fn writers_on_a_busy_machine_share_as_well() {
    for late in [5 * MILLI, 20 * MILLI] {
        for writers in [2, 3] {
            let commits = race(&vec![Habits { late, ..FAST }; writers]);
            let fair = commits.iter().sum::<u32>() / u32::try_from(writers).unwrap_or(u32::MAX);
            assert!(commits.iter().all(|own| *own >= fair / 2), "{late:?}: {commits:?}");
        }
    }
}

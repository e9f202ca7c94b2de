//! Generator of histories from seeds.

use std::time::Duration;

use tidelock_core::id::Priority;
use tidelock_core::store::{Delta, Lifetime, Operation};

use super::command::{
    Act, Command, DueTime, End, Filter, Grant, Job, Move, Name, NewFact, Reach, RowFilter, Rows, Step, Want,
};
use crate::rng::Rng;

const STREAMS: usize = 3;
const DOCUMENTS: usize = 4;
const ROWS: usize = 6;
const LANES: usize = 2;
const OWNERS: usize = 3;
const KINDS: usize = 3;

/// Generates the history of a seed.
pub(super) fn history(seed: u64, length: usize) -> Vec<Step> {
    let mut author = Author { rng: Rng::new(seed), next_id: 0, next_op: 0 };
    let mut steps: Vec<Step> = Vec::with_capacity(length);
    for _ in 0..length {
        let again = author.rng.one_in(10).then(|| author.earlier(&steps)).flatten();
        let command = again.unwrap_or_else(|| author.command());
        steps.push(Step { second: author.rng.one_in(3), command });
    }
    steps
}

struct Author {
    rng: Rng,
    next_id: u32,
    next_op: u32,
}

impl Author {
    fn command(&mut self) -> Command {
        match self.rng.below(20) {
            0..=9 => self.apply(),
            10 | 11 => self.claim_lanes(),
            12 => {
                let create = self.maybe(LANES);
                Command::ClaimNamed {
                    row: self.name(ROWS),
                    create,
                    owner: self.name(OWNERS),
                    ttl: self.ttl(),
                }
            }
            13..=15 => Command::Clock(self.movement()),
            16 => {
                let age = |rng: &mut Rng| rng.one_in(2).then(|| seconds(rng.below(20)));
                Command::Sweep { tombstones: age(&mut self.rng), operations: age(&mut self.rng) }
            }
            _ => self.read(),
        }
    }

    /// Returns an earlier batch again, unchanged or with a modification.
    fn earlier(&mut self, steps: &[Step]) -> Option<Command> {
        let commands = steps.iter().map(|step| &step.command);
        let batches: Vec<&Command> = commands.filter(|c| matches!(c, Command::Apply { .. })).collect();
        let mut again = (*batches.get(self.rng.below(batches.len()))?).clone();
        if let Command::Apply { op, acts } = &mut again {
            if self.rng.one_in(2) {
                *op = None;
            }
            if self.rng.one_in(3) {
                acts.push(self.act());
            }
            if self.rng.one_in(3) {
                acts.retain(|act| matches!(act, Act::Append { .. }));
            }
        }
        Some(again)
    }

    fn apply(&mut self) -> Command {
        let op = self.rng.one_in(3).then(|| {
            self.next_op += 1;
            self.next_op
        });
        let length = 1 + self.rng.below(4);
        Command::Apply { op, acts: (0..length).map(|_| self.act()).collect() }
    }

    fn act(&mut self) -> Act {
        match self.rng.below(16) {
            0..=2 => Act::Append { stream: self.name(STREAMS), want: self.want(), events: self.events() },
            3 if self.rng.one_in(4) => Act::Close { stream: self.name(STREAMS), want: self.want() },
            3 if self.rng.one_in(2) => Act::Truncate { stream: self.name(STREAMS), upto: self.reach() },
            3 | 4 => {
                let lasts = self.rng.one_in(3).then(|| self.when());
                Act::Put { doc: self.name(DOCUMENTS), want: self.want(), value: self.value(), lasts }
            }
            5 => Act::Delete { doc: self.name(DOCUMENTS), want: self.want() },
            6 | 7 => {
                let create = self.rng.one_in(2).then(|| self.value());
                Act::Merge { doc: self.name(DOCUMENTS), deltas: vec![self.delta(), self.delta()], create }
            }
            8..=10 => Act::Enqueue(self.job()),
            11..=13 => Act::Finish { grant: self.grant(), end: self.end() },
            14 => Act::Operate { rows: self.rows(), operation: self.operation() },
            _ if self.rng.one_in(2) => Act::GuardStream { stream: self.name(STREAMS), want: self.want() },
            _ => Act::GuardDocument { doc: self.name(DOCUMENTS), want: self.want() },
        }
    }

    fn events(&mut self) -> Vec<NewFact> {
        let count = self.rng.below(4);
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            let reused = self.rng.one_in(25) && self.next_id > 0;
            let id = if reused { self.rng.below(self.next_id as usize) as u32 } else { self.next_id };
            self.next_id += u32::from(!reused);
            list.push(NewFact { id, kind: self.name(KINDS), value: self.value() });
        }
        list
    }

    fn job(&mut self) -> Job {
        let lifetime = if self.rng.one_in(2) { Lifetime::Once } else { Lifetime::Standing };
        Job {
            row: self.name(ROWS),
            queue: self.name(LANES),
            due: self.when(),
            priority: self.rng.below(10) as u8,
            lifetime,
            payload: self.rng.one_in(2).then(|| self.value()),
            position: self.rng.one_in(2).then(|| self.rng.below(10)),
            follow: self.maybe(STREAMS),
            want: self.rng.pick(&[Want::Any, Want::Any, Want::Any, Want::Absent, Want::Exists]),
        }
    }

    fn grant(&mut self) -> Grant {
        let other_row = self.rng.one_in(12).then(|| self.name(ROWS));
        // Mostly recent grants: older ones are usually stale, which should happen, but not every time.
        let back = if self.rng.one_in(4) { self.rng.below(12) } else { self.rng.below(2) };
        Grant { back, other_row }
    }

    fn end(&mut self) -> End {
        match self.rng.below(10) {
            0..=2 => End::Ack,
            3 => End::Advance(self.rng.below(20)),
            4 => End::Defer(self.when()),
            5 => End::Fail(self.when()),
            6 => End::Block,
            7 => End::Renew(self.ttl()),
            8 => End::Release,
            _ => End::Guard,
        }
    }

    fn rows(&mut self) -> Rows {
        if self.rng.one_in(2) {
            let count = self.rng.below(4);
            return Rows::Named((0..count).map(|_| self.name(ROWS)).collect());
        }
        Rows::Matching(self.row_filter())
    }

    fn row_filter(&mut self) -> RowFilter {
        let bool = |rng: &mut Rng| rng.one_in(3).then(|| rng.one_in(2));
        let queue = self.rng.one_in(3).then(|| self.name(LANES));
        let pattern =
            self.rng.one_in(4).then(|| self.rng.pick(&["row", "^tck row-[", "1$", "w-.$", "row%", "r.*2"]));
        // A pattern that the grammar rejects would fail in the generator, not in the store.
        let pattern = pattern.filter(|p| !p.contains('['));
        RowFilter { queue, pattern, blocked: bool(&mut self.rng), leased: bool(&mut self.rng) }
    }

    fn operation(&mut self) -> Operation {
        let level = Priority::new(self.rng.below(10) as u8).unwrap();
        let verbs = [Operation::Unblock, Operation::Reset, Operation::RetryNow, Operation::Prioritize(level)];
        if self.rng.one_in(6) { Operation::Remove } else { self.rng.pick(&verbs) }
    }

    fn delta(&mut self) -> Delta {
        match self.rng.below(8) {
            0..=2 => Delta::inc("/n", self.value()),
            3 => Delta::push("/list", self.value()),
            4 => Delta::set("/deep/field", self.value()),
            5 => Delta::remove("/list/0"),
            6 => Delta::remove("/deep"),
            _ => Delta::push("/n", self.value()),
        }
    }

    fn claim_lanes(&mut self) -> Command {
        let queues = if self.rng.one_in(2) { vec![0, 1] } else { vec![self.name(LANES)] };
        if self.rng.one_in(6) {
            return Command::NextReady { queues };
        }
        let limit = self.rng.pick(&[1, 1, 2, 3, 100]);
        let (owner, ttl, events) = (self.name(OWNERS), self.ttl(), self.rng.below(4));
        Command::ClaimLanes { queues, limit, owner, ttl, events }
    }

    fn movement(&mut self) -> Move {
        match self.rng.below(4) {
            0 => Move::By(seconds(self.rng.below(10))),
            1 => Move::ToJustBefore(self.rng.below(3)),
            _ => Move::ToBoundary(self.rng.below(3)),
        }
    }

    fn read(&mut self) -> Command {
        let limit = 1 + self.rng.below(6);
        let backward = self.rng.one_in(2);
        match self.rng.below(7) {
            0 => Command::Operation(self.rng.below(self.next_op as usize + 1) as u32),
            1 => {
                let from = self.rng.one_in(2).then(|| self.rng.below(8) as u64);
                Command::ReadStream { stream: self.name(STREAMS), from, backward, limit }
            }
            2 => {
                let filter = Filter {
                    kind: self.rng.one_in(3).then(|| self.name(KINDS)),
                    since: self.rng.one_in(4).then(|| seconds(self.rng.below(30))),
                    stream: self.rng.one_in(4).then(|| self.name(STREAMS)),
                };
                let after = self.rng.one_in(2).then(|| self.rng.below(20));
                Command::ReadLog { after, backward, limit, filter }
            }
            3 => Command::Documents { limit },
            4 => Command::Streams { limit },
            5 => Command::Rows {
                doc: self.name(DOCUMENTS),
                stream: self.name(STREAMS),
                row: self.name(ROWS),
                op: self.rng.below(self.next_op as usize + 1) as u32,
            },
            _ => Command::Works { limit, filter: self.row_filter() },
        }
    }

    fn name(&mut self, of: usize) -> Name {
        self.rng.below(of) as Name
    }

    fn maybe(&mut self, of: usize) -> Option<Name> {
        self.rng.one_in(2).then(|| self.name(of))
    }

    fn value(&mut self) -> i64 {
        self.rng.below(5) as i64
    }

    fn ttl(&mut self) -> Duration {
        seconds(1 + self.rng.below(8))
    }

    fn when(&mut self) -> DueTime {
        match self.rng.below(4) {
            0 | 1 => DueTime::Now,
            2 => DueTime::After(seconds(self.rng.below(10))),
            _ => DueTime::At(seconds(self.rng.below(60))),
        }
    }

    /// Mostly removes existing events; sometimes goes beyond them.
    fn reach(&mut self) -> Reach {
        match self.rng.below(8) {
            0..=2 => Reach::Below(self.rng.below(6) as u64),
            3..=6 => Reach::AllBut(self.rng.below(4) as u64),
            _ => Reach::Beyond(1 + self.rng.below(2) as u64),
        }
    }

    fn want(&mut self) -> Want {
        self.rng.pick(&[
            Want::Any,
            Want::Any,
            Want::Any,
            Want::AsItIs,
            Want::AsItIs,
            Want::AsItIs,
            Want::Absent,
            Want::Exists,
            Want::OneBehind,
            Want::OneAhead,
        ])
    }
}

fn seconds(count: usize) -> Duration {
    Duration::from_secs(count as u64)
}

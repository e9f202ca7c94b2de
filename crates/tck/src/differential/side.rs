//! One side of the comparison: a store, its clock, and the numbers that it has issued so far.

use std::sync::Arc;

use tidelock_core::clock::ManualClock;
use tidelock_core::id::{Position, QueueName};
use tidelock_core::key::KeyPrefix;
use tidelock_core::store::{
    Claim, ClaimTarget, Claimed, Direction, Get, Lease, LogQuery, Page, StoreError, StreamQuery, Sweep,
    WorkFilter,
};

use super::command::{Command, Filter, Step};
use super::resolve::{SharedFacts, event_filter, instant, key, lane_of, op, row_filter};
use crate::builders::owner;
use crate::conn::Conn;
use crate::dump::Dump;

/// Claims of this size take all rows, so that turns do not matter.
const EVERYTHING: usize = 100;

/// One side.
pub(super) struct Side {
    conns: [Conn; 2],
    /// Whether the second connection is in use.
    second: bool,
    pub(super) clock: Arc<ManualClock>,
    /// The positions of all events, in order.
    pub(super) positions: Vec<Position>,
    /// The leases of all grants, in order of their increasing fences.
    pub(super) grants: Vec<Lease>,
}

impl Side {
    pub(super) fn new(conns: [Conn; 2], clock: Arc<ManualClock>) -> Self {
        Self { conns, second: false, clock, positions: Vec::new(), grants: Vec::new() }
    }

    /// Returns the connection in use.
    pub(super) fn conn(&self) -> &Conn {
        &self.conns[usize::from(self.second)]
    }

    /// Returns the turn of the next small claim.
    pub(super) fn turn(&self) -> u64 {
        self.grants.last().map_or(0, |lease| lease.fence.0) % 4
    }

    /// Performs the command. Returns the answer as text, with numbers that may differ replaced by their rank.
    pub(super) async fn perform(&mut self, step: &Step, facts: &SharedFacts) -> String {
        self.second = step.second;
        match &step.command {
            Command::Apply { .. } => {
                let answer = self.conn().apply(self.batch(&step.command, facts)).await;
                self.learn_positions().await;
                self.applied(answer)
            }
            Command::ClaimLanes { queues, limit, owner: who, ttl, events } => {
                let limit = if facts.same_turn { *limit } else { EVERYTHING };
                let queues = queues.iter().map(|name| lane_of(*name));
                let claim = Claim::queues(&owner(&format!("owner-{who}")), queues, limit, *ttl);
                self.claim(claim.with_events(*events)).await
            }
            Command::ClaimNamed { row, create, owner: who, ttl } => {
                let pick = ClaimTarget::Named { key: key("row", *row), create: create.map(lane_of) };
                self.claim(Claim { pick, owner: owner(&format!("owner-{who}")), ttl: *ttl, events: 3 }).await
            }
            Command::Clock(movement) => {
                self.clock.set(facts.target(*movement));
                format!("{:?}", self.conn().now().await)
            }
            Command::Sweep { tombstones, operations } => {
                let sweep = Sweep {
                    tombstones_before: tombstones.map(instant),
                    operations_before: operations.map(instant),
                    ..Sweep::default()
                };
                format!("{:?}", self.conn().sweep(sweep).await)
            }
            read => self.read(read).await,
        }
    }

    async fn read(&self, command: &Command) -> String {
        let everything = KeyPrefix::all();
        match command {
            Command::Operation(number) => {
                let receipt = self.conn().operation(op(*number)).await;
                format!("{:?}", receipt.map(|receipt| receipt.map(|receipt| self.receipt(receipt))))
            }
            Command::NextReady { queues } => {
                let queues: Vec<QueueName> = queues.iter().map(|name| lane_of(*name)).collect();
                format!("{:?}", self.conn().next_ready(&queues).await)
            }
            Command::ReadStream { stream, from, backward, limit } => {
                let query = StreamQuery::forward(&key("stream", *stream), *limit);
                let from = from.map(tidelock_core::id::StreamVersion);
                let query = StreamQuery { from, direction: direction(*backward), ..query };
                let page = self.conn().read_stream(query).await;
                format!("{:?}", page.map(|page| self.event_page(page)))
            }
            Command::ReadLog { after, backward, limit, filter } => {
                self.read_log(*after, *backward, *limit, filter).await
            }
            Command::Documents { limit } => {
                let page = self.conn().documents(&everything, Page::first(*limit)).await;
                format!("{:?}", page.map(|page| self.document_page(page)))
            }
            Command::Streams { limit } => {
                format!("{:?}", self.conn().streams(&everything, Page::first(*limit)).await)
            }
            Command::Works { limit, filter } => {
                let filter = row_filter(filter);
                let count = self.conn().count(&filter).await;
                let page = self.conn().works(&filter, Page::first(*limit)).await;
                format!("{count} rows: {:?}", page.map(|page| self.row_page(page)))
            }
            Command::Rows { doc, stream, row, op: number } => {
                let gets = [
                    Get::Document(key("doc", *doc)),
                    Get::Stream(key("stream", *stream)),
                    Get::Work(key("row", *row)),
                    Get::Operation(op(*number)),
                ];
                format!("{:?}", self.conn().read(&gets).await.map(|found| self.row_set(found)))
            }
            _ => "not a read".to_owned(),
        }
    }

    async fn claim(&mut self, claim: Claim) -> String {
        let claimed: Result<Claimed, StoreError> = self.conn().claim(claim).await;
        for grant in claimed.iter().flat_map(|claimed| &claimed.grants) {
            let last = self.grants.last().map(|lease| lease.fence);
            if last >= Some(grant.fence) {
                return format!("fences do not rise: {:?} after {last:?}", grant.fence);
            }
            self.grants.push(grant.lease());
        }
        self.claimed(claimed)
    }

    async fn read_log(&self, after: Option<usize>, backward: bool, limit: usize, filter: &Filter) -> String {
        let mut query = LogQuery { direction: direction(backward), ..LogQuery::all(limit) };
        query.after = after.map(|rank| self.position(rank));
        query.filter = event_filter(filter);
        if filter.is_empty() {
            let page = self.conn().read_log(query).await;
            return format!("{:?}", page.map(|page| self.event_page(page)));
        }
        // The backend may choose how far a page of a filtered read scans; the pages together must show the same events.
        let mut all = Vec::new();
        loop {
            let page = match self.conn().read_log(query.clone()).await {
                Ok(page) => page,
                Err(error) => return format!("{error:?}"),
            };
            all.extend(page.events.into_iter().map(|event| self.event(event)));
            if page.end || page.scanned_to.is_none() {
                return format!("{all:?}");
            }
            query.after = page.scanned_to;
        }
    }

    /// Reads from the last known event onwards, as a tailing reader would.
    async fn learn_positions(&mut self) {
        let after = self.positions.last().copied().unwrap_or(Position(0));
        let page = self.conn().read_log(LogQuery::after(after, 1_000)).await.expect("the store answers");
        self.positions.extend(page.events.iter().map(|event| event.position));
    }

    /// Returns everything that can be read at the end of a history, each part as text.
    pub(super) async fn everything(&self, history: &[Step]) -> Vec<String> {
        let Dump { documents, streams, events, mut work } = Dump::of(self.conn()).await;
        let mut all: Vec<String> = documents.into_iter().map(|d| format!("{:?}", self.document(d))).collect();
        all.extend(streams.iter().map(|stream| format!("{stream:?}")));
        all.extend(events.into_iter().map(|event| format!("{:?}", self.event(event))));
        work.sort_by_key(|row| row.seq);
        all.extend(work.into_iter().map(|row| format!("{:?}", self.row(row))));
        for step in history {
            if let Command::Apply { op: Some(number), .. } = &step.command {
                let receipt = self.conn().operation(op(*number)).await.expect("the store answers");
                all.push(format!("operation {number}: {:?}", receipt.map(|r| self.receipt(r))));
            }
        }
        all.push(format!("{} rows", self.conn().count(&WorkFilter::default()).await));
        all
    }
}

fn direction(backward: bool) -> Direction {
    if backward { Direction::Backward } else { Direction::Forward }
}

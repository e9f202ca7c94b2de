//! What an activation writes into its journal, and what it finds there that it did not write.

use std::collections::HashSet;

use super::super::broken::Broken;
use super::super::cell::{Outgoing, Room};
use super::super::entry::{Done, Entry, Placed};
use super::super::load::Unready;
use super::super::{journal, names};
use super::{Drive, Flow, Left};
use crate::id::{Position, StreamVersion};
use crate::store::{Batch, Expect, Receipt, Refusal};
use crate::telemetry::WORKFLOW;
use crate::worker::Committed;

/// What there was in the journal that the driver did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::workflow) enum News {
    Nothing,
    Some,
    /// A step recorded its end after the workflow had stopped waiting for it: what counts is the journal.
    Overtaken,
}

impl Drive {
    /// Writes what is to be written. What others wrote before is told to the workflow first.
    pub(super) async fn flush(&mut self) -> Flow {
        let hasty = self.cell.is_hasty();
        let (mut group, mut room) = (Vec::new(), Room::default());
        let mut flow = Flow::On;
        for outgoing in self.cell.take_outgoing() {
            if !room.takes(&outgoing) {
                if !group.is_empty() && flow != Flow::Gone {
                    flow = worse(flow, self.write(std::mem::take(&mut group), hasty).await);
                }
                room = Room::default();
                room.takes(&outgoing);
            }
            let alone = outgoing.may_be_refused();
            group.push(outgoing);
            if alone && flow != Flow::Gone {
                flow = worse(flow, self.write(std::mem::take(&mut group), hasty).await);
            }
        }
        if !group.is_empty() && flow != Flow::Gone {
            flow = worse(flow, self.write(group, hasty).await);
        }
        flow
    }

    async fn write(&mut self, mut group: Vec<Outgoing>, hasty: bool) -> Flow {
        let mut behind = Flow::On;
        loop {
            let batch = match self.batch(&group) {
                Ok(batch) => batch,
                Err(what) => {
                    self.cell.break_with(Broken::Invalid { what });
                    return Flow::On;
                }
            };
            match self.holding.commit(batch).await {
                Committed::Done(receipt) => {
                    return worse(behind, self.written(group, &receipt, hasty).await);
                }
                Committed::Gone => return Flow::Gone,
                Committed::Refused(refusal) if self.is_behind(&refusal) => match self.hear(None).await {
                    Ok(News::Overtaken) => return Flow::Rewind,
                    Ok(News::Some) if hasty => behind = Flow::Rewind,
                    Ok(_) => {}
                    Err(flow) => return flow,
                },
                Committed::Refused(refusal) => {
                    let Some(last) = group.pop().filter(Outgoing::may_be_refused) else {
                        self.cell.break_with(Broken::Invalid { what: refusal.to_string() });
                        return Flow::On;
                    };
                    self.cell.refused(&last, &refusal.to_string());
                    if group.is_empty() {
                        return Flow::On;
                    }
                }
            }
        }
    }

    /// The batch of a group: what was done, what is recorded of it.
    pub(in crate::workflow) fn batch(&self, group: &[Outgoing]) -> Result<Batch, String> {
        self.batch_at(group, self.expected())
    }

    /// The same where the journal must be at a version.
    pub(in crate::workflow) fn batch_at(
        &self,
        group: &[Outgoing],
        expected: Expect<StreamVersion>,
    ) -> Result<Batch, String> {
        let mut batch = Batch::new();
        let mut events = Vec::new();
        for outgoing in group {
            batch = batch.and(outgoing.effects.clone());
            if let Some(entry) = &outgoing.entry {
                events.push(entry.event_by(self.holding.lease()).map_err(|error| error.to_string())?);
            }
        }
        if !events.is_empty() {
            batch = batch.append(&self.journal, expected, events);
        }
        if self.stumbled {
            // Progress: the claims before it do not count any more.
            batch = batch.advance(self.holding.lease(), Position(0));
        }
        Ok(batch)
    }

    /// What the journal must be for something to be written. Others may write at any time, and are heard afterwards; but once the
    /// workflow left a step that may have recorded its end, what it did instead counts only if the step has not.
    pub(in crate::workflow) fn expected(&self) -> Expect<StreamVersion> {
        if self.cell.has_left() { Expect::Exact(self.last()) } else { Expect::Any }
    }

    /// Whether a batch was refused because there is more in the journal than was heard.
    pub(in crate::workflow) fn is_behind(&self, refusal: &Refusal) -> bool {
        self.cell.has_left() && matches!(refusal, Refusal::Stream { stream, .. } if *stream == self.journal)
    }

    async fn written(&mut self, group: Vec<Outgoing>, receipt: &Receipt, hasty: bool) -> Flow {
        self.stumbled = false;
        let Some(appended) = receipt.appended.iter().rev().find(|appended| appended.stream == self.journal)
        else {
            return Flow::On;
        };
        let first = appended.first_version;
        let mut flow = Flow::On;
        if first > self.next {
            match self.hear(Some(first)).await {
                Ok(News::Overtaken) => flow = Flow::Rewind,
                Ok(News::Some) if hasty => flow = Flow::Rewind,
                Ok(_) => {}
                Err(flow) => return flow,
            }
        }
        let mut version = first;
        for outgoing in group {
            let Some(entry) = outgoing.entry else { continue };
            if matches!(entry, Entry::ChildStarted(_)) {
                names::wake(&self.started.queue);
            }
            if matches!(entry, Entry::Done(_) | Entry::GaveUp(_)) {
                self.shared.counters.steps.add(1);
            }
            if !outgoing.delivered {
                self.queue.push_back(Placed { version, at: receipt.at, entry });
            }
            version = version.next();
        }
        self.next = version;
        flow
    }

    /// Writes what an end that was not written would have brought along.
    pub(in crate::workflow) async fn write_rest(&mut self, group: Vec<Outgoing>) -> Flow {
        self.write(group, true).await
    }

    /// Tells a workflow that has come to its end what others said meanwhile.
    pub(in crate::workflow) async fn tell_rest(&mut self) {
        while let Some(placed) = self.queue.pop_front() {
            self.deliver(&placed).await;
        }
    }

    /// Takes up what others wrote into the journal, and steps about themselves, up to a version.
    pub(in crate::workflow) async fn hear(&mut self, before: Option<StreamVersion>) -> Result<News, Flow> {
        let read = match journal::read(&self.shared.worker.store, &self.journal, Some(self.next))
            .await
            .map_err(Unready::from)
        {
            Ok(read) => read,
            Err(Unready::Store(error)) => {
                // Nobody knows what was said: whoever drives the run next reads it again.
                tracing::warn!(target: WORKFLOW, %error, "a journal could not be read; the run is handed back");
                self.holding.release().await;
                return Err(Flow::Gone);
            }
            Err(Unready::Never(reason)) => {
                self.cell.break_with(Broken::Invalid { what: reason });
                return Ok(News::Nothing);
            }
        };
        let mut news = News::Nothing;
        for placed in read {
            if before.is_some_and(|before| placed.version >= before) {
                break;
            }
            self.next = placed.version.next();
            match self.cell.own_record(&placed.entry) {
                Some(waits) => {
                    self.shared.counters.steps.add(1);
                    news = if waits { news.max(News::Some) } else { News::Overtaken };
                }
                None if placed.entry.is_foreign() => news = news.max(News::Some),
                None => continue,
            }
            self.queue.push_back(placed);
        }
        Ok(news)
    }

    /// Reads what became of steps that were to record their end themselves. What they wrote is in the order of the journal.
    pub(super) async fn prove(&mut self) -> Result<(), Left> {
        if self.hear(None).await.map_err(|_| Left::Lost)? == News::Overtaken {
            return self.rewind().await;
        }
        let ends = self.queue.iter().filter_map(|placed| match &placed.entry {
            Entry::Done(Done { op, .. }) => Some(op.name.as_str()),
            _ => None,
        });
        let ends: HashSet<&str> = ends.collect();
        self.cell.prove(|name| ends.contains(name));
        Ok(())
    }
}

fn worse(a: Flow, b: Flow) -> Flow {
    match (&a, &b) {
        (Flow::Gone, _) | (_, Flow::On) => a,
        (Flow::Rewind, Flow::Rewind) => a,
        _ => b,
    }
}

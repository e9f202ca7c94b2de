//! Commits of an activation, and the entries of its journal that others wrote.

use super::super::activation::{Outgoing, groups};
use super::super::journal_entry::{JournalEntry, Placed};
use super::super::load::Unready;
use super::super::nondeterminism::Nondeterminism;
use super::super::{journal, keys};
use super::{ActivationResult, Drive, DriverFlow, UNREAD};
use crate::id::{Position, StreamVersion};
use crate::process;
use crate::store::{Batch, Expect, Receipt, Refusal};
use crate::telemetry::WORKFLOW;
use crate::worker::Committed;

/// The presence of journal entries that the driver did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::workflow) enum JournalChange {
    Nothing,
    Some,
    /// A step recorded its end after the workflow had dropped it: the journal counts.
    Overtaken,
}

impl Drive {
    /// Commits the outgoing entries. Entries that others wrote before them are delivered to the workflow first.
    pub(super) async fn commit_outgoing(&mut self) -> DriverFlow {
        let ahead = self.activation.lock().is_ahead();
        let mut flow = DriverFlow::On;
        for group in groups(self.take_outgoing()) {
            flow = worse(flow, self.write(group, ahead).await);
            if flow == DriverFlow::Gone {
                break;
            }
        }
        flow
    }

    async fn write(&mut self, mut group: Vec<Outgoing>, ahead: bool) -> DriverFlow {
        let mut behind = DriverFlow::On;
        loop {
            let batch = match self.batch(&group) {
                Ok(batch) => batch,
                Err(what) => {
                    self.activation.lock().fail(Nondeterminism::Invalid { what });
                    return DriverFlow::On;
                }
            };
            match self.holding.commit(batch).await {
                Committed::Done(receipt) => {
                    return worse(behind, self.written(group, &receipt, ahead).await);
                }
                Committed::Gone => return DriverFlow::Gone,
                Committed::Refused(refusal) if self.is_behind(&refusal) => match self.read_news(None).await {
                    Ok(JournalChange::Overtaken) => return DriverFlow::Rewind,
                    Ok(JournalChange::Some) if ahead => behind = DriverFlow::Rewind,
                    Ok(_) => {}
                    Err(flow) => return flow,
                },
                Committed::Refused(refusal) => {
                    let Some(last) = group.pop().filter(Outgoing::may_be_refused) else {
                        self.activation.lock().fail(Nondeterminism::Invalid { what: refusal.to_string() });
                        return DriverFlow::On;
                    };
                    self.activation.lock().reject(&last, &refusal.to_string());
                    if group.is_empty() {
                        return DriverFlow::On;
                    }
                }
            }
        }
    }

    /// Returns the batch of a group: its effects and its entries.
    pub(in crate::workflow) fn batch(&self, group: &[Outgoing]) -> Result<Batch, String> {
        self.batch_at(group, self.expected())
    }

    /// Returns the batch of a group for a journal at an expected version.
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
            // Progress resets the count of earlier claims.
            batch = batch.advance(self.holding.lease(), Position(0));
        }
        Ok(batch)
    }

    /// Returns the version that the journal must have for a write. Others may write at any time, and their entries are delivered
    /// afterwards. Once the workflow has dropped a step that may have recorded its end, a write requires an unchanged journal: the
    /// path that the workflow took instead counts only if the step has not recorded its end.
    pub(in crate::workflow) fn expected(&self) -> Expect<StreamVersion> {
        if self.activation.lock().has_abandoned() { Expect::Exact(self.last()) } else { Expect::Any }
    }

    /// Returns whether a batch was rejected because the journal has entries that the driver has not read.
    pub(in crate::workflow) fn is_behind(&self, refusal: &Refusal) -> bool {
        self.activation.lock().has_abandoned()
            && matches!(refusal, Refusal::Stream { stream, .. } if *stream == self.journal)
    }

    async fn written(&mut self, group: Vec<Outgoing>, receipt: &Receipt, ahead: bool) -> DriverFlow {
        self.stumbled = false;
        let Some(appended) = receipt.appended.iter().rev().find(|appended| appended.stream == self.journal)
        else {
            return DriverFlow::On;
        };
        let first = appended.first_version;
        let mut flow = DriverFlow::On;
        if first > self.next {
            match self.read_news(Some(first)).await {
                Ok(JournalChange::Overtaken) => flow = DriverFlow::Rewind,
                Ok(JournalChange::Some) if ahead => flow = DriverFlow::Rewind,
                Ok(_) => {}
                Err(flow) => return flow,
            }
        }
        let mut version = first;
        for outgoing in group {
            let Some(entry) = outgoing.entry else { continue };
            if matches!(entry, JournalEntry::ChildStarted(_)) {
                keys::wake(&self.started.queue);
            }
            if matches!(entry, JournalEntry::Done(_) | JournalEntry::GaveUp(_)) {
                self.shared.counters.steps.add(1);
            }
            if !outgoing.delivered {
                self.activation.lock().receive(Placed { version, at: receipt.at, entry });
            }
            version = version.next();
        }
        self.next = version;
        flow
    }

    /// Writes the outgoing entries of an end that was not committed.
    pub(in crate::workflow) async fn write_rest(&mut self, group: Vec<Outgoing>) -> DriverFlow {
        self.write(group, true).await
    }

    /// Delivers entries of others to a workflow that has already returned.
    pub(in crate::workflow) async fn deliver_rest(&mut self) -> Result<(), ActivationResult> {
        loop {
            let (delivered, orphans) = {
                let mut activation = self.activation.lock();
                (activation.deliver_entry(), activation.take_orphans())
            };
            self.cancel_children(orphans).await?;
            if !delivered {
                return Ok(());
            }
        }
    }

    /// Reads and receives the entries before a version: those of others, and those of steps that record themselves.
    pub(in crate::workflow) async fn read_news(
        &mut self,
        before: Option<StreamVersion>,
    ) -> Result<JournalChange, DriverFlow> {
        match self.journal_since().await {
            Err(Unready::Store(error)) => {
                // The next driver of the run reads it again. Steps that are in flight have run in part.
                tracing::warn!(target: WORKFLOW, %error, "journal read failed");
                self.holding.hand_back(UNREAD).await;
                Err(DriverFlow::Gone)
            }
            read => Ok(self.take_up(read, before)),
        }
    }

    /// Reads the entries that this driver does not know.
    pub(super) async fn journal_since(&mut self) -> Result<Vec<Placed>, Unready> {
        let read = journal::read(&self.shared.worker.store, &self.journal, Some(self.next)).await?;
        self.read_at = process::now();
        Ok(read)
    }

    /// Receives the entries before a version. A journal that cannot be decoded makes the run unfit to continue.
    pub(super) fn take_up(
        &mut self,
        read: Result<Vec<Placed>, Unready>,
        before: Option<StreamVersion>,
    ) -> JournalChange {
        let mut news = JournalChange::Nothing;
        let read = match read {
            Ok(read) => read,
            Err(Unready::Store(_)) => return news,
            Err(Unready::Never(what)) => {
                self.activation.lock().fail(Nondeterminism::Invalid { what: what.to_string() });
                return news;
            }
        };
        for placed in read {
            if before.is_some_and(|before| placed.version >= before) {
                break;
            }
            self.next = placed.version.next();
            let own = self.activation.lock().note_own_record(&placed.entry);
            match own {
                Some(waits) => {
                    self.shared.counters.steps.add(1);
                    news = if waits { news.max(JournalChange::Some) } else { JournalChange::Overtaken };
                }
                None if placed.entry.is_foreign() => news = news.max(JournalChange::Some),
                None => continue,
            }
            self.activation.lock().receive(placed);
        }
        news
    }
}

fn worse(a: DriverFlow, b: DriverFlow) -> DriverFlow {
    match (&a, &b) {
        (DriverFlow::Gone, _) | (_, DriverFlow::On) => a,
        (DriverFlow::Rewind, DriverFlow::Rewind) => a,
        _ => b,
    }
}

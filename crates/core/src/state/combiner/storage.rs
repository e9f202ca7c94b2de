//! Record I/O: reads the base of a draft, plans the write of a draft, and sends it.

use std::time::Duration;

use super::{CachedRecord, Carried, Combiner};
use crate::id::{DocVersion, Epoch, OpId};
use crate::payload::Payload;
use crate::process;
use crate::runtime::contention::WriteTurn;
use crate::runtime::panic::{discard, isolate};
use crate::runtime::timer::sleep_until;
use crate::state::codec::{Content, Misread, Value};
use crate::state::error::StateError;
use crate::store::{ApplyError, Batch, DocumentFound, Expect, Receipt, Refusal, StoredDocument};

/// The operation to send.
pub(super) enum Plan {
    /// Nothing, if the record still has this version, or is still absent.
    Confirm(Option<DocVersion>),
    /// A value.
    Put(Expect<DocVersion>, Payload),
    /// A deletion of the record.
    Delete(DocVersion),
}

/// The result of a write.
pub(super) enum Wrote {
    Done(DocVersion),
    Conflict(DocumentFound),
    /// The id is void: a caller that left has resolved it. Nothing was written.
    Void,
    /// The history of the store was cut, so the observed state is invalid.
    OtherEpoch,
    Failed(StateError),
}

impl<T: Value> Combiner<T> {
    /// Returns the base of the next draft when it is this driver's turn: the carried record, or the one in the store.
    pub(super) async fn base(&self, known: &mut CachedRecord<T>) -> Result<Carried<T>, StateError> {
        self.await_turn(known).await?;
        let epoch = self.store.epoch();
        if let Some(base) = known.carried.take() {
            if base.epoch == epoch {
                return Ok(base);
            }
            discard(base);
        }
        let found = self.find().await?;
        self.adopt(found, epoch)
    }

    /// Leaves a gap after this driver's turn, and waits for the end of a foreign one. Carries the record that it reads.
    pub(super) async fn await_turn(&self, known: &mut CachedRecord<T>) -> Result<(), StateError> {
        match known.contention.next(process::now()) {
            WriteTurn::Write => return Ok(()),
            WriteTurn::Read => {
                discard(known.carried.take());
                return Ok(());
            }
            WriteTurn::Gap(gap) => self.leave_gap(known, gap).await?,
            WriteTurn::Wait => {}
        }
        while known.contention.next(process::now()) == WriteTurn::Wait {
            let pause_end = process::now() + known.contention.pause(process::now());
            sleep_until(pause_end).await;
            known.contention.delayed(process::elapsed(pause_end));
            let epoch = self.store.epoch();
            let found = self.find().await?;
            if known.contention.read(version(&found), process::now()) {
                discard(known.carried.take());
                known.carried = Some(self.adopt(found, epoch)?);
            }
        }
        Ok(())
    }

    /// Waits until another writer has written, or until the gap ends.
    async fn leave_gap(&self, known: &mut CachedRecord<T>, gap: Duration) -> Result<(), StateError> {
        let Some(own) = known.carried.as_ref().map(|carried| version(&carried.found)) else {
            known.contention.gap_unused(process::now());
            return Ok(());
        };
        let end = process::now() + gap;
        while process::now() < end {
            let pause_end = end.min(process::now() + known.contention.poll());
            sleep_until(pause_end).await;
            known.contention.delayed(process::elapsed(pause_end));
            let found = version(&self.find().await?);
            if found != own {
                discard(known.carried.take());
                known.contention.gap_used(found, process::now());
                return Ok(());
            }
        }
        known.contention.gap_unused(process::now());
        Ok(())
    }

    async fn find(&self) -> Result<Option<(DocVersion, Payload)>, StateError> {
        let found = self.store.document(&self.key).await?;
        Ok(found.map(|document| (document.version, document.value)))
    }

    fn adopt(&self, found: Option<(DocVersion, Payload)>, epoch: Epoch) -> Result<Carried<T>, StateError> {
        let value = match &found {
            Some((version, value)) => self.decode(*version, value)?,
            None => {
                let absent = isolate("the default of the value", || self.codec.absent());
                absent.map_err(|reason| self.panicked(reason))?
            }
        };
        Ok(Carried { found, value, epoch })
    }

    /// Decodes a document.
    pub(in crate::state) fn read(&self, document: &StoredDocument) -> Result<T, StateError> {
        self.decode(document.version, &document.value)
    }

    fn decode(&self, version: DocVersion, value: &Payload) -> Result<T, StateError> {
        let key = self.name();
        let read = isolate("the decoder", || self.codec.read(value));
        read.map_err(Misread::Misfit).flatten().map_err(|misread| match misread {
            Misread::Misfit(reason) => StateError::Undecodable { key, version, reason },
            Misread::Newer { found, known } => StateError::NewerSchema { key, version, found, known },
        })
    }

    /// Encodes a draft.
    pub(super) fn content(&self, draft: &T) -> Result<Content, String> {
        isolate("the encoder", || self.codec.write(draft)).flatten()
    }

    /// Returns the operation of a draft: nothing when no mutation changed it or the content is the same.
    pub(super) fn plan(&self, base: &Carried<T>, draft: Option<&T>) -> Result<Plan, String> {
        let known = base.found.as_ref().map(|(version, _)| *version);
        let Some(draft) = draft else { return Ok(Plan::Confirm(known)) };
        Ok(match (self.content(draft)?, &base.found) {
            (Content::AsFound, _) | (Content::Gone, None) => Plan::Confirm(known),
            (Content::Is(value), Some((version, old))) if *old == value => Plan::Confirm(Some(*version)),
            (Content::Is(value), Some((version, _))) => Plan::Put(Expect::Exact(*version), value),
            (Content::Is(value), None) => Plan::Put(Expect::Absent, value),
            (Content::Gone, Some((version, _))) => Plan::Delete(*version),
        })
    }

    pub(super) async fn send(&self, plan: &Plan, mutations: usize, id: OpId, epoch: Epoch) -> Wrote {
        let (batch, past) = match plan {
            Plan::Confirm(version) => return self.confirm(*version, epoch).await,
            Plan::Put(expect, value) => (
                Batch::new().put(&self.key, *expect, value.clone()),
                self.history.as_ref().map(|history| history.put(value, mutations)),
            ),
            Plan::Delete(version) => (
                Batch::new().delete(&self.key, Expect::Exact(*version)),
                self.history.as_ref().map(|history| history.delete(mutations)),
            ),
        };
        let batch = match past.transpose() {
            Ok(past) => past.into_iter().fold(batch, Batch::and),
            Err(error) => return Wrote::Failed(error),
        };
        match self.store.apply(batch.op_id(id).observed_in(epoch)).await {
            Ok(receipt) => written(&receipt),
            Err(ApplyError::Refused(refusal)) => match *refusal {
                Refusal::Document { found, .. } => Wrote::Conflict(*found),
                Refusal::OperationVoid { .. } => Wrote::Void,
                Refusal::Epoch { .. } => Wrote::OtherEpoch,
                other => Wrote::Failed(StateError::Write(Box::new(other.into()))),
            },
            Err(error) => Wrote::Failed(StateError::Write(Box::new(error))),
        }
    }

    /// Confirms an unchanged draft, if the record still has the observed version.
    async fn confirm(&self, version: Option<DocVersion>, epoch: Epoch) -> Wrote {
        let found = match self.store.document(&self.key).await {
            Ok(found) => found,
            Err(error) => return Wrote::Failed(StateError::Read(error)),
        };
        if self.store.epoch() != epoch {
            return Wrote::OtherEpoch;
        }
        match (found, version) {
            (None, None) => Wrote::Done(DocVersion(0)),
            (Some(document), Some(version)) if document.version == version => Wrote::Done(version),
            (Some(document), _) => Wrote::Conflict(DocumentFound::Present(document)),
            (None, Some(_)) => Wrote::Conflict(DocumentFound::Absent),
        }
    }
}

fn written(receipt: &Receipt) -> Wrote {
    match receipt.documents.first() {
        Some(written) => Wrote::Done(written.version),
        None => Wrote::Conflict(DocumentFound::Absent),
    }
}

/// Returns the version of the found record in the form that contention uses.
fn version(found: &Option<(DocVersion, Payload)>) -> Option<u64> {
    found.as_ref().map(|(version, _)| version.0)
}

pub(super) fn version_of(found: &DocumentFound) -> Option<DocVersion> {
    match found {
        DocumentFound::Absent => None,
        DocumentFound::Gone(version) => Some(*version),
        DocumentFound::Present(document) => Some(document.version),
    }
}

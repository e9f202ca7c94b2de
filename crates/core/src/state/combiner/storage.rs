//! Record I/O: reads the base of a draft, decides what a draft means for the record, and sends it.

use super::{Carried, Combiner, Known};
use crate::id::{DocVersion, Epoch, OpId};
use crate::payload::Payload;
use crate::runtime::panic::{discard, isolate};
use crate::state::codec::{Content, Misread, Value};
use crate::state::error::StateError;
use crate::store::{ApplyError, Batch, Document, DocumentFound, Expect, Receipt, Refusal};

/// What is to be sent.
pub(super) enum Plan {
    /// Nothing, if the record is still this version, or still absent.
    Confirm(Option<DocVersion>),
    /// A value.
    Put(Expect<DocVersion>, Payload),
    /// The end of the record.
    Delete(DocVersion),
}

/// What became of a write.
pub(super) enum Wrote {
    Done(DocVersion),
    Conflict(DocumentFound),
    /// The id is void: a caller that left has resolved it. Nothing was written.
    Void,
    /// The history of the store was cut: what was seen counts no more.
    OtherEpoch,
    Failed(StateError),
}

impl<T: Value> Combiner<T> {
    /// Returns the record to draft on: the one that was carried, or the one in the store. Beside other writers it is always
    /// read, so that the attempt which follows is against the newest version.
    pub(super) async fn base(&self, known: &mut Known<T>) -> Result<Carried<T>, StateError> {
        let epoch = self.store.epoch();
        let contended = known.contention.is_contended();
        if let Some(base) = known.carried.take_if(|base| base.epoch == epoch && !contended) {
            return Ok(base);
        }
        let found = self.store.document(&self.key).await?.map(|document| (document.version, document.value));
        if let Some(base) = known.carried.take() {
            let version = found.as_ref().map(|(version, _)| *version);
            if base.epoch == epoch && version == base.found.as_ref().map(|(version, _)| *version) {
                return Ok(base);
            }
            known.contention.foreign();
            discard(base);
        }
        self.adopt(found, epoch)
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
    pub(in crate::state) fn read(&self, document: &Document) -> Result<T, StateError> {
        self.decode(document.version, &document.value)
    }

    fn decode(&self, version: DocVersion, value: &Payload) -> Result<T, StateError> {
        let container = self.name();
        let read = isolate("the decoder", || self.codec.read(value));
        read.map_err(Misread::Misfit).flatten().map_err(|misread| match misread {
            Misread::Misfit(reason) => StateError::Undecodable { container, version, reason },
            Misread::Newer { found, known } => StateError::NewerSchema { container, version, found, known },
        })
    }

    /// What a draft means for the record.
    pub(super) fn content(&self, draft: &T) -> Result<Content, String> {
        isolate("the encoder", || self.codec.write(draft)).flatten()
    }

    /// Returns what a draft asks for: nothing when no mutation changed it or the content is the same.
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

    /// Nothing changed, if the record is still the one that was seen.
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

pub(super) fn version_of(found: &DocumentFound) -> Option<DocVersion> {
    match found {
        DocumentFound::Absent => None,
        DocumentFound::Gone(version) => Some(*version),
        DocumentFound::Present(document) => Some(document.version),
    }
}

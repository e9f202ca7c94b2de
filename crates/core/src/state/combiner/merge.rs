//! Delta writes, which need no draft and never conflict.

use std::time::Instant;

use super::notify::WriteReport;
use super::{Carried, Combiner, Pending, Ran, Work};
use crate::id::{Epoch, OpId};
use crate::process;
use crate::runtime::panic::{discard, isolate};
use crate::state::WriteOutcome;
use crate::state::codec::Value;
use crate::state::error::StateError;
use crate::state::mutator::End;
use crate::store::{ApplyError, Batch, Delta, Receipt, Refusal};

/// Deltas with the mutation that sent them.
type Sent<T> = (Vec<Delta>, Ran<T>);

impl<T: Value> Combiner<T> {
    /// Sends deltas as one merge. If the store refuses it, sends each mutation's deltas separately.
    pub(super) async fn merge(&self, batch: Vec<Pending<T>>) {
        let mut known = self.known.lock().await;
        let carried = &mut known.carried;
        let (id, begun) = (OpId::new(), process::now());
        let sent: Vec<Sent<T>> = batch.into_iter().filter_map(|pending| sent(pending, id)).collect();
        if sent.is_empty() {
            return;
        }
        // The epoch is read first, so the receipt is at least as new.
        let epoch = self.store.epoch();
        let all = sent.iter().flat_map(|(deltas, _)| deltas.iter().cloned()).collect();
        let result = self.send_deltas(all, sent.len(), id).await;
        if !matches!(result, Err(ApplyError::Refused(_))) || sent.len() == 1 {
            let outcome = self.merged(result, carried, epoch);
            self.report(sent.iter().map(|(_, ran)| ran), &outcome, carried, begun);
            sent.into_iter().for_each(|(_, ran)| ran.end(end_of(outcome.clone())));
            return;
        }
        for (deltas, ran) in sent {
            ran.mutation.again();
            let id = OpId::new();
            if ran.mutation.write(id) {
                let result = self.send_deltas(deltas, 1, id).await;
                let outcome = self.merged(result, carried, epoch);
                self.report(std::iter::once(&ran), &outcome, carried, begun);
                ran.end(end_of(outcome));
            }
        }
    }

    fn report<'a>(
        &self,
        ran: impl Iterator<Item = &'a Ran<T>>,
        outcome: &Result<WriteOutcome, StateError>,
        carried: &Option<Carried<T>>,
        begun: Instant,
    ) {
        if let Ok(outcome) = *outcome {
            let new = carried.as_ref().and_then(|carried| carried.found.as_ref()).map(|(_, value)| value);
            self.observed(ran, WriteReport { old: None, new, outcome, attempts: 1, begun });
        }
    }

    async fn send_deltas(
        &self,
        deltas: Vec<Delta>,
        mutations: usize,
        id: OpId,
    ) -> Result<Receipt, ApplyError> {
        let past = self.history.as_ref().map(|history| history.merge(&deltas, mutations)).transpose()?;
        let batch = Batch::new().merge(&self.key, deltas);
        self.store.apply(past.into_iter().fold(batch, Batch::and).op_id(id)).await
    }

    fn merged(
        &self,
        result: Result<Receipt, ApplyError>,
        carried: &mut Option<Carried<T>>,
        epoch: Epoch,
    ) -> Result<WriteOutcome, StateError> {
        discard(carried.take());
        let error = match result {
            Ok(receipt) => {
                let Some(written) = receipt.documents.first() else {
                    return Err(StateError::NotFound { key: self.name() });
                };
                let found = written.value.clone().map(|value| (written.version, value));
                *carried = found.and_then(|(version, value)| {
                    let read = isolate("the decoder", || self.codec.read(&value)).ok()?.ok()?;
                    Some(Carried { value: read, found: Some((version, value)), epoch })
                });
                return Ok(WriteOutcome::Committed { version: written.version });
            }
            Err(error) => error,
        };
        match error {
            ApplyError::Refused(refusal) if matches!(*refusal, Refusal::NotFound { .. }) => {
                Err(StateError::NotFound { key: self.name() })
            }
            other => Err(StateError::Write(Box::new(other))),
        }
    }
}

/// Returns the deltas of a caller that still waits, about to be written under this id.
fn sent<T>(pending: Pending<T>, id: OpId) -> Option<Sent<T>> {
    let Pending { work: Work::Deltas(deltas, mutator), mutation, within, since, place } = pending else {
        return None;
    };
    let ran = Ran { mutator, mutation, within, since, place, fine: true, failure: None };
    (ran.mutation.run() && ran.mutation.write(id)).then_some((deltas, ran))
}

fn end_of(outcome: Result<WriteOutcome, StateError>) -> End {
    outcome.map_or_else(End::Failed, End::Did)
}

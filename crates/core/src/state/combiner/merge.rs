//! Deltas: they need no draft, and meet no foreign writer.

use std::time::Instant;

use super::observed::Told;
use super::{Carried, Cell, Pending, Ran, Work};
use crate::id::{Epoch, OpId};
use crate::state::Outcome;
use crate::state::codec::Value;
use crate::state::error::StateError;
use crate::store::{ApplyError, Batch, Delta, Receipt, Refusal};

/// Deltas with whoever sent them.
type Sent<T> = (Vec<Delta>, Ran<T>);

impl<T: Value> Cell<T> {
    /// Sends deltas as one merge; if that is refused, each on its own.
    pub(super) async fn merge(&self, batch: Vec<Pending<T>>) {
        let mut carried = self.carried.lock().await;
        let (id, begun) = (OpId::new(), Instant::now());
        let sent: Vec<Sent<T>> = batch.into_iter().filter_map(|pending| sent(pending, id)).collect();
        if sent.is_empty() {
            return;
        }
        // Taken before: what the receipt says is at least as new.
        let epoch = self.store.epoch();
        let all = sent.iter().flat_map(|(deltas, _)| deltas.iter().cloned()).collect();
        let result = self.send_deltas(all, sent.len(), id).await;
        if !matches!(result, Err(ApplyError::Refused(_))) || sent.len() == 1 {
            let outcome = self.merged(result, &mut carried, epoch);
            self.told(sent.iter().map(|(_, ran)| ran), &outcome, &carried, begun);
            sent.into_iter().for_each(|(_, ran)| ran.answer(outcome.clone()));
            return;
        }
        for (deltas, ran) in sent {
            ran.ticket.again();
            let id = OpId::new();
            if ran.ticket.write(id) {
                let result = self.send_deltas(deltas, 1, id).await;
                let outcome = self.merged(result, &mut carried, epoch);
                self.told(std::iter::once(&ran), &outcome, &carried, begun);
                ran.answer(outcome);
            }
        }
    }

    fn told<'a>(
        &self,
        ran: impl Iterator<Item = &'a Ran<T>>,
        outcome: &Result<Outcome, StateError>,
        carried: &Option<Carried<T>>,
        begun: Instant,
    ) {
        if let Ok(outcome) = *outcome {
            let new = carried.as_ref().and_then(|carried| carried.found.as_ref()).map(|(_, value)| value);
            self.observed(ran, Told { old: None, new, outcome, attempts: 1, begun });
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
    ) -> Result<Outcome, StateError> {
        *carried = None;
        let error = match result {
            Ok(receipt) => {
                let Some(written) = receipt.documents.first() else {
                    return Err(StateError::NotFound { container: self.name() });
                };
                let found = written.value.clone().map(|value| (written.version, value));
                *carried = found.and_then(|(version, value)| {
                    let read = self.codec.read(&value).ok()?;
                    Some(Carried { value: read, found: Some((version, value)), epoch })
                });
                return Ok(Outcome::Committed { version: written.version });
            }
            Err(error) => error,
        };
        match error {
            ApplyError::Refused(refusal) if matches!(*refusal, Refusal::NotFound { .. }) => {
                Err(StateError::NotFound { container: self.name() })
            }
            other => Err(StateError::Write(Box::new(other))),
        }
    }
}

/// The deltas of a caller that still wants them, about to be written under this id.
fn sent<T>(pending: Pending<T>, id: OpId) -> Option<Sent<T>> {
    let Pending { work: Work::Deltas(deltas, mutator), ticket, since, place } = pending else { return None };
    let ran = Ran { mutator, ticket, since, place, fine: true, invalid: None };
    (ran.ticket.run() && ran.ticket.write(id)).then_some((deltas, ran))
}

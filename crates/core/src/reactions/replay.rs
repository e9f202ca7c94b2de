//! Replay of a parked event, on its own.
//!
//! The replay leases the row of the event's key, so that no other worker handles the key. If the process dies, another
//! worker claims the row of the replay, and the event is still parked.

use std::sync::Arc;

use super::definition::Definition;
use super::effects::Effects;
use super::invoke::{Call, Called};
use super::keys;
use super::parked::Note;
use super::stored::Stored;
use crate::clock::Due;
use crate::id::Position;
use crate::key::Key;
use crate::payload::Payload;
use crate::process;
use crate::store::{Batch, Claim, ClaimDenied, Expect, Grant, StoredDocument};
use crate::worker::{Committed, LeasedWork, Worker, unique_owner};

/// The error for an event that is neither complete in its document nor in its stream.
const NOT_THERE: &str = "the event is too large for its document, and its stream no longer contains it";

/// A replay in progress.
pub(super) struct Replay {
    pub(super) worker: Arc<Worker>,
    pub(super) definition: Arc<Definition>,
    pub(super) stored: Arc<Stored>,
    pub(super) key: Key,
    /// The key in the name of the document: the stream, if no key could be chosen.
    pub(super) parked_under: Key,
    pub(super) position: Position,
    pub(super) grant: Grant,
    pub(super) work: LeasedWork,
}

/// The outcome of a replay.
enum Ended {
    /// The event is not parked, so there is nothing to do.
    Gone,
    /// The event was handled.
    Did(StoredDocument, Effects),
    /// The event stays parked, with a new error.
    InVain(StoredDocument, Note, String),
    /// The replay is deferred.
    Later(Due),
    /// The row is released.
    Back,
}

/// The row of the key.
enum Row {
    Held(LeasedWork),
    /// There is no row, so no other worker can hold it.
    None,
    /// The row cannot be leased, and the replay ends with this outcome.
    Denied(Box<Ended>),
}

impl Replay {
    pub(super) async fn run(mut self) {
        let Some((document, note)) = self.read_parked().await else {
            return self.end(Ended::Gone, None).await;
        };
        let attempts = self.grant.row.attempts;
        if !self.definition.rules.retry.allows(attempts) {
            let error = format!("the workers died or hung in {} replays", attempts.saturating_sub(1));
            return self.end(Ended::InVain(document, note, error), None).await;
        }
        let key = match self.key_of(&note).await {
            Ok(Some(key)) => key,
            // The key function now rejects the event.
            Ok(None) => return self.end(Ended::Did(document, Effects::none()), None).await,
            Err(error) => return self.end(Ended::InVain(document, note, error), None).await,
        };
        self.key = key;
        match self.hold_key(&document, &note).await {
            Row::Denied(ended) => self.end(*ended, None).await,
            Row::None => self.end(self.tried(document, note).await, None).await,
            Row::Held(key) => self.end(self.tried(document, note).await, Some(key)).await,
        }
    }

    /// Returns the key of the event. If none could be chosen when the event was parked, the key is chosen now.
    async fn key_of(&self, note: &Note) -> Result<Option<Key>, String> {
        if !note.unrouted {
            return Ok(Some(self.key.clone()));
        }
        let event = note.whole_event(&self.worker.store).await.map_err(|error| error.to_string())?;
        let Some(event) = event else { return Err(NOT_THERE.to_owned()) };
        self.definition.routing(&self.stored).choose(&event)
    }

    /// Returns the parked event, if it is still parked.
    async fn read_parked(&self) -> Option<(StoredDocument, Note)> {
        let document = keys::parked(&self.definition.name, &self.parked_under, self.position).ok()?;
        let document = self.worker.store.document(&document).await.ok().flatten()?;
        let note = document.value.parse().ok()?;
        Some((document, note))
    }

    /// Leases the row of the key under a unique owner, because an owner can take over its own lease.
    async fn hold_key(&self, document: &StoredDocument, note: &Note) -> Row {
        let names = keys::row(&self.definition.name, &self.key)
            .and_then(|row| Ok((row, unique_owner(Some(&self.worker.owner))?)));
        let Ok((row, owner)) = names else { return Row::None };
        let (sent, ttl) = (process::now(), self.definition.ttl);
        let Ok(claimed) = self.worker.claims.send(Claim::existing(&owner, &row, ttl)).await else {
            return Row::Denied(Box::new(Ended::Back));
        };
        if let Some(grant) = claimed.grants.first() {
            let held = LeasedWork::start(&self.worker.store, grant, ttl, sent);
            return held.map_or_else(|_| Row::Denied(Box::new(Ended::Back)), Row::Held);
        }
        match claimed.denied {
            Some(ClaimDenied::Held(_)) => {
                Row::Denied(Box::new(Ended::Later(Due::After(self.worker.options.poll_interval))))
            }
            Some(ClaimDenied::Blocked(reason)) => {
                let error = format!("not replayed: its key is blocked, unblock it first: {reason}");
                Row::Denied(Box::new(Ended::InVain(document.clone(), note.clone(), error)))
            }
            Some(ClaimDenied::NotFound) | None => Row::None,
        }
    }

    async fn tried(&self, document: StoredDocument, note: Note) -> Ended {
        let event = match note.whole_event(&self.worker.store).await {
            Ok(Some(event)) => event,
            Ok(None) => {
                return Ended::InVain(document, note, NOT_THERE.to_owned());
            }
            Err(_) => return Ended::Back,
        };
        let call = Call {
            worker: &self.worker,
            definition: &self.definition,
            key: &self.key,
            attempt: self.grant.row.attempts,
            lease: self.work.token(),
        };
        match call.run(vec![event]).await {
            Called::Did(effects) => Ended::Did(document, effects),
            Called::Failed(failure) => match failure.deferral() {
                Some(due) => Ended::Later(due),
                None => Ended::InVain(document, note, failure.message().to_owned()),
            },
            Called::Lost | Called::Cut => Ended::Back,
        }
    }

    /// Commits the end of the replay, and releases the key.
    async fn end(&self, ended: Ended, key: Option<LeasedWork>) {
        let effects = matches!(ended, Ended::Did(..));
        let committed = match self.ending(&ended).await {
            Some(batch) => {
                let letting_go =
                    key.as_ref().map_or_else(Batch::new, |key| Batch::new().release(key.lease()));
                Some(self.work.commit(letting_go.and(batch)).await)
            }
            None => None,
        };
        match committed {
            Some(Committed::Done(_)) => {
                if effects {
                    self.definition.counters.handled.add(1);
                }
                return;
            }
            // Refused effects are a failure like any other.
            Some(Committed::Refused(refusal)) if effects => {
                if let Some((document, note)) = self.read_parked().await
                    && let Some(batch) =
                        self.ending(&Ended::InVain(document, note, refusal.to_string())).await
                {
                    drop(self.work.commit(batch).await);
                }
            }
            _ => self.work.release().await,
        }
        if let Some(key) = key {
            key.release().await;
        }
    }

    /// Builds the batch that ends the replay; `None` when the row is released.
    async fn ending(&self, ended: &Ended) -> Option<Batch> {
        let lease = self.work.lease();
        match ended {
            Ended::Gone => Some(Batch::new().ack(lease)),
            Ended::Did(document, effects) => {
                let done = effects.0.clone().delete(&document.key, Expect::Exact(document.version));
                Some(done.ack(lease))
            }
            Ended::InVain(document, note, error) => {
                self.definition.counters.failed.add(1);
                let now = self.worker.store.now().await.ok()?;
                let note = Payload::of(&note.clone().again(error, now)).ok()?;
                Some(Batch::new().put(&document.key, Expect::Exact(document.version), note).ack(lease))
            }
            Ended::Later(due) => Some(Batch::new().defer(lease, *due)),
            Ended::Back => None,
        }
    }
}

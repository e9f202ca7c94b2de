//! Views and operator commands of an outbox.

use serde::{Deserialize, Serialize};

use super::error::OutboxError;
use super::keys::{self, Row};
use super::message::{Outbox, Written};
use crate::clock::Timestamp;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{
    Batch, Event, Holder, Operation, Page, PageOf, Refusal, Selection, SharedStore, StreamQuery, WorkFilter,
    WorkRow,
};

/// An undelivered message. Of messages in order, only the first is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its id. Empty for a message in order that cannot be decoded.
    pub id: String,
    /// Its destination. Empty when the message cannot be decoded; `payload` then holds the whole stored message.
    pub destination: String,
    /// Its payload.
    pub payload: Payload,
    /// The name of the order; `None` when it is independent of others.
    pub in_order_of: Option<String>,
    /// Its state.
    pub state: MessageState,
    /// Attempts so far, including the current one.
    pub attempts: u32,
    /// The error of the last attempt.
    pub last_error: Option<String>,
}

/// The result of a [lookup](Outbox::find): the message as it was, and its exact identity.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundMessage {
    /// The view of the message.
    pub view: MessageView,
    row: Key,
    /// The creation number of the row. A message that replaces another has a different one.
    seq: u64,
    /// The version in the stream of ordered messages.
    version: Option<StreamVersion>,
}

/// The state of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// It is sent at this instant, or as soon as a sender has a free slot.
    Due(Timestamp),
    /// A sender is delivering it.
    Sending {
        /// The owner of the lease.
        by: String,
        /// When the lease expires, unless it is renewed.
        until: Timestamp,
    },
    /// It is not sent until an operator unblocks it.
    Blocked {
        /// The reason.
        reason: String,
        /// The start of the block.
        since: Timestamp,
    },
}

impl Outbox {
    /// Returns the undelivered messages, including blocked ones, in the order of the rows. Of messages in order, only the
    /// first is returned.
    ///
    /// # Errors
    /// Returns [`OutboxError::Store`] when the store cannot be read.
    pub async fn list(&self, store: &SharedStore, page: Page) -> Result<PageOf<MessageView>, OutboxError> {
        let filter = WorkFilter { queue: Some(keys::queue(self.name())?), ..WorkFilter::default() };
        let found = store.works(&filter, page).await?;
        let mut rows = Vec::new();
        for row in found.rows {
            rows.extend(seen(store, row).await?.map(|found| found.view));
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// Returns the number of blocked rows. A row is a message, or all messages of one order.
    ///
    /// # Errors
    /// Returns [`OutboxError::Store`] when the store cannot be read.
    pub async fn count_blocked(&self, store: &SharedStore) -> Result<u64, OutboxError> {
        Ok(store.count_work(&self.blocked()?).await?)
    }

    /// Unblocks all blocked messages, with a fresh retry budget. Returns the number of unblocked rows.
    ///
    /// # Errors
    /// Returns [`OutboxError`] when the store fails.
    pub async fn unblock_all(&self, store: &SharedStore) -> Result<u64, OutboxError> {
        let batch = Batch::new().operate(Selection::Filter(self.blocked()?), Operation::Unblock);
        Ok(store.apply(batch).await?.operated.into_iter().sum())
    }

    /// Unblocks a message, with a fresh retry budget, by its id or by the name of its order. A message that is not blocked
    /// is left unchanged.
    ///
    /// # Errors
    /// Returns [`OutboxError::Unknown`] when there is no such message.
    pub async fn unblock(&self, store: &SharedStore, message: &str) -> Result<(), OutboxError> {
        let found = self.find(store, message).await?;
        store.apply(Batch::new().operate(Selection::Keys(vec![found.row]), Operation::Unblock)).await?;
        Ok(())
    }

    /// Finds a message by its id, or the first message of an order by the name of the order. An id takes precedence.
    ///
    /// # Errors
    /// Returns [`OutboxError::Unknown`] when there is no such message.
    pub async fn find(&self, store: &SharedStore, message: &str) -> Result<FoundMessage, OutboxError> {
        let keys = [keys::message(self.name(), message), keys::line(self.name(), message)];
        for key in keys.into_iter().flatten() {
            let Some(row) = store.work(&key).await? else { continue };
            if let Some(found) = seen(store, row).await? {
                return Ok(found);
            }
        }
        Err(self.unknown(message))
    }

    /// Removes a message without sending it, by its id, or the first message of an order, so that the next ones continue.
    /// To show the message first, use [`find`](Self::find) and [`discard_found`](Self::discard_found).
    ///
    /// # Errors
    /// Returns [`OutboxError::Unknown`] when there is no such message, or [`OutboxError::UnderWay`] while a sender delivers
    /// it.
    pub async fn discard(&self, store: &SharedStore, message: &str) -> Result<(), OutboxError> {
        let found = self.find(store, message).await?;
        self.discard_found(store, &found).await
    }

    /// Removes exactly the message that was found. It removes neither a message that has become the first of its order
    /// since then, nor a later one with the same id.
    ///
    /// # Errors
    /// Returns [`OutboxError::Unknown`] when the message no longer exists, or [`OutboxError::UnderWay`] while a sender
    /// delivers it.
    pub async fn discard_found(&self, store: &SharedStore, found: &FoundMessage) -> Result<(), OutboxError> {
        let FoundMessage { view, row: key, seq, version } = found;
        let name = || view.in_order_of.as_deref().filter(|_| view.id.is_empty()).unwrap_or(&view.id);
        let row = Selection::Keys(vec![key.clone()]);
        let batch = Batch::new().guard_work(key, *seq);
        let batch = match version {
            Some(version) => {
                let first = first(store, key).await?;
                if first.is_none_or(|first| first.version != *version) {
                    return Err(self.unknown(name()));
                }
                // Truncates up to this event only, whatever is delivered before the batch is applied.
                batch.truncate(key, version.next()).operate(row, Operation::Unblock)
            }
            None => batch.operate(row, Operation::Remove),
        };
        let error = match store.apply(batch).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        Err(match error.refusal() {
            Some(Refusal::Fenced { holder, .. }) => match &**holder {
                Holder::Held(lease) => {
                    let (outbox, message) = (self.name().to_owned(), name().to_owned());
                    OutboxError::UnderWay { outbox, message, by: lease.owner.to_string() }
                }
                Holder::Gone | Holder::Nobody => self.unknown(name()),
            },
            _ => error.into(),
        })
    }

    fn unknown(&self, message: &str) -> OutboxError {
        OutboxError::Unknown { outbox: self.name().to_owned(), message: message.to_owned() }
    }

    fn blocked(&self) -> Result<WorkFilter, OutboxError> {
        let queue = Some(keys::queue(self.name())?);
        Ok(WorkFilter { queue, blocked: Some(true), ..WorkFilter::default() })
    }
}

/// Returns the first of the messages in order.
async fn first(store: &SharedStore, line: &Key) -> Result<Option<Event>, OutboxError> {
    Ok(store.read_stream(StreamQuery::forward(line, 1)).await?.events.into_iter().next())
}

/// Returns the view of a row; `None` when it has no message to deliver.
async fn seen(store: &SharedStore, row: WorkRow) -> Result<Option<FoundMessage>, OutboxError> {
    let (known, in_order_of) = match keys::row(&row.key) {
        Some(Row::Line(line)) => (String::new(), Some(line)),
        Some(Row::Message(id)) => (id, None),
        None => return Ok(None),
    };
    let (payload, version) = match &in_order_of {
        Some(_) => match first(store, &row.key).await? {
            Some(event) => (event.payload, Some(event.version)),
            None => return Ok(None),
        },
        None => (row.payload, None),
    };
    // A message that cannot be decoded is blocked by the sender, so it must be visible to operators.
    let Written { id, destination, payload } = payload.parse().unwrap_or_else(|_| Written {
        id: known,
        destination: String::new(),
        payload: payload.clone(),
    });
    let state = match (row.blocked, row.lease, row.due) {
        (Some(blocked), ..) => MessageState::Blocked { reason: blocked.reason, since: blocked.since },
        (_, Some(lease), _) => MessageState::Sending { by: lease.owner.to_string(), until: lease.until },
        (_, _, Some(due)) => MessageState::Due(due),
        (_, _, None) => return Ok(None),
    };
    let (attempts, last_error) = (row.attempts, row.last_error);
    let view = MessageView { id, destination, payload, in_order_of, state, attempts, last_error };
    Ok(Some(FoundMessage { view, row: row.key, seq: row.seq, version }))
}

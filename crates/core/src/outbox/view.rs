//! What people see of an outbox, and what they do about it.

use serde::{Deserialize, Serialize};

use super::error::OutboxError;
use super::message::{Outbox, Written};
use super::names::{self, Row};
use crate::clock::Timestamp;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{
    Batch, Event, Holder, Operation, Page, PageOf, Refusal, Selection, SharedStore, StreamQuery, WorkFilter,
    WorkRow,
};

/// A message that is not delivered yet: of those in order, the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its id. Empty in order when what the message says does not read.
    pub id: String,
    /// Where it goes. Empty when what the message says does not read; `payload` is all of it then.
    pub destination: String,
    /// What it says.
    pub payload: Payload,
    /// What it is in the order of; `None` when it is independent of others.
    pub in_order_of: Option<String>,
    /// How it stands.
    pub state: MessageState,
    /// Attempts so far, the present one included.
    pub attempts: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
}

/// A message that was [looked up](Outbox::find), as it was then, and which one exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundMessage {
    /// What people see of it.
    pub view: MessageView,
    row: Key,
    /// The number of the row: a message that takes the place of another has another one.
    seq: u64,
    /// Where it stands among those in order.
    version: Option<StreamVersion>,
}

/// How a message stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// It is sent at this instant, or as soon as somebody has room.
    Due(Timestamp),
    /// Somebody sends it.
    Sending {
        /// Who.
        by: String,
        /// Until when, unless it is renewed.
        until: Timestamp,
    },
    /// It is not sent until an operator unblocks it.
    Blocked {
        /// Why.
        reason: String,
        /// Since when.
        since: Timestamp,
    },
}

impl Outbox {
    /// What is not delivered yet, blocked messages included, in the order of the rows. Of messages in order the first is shown.
    ///
    /// # Errors
    /// [`OutboxError::Store`] when the store cannot be asked.
    pub async fn list(&self, store: &SharedStore, page: Page) -> Result<PageOf<MessageView>, OutboxError> {
        let filter = WorkFilter { lane: Some(names::lane(self.name())?), ..WorkFilter::default() };
        let found = store.works(&filter, page).await?;
        let mut rows = Vec::new();
        for row in found.rows {
            rows.extend(seen(store, row).await?.map(|found| found.view));
        }
        Ok(PageOf { rows, next: found.next, now: found.now })
    }

    /// How many rows are blocked: messages, and lines of messages in order.
    ///
    /// # Errors
    /// [`OutboxError::Store`] when the store cannot be asked.
    pub async fn count_blocked(&self, store: &SharedStore) -> Result<u64, OutboxError> {
        Ok(store.count_work(&self.blocked()?).await?)
    }

    /// Lets all blocked messages be sent again, with a fresh budget. How many rows that were.
    ///
    /// # Errors
    /// [`OutboxError`] when the store fails.
    pub async fn unblock_all(&self, store: &SharedStore) -> Result<u64, OutboxError> {
        let batch = Batch::new().operate(Selection::Filter(self.blocked()?), Operation::Unblock);
        Ok(store.apply(batch).await?.operated.into_iter().sum())
    }

    /// Lets a blocked message be sent again, with a fresh budget: by its id, or by what messages are in the order of. What is not
    /// blocked stays as it is.
    ///
    /// # Errors
    /// [`OutboxError::Unknown`] when there is none.
    pub async fn unblock(&self, store: &SharedStore, message: &str) -> Result<(), OutboxError> {
        let found = self.find(store, message).await?;
        store.apply(Batch::new().operate(Selection::Keys(vec![found.row]), Operation::Unblock)).await?;
        Ok(())
    }

    /// A message by its id, or the first of those in the order of something. An id counts first.
    ///
    /// # Errors
    /// [`OutboxError::Unknown`] when there is none.
    pub async fn find(&self, store: &SharedStore, message: &str) -> Result<FoundMessage, OutboxError> {
        let keys = [names::message(self.name(), message), names::line(self.name(), message)];
        for key in keys.into_iter().flatten() {
            let Some(row) = store.work(&key).await? else { continue };
            if let Some(found) = seen(store, row).await? {
                return Ok(found);
            }
        }
        Err(self.unknown(message))
    }

    /// Removes a message without sending it: by its id, or the first of those in the order of something, which lets the next ones go
    /// on. Whoever shows the message to somebody first uses [`find`](Self::find) and [`discard_found`](Self::discard_found).
    ///
    /// # Errors
    /// [`OutboxError::Unknown`] when there is none, [`OutboxError::UnderWay`] while somebody sends it.
    pub async fn discard(&self, store: &SharedStore, message: &str) -> Result<(), OutboxError> {
        let found = self.find(store, message).await?;
        self.discard_found(store, &found).await
    }

    /// Removes the message that was found, and no other: not the one that has become the first of its order since then, nor the
    /// one that was put under its id.
    ///
    /// # Errors
    /// [`OutboxError::Unknown`] when it is not there any more, [`OutboxError::UnderWay`] while somebody sends it.
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
                // Up to this event and no further, whatever is delivered until the batch is applied.
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
        let lane = Some(names::lane(self.name())?);
        Ok(WorkFilter { lane, blocked: Some(true), ..WorkFilter::default() })
    }
}

/// The first message of those in order.
async fn first(store: &SharedStore, line: &Key) -> Result<Option<Event>, OutboxError> {
    Ok(store.read_stream(StreamQuery::forward(line, 1)).await?.events.into_iter().next())
}

/// A row as people see it; `None` when it waits for nothing.
async fn seen(store: &SharedStore, row: WorkRow) -> Result<Option<FoundMessage>, OutboxError> {
    let (known, in_order_of) = match names::row(&row.key) {
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
    // One that does not read is blocked by whoever tries to send it, so somebody must see it.
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

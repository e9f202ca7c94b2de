//! What people see of an outbox, and what they do about it.

use serde::{Deserialize, Serialize};

use super::error::OutboxError;
use super::message::{Outbox, Written};
use super::names::{self, Row};
use crate::clock::Timestamp;
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{
    Batch, Operation, Page, PageOf, Selection, SharedStore, StreamQuery, WorkFilter, WorkRow,
};

/// A message that is not delivered yet: of those in order, the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    /// Its id.
    pub id: String,
    /// Where it goes.
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
            rows.extend(seen(store, row).await?);
        }
        Ok(PageOf { rows, next: found.next })
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
        let row = self.find(store, message).await?;
        store.apply(Batch::new().operate(Selection::Keys(vec![row.key]), Operation::Unblock)).await?;
        Ok(())
    }

    /// Removes a message without sending it: by its id, or the first of those in the order of something, which lets the next ones go
    /// on.
    ///
    /// # Errors
    /// [`OutboxError::Unknown`] when there is none, [`OutboxError::UnderWay`] while somebody sends it.
    pub async fn discard(&self, store: &SharedStore, message: &str) -> Result<(), OutboxError> {
        let row = self.find(store, message).await?;
        if let Some(lease) = &row.lease {
            let (outbox, message) = (self.name().to_owned(), message.to_owned());
            return Err(OutboxError::UnderWay { outbox, message, by: lease.owner.to_string() });
        }
        let batch = match first(store, &row.key, row.follow.as_ref()).await? {
            Some(event) => {
                let unblocked = Selection::Keys(vec![row.key.clone()]);
                Batch::new().truncate(&row.key, event.version.next()).operate(unblocked, Operation::Unblock)
            }
            None => Batch::new().operate(Selection::Keys(vec![row.key.clone()]), Operation::Remove),
        };
        store.apply(batch).await?;
        Ok(())
    }

    fn blocked(&self) -> Result<WorkFilter, OutboxError> {
        let lane = Some(names::lane(self.name())?);
        Ok(WorkFilter { lane, blocked: Some(true), ..WorkFilter::default() })
    }

    /// The row of a message, or of those in the order of something.
    async fn find(&self, store: &SharedStore, message: &str) -> Result<WorkRow, OutboxError> {
        let keys = [names::message(self.name(), message), names::line(self.name(), message)];
        for key in keys.into_iter().flatten() {
            if let Some(row) = store.work(&key).await? {
                return Ok(row);
            }
        }
        Err(OutboxError::Unknown { outbox: self.name().to_owned(), message: message.to_owned() })
    }
}

/// The first message of those in order.
async fn first(
    store: &SharedStore,
    line: &Key,
    follow: Option<&Key>,
) -> Result<Option<crate::store::Event>, OutboxError> {
    if follow.is_none() {
        return Ok(None);
    }
    Ok(store.read_stream(StreamQuery::forward(line, 1)).await?.events.into_iter().next())
}

/// A row as people see it; `None` when it waits for nothing, or what it says does not read.
async fn seen(store: &SharedStore, row: WorkRow) -> Result<Option<MessageView>, OutboxError> {
    let in_order_of = match names::row(&row.key) {
        Some(Row::Line(line)) => Some(line),
        Some(Row::Message(_)) => None,
        None => return Ok(None),
    };
    let payload = match &in_order_of {
        Some(_) => first(store, &row.key, row.follow.as_ref()).await?.map(|event| event.payload),
        None => Some(row.payload.clone()),
    };
    let written = payload.and_then(|payload| payload.parse::<Written>().ok());
    let Some(Written { id, destination, payload }) = written else { return Ok(None) };
    let state = match (row.blocked, row.lease, row.due) {
        (Some(blocked), ..) => MessageState::Blocked { reason: blocked.reason, since: blocked.since },
        (_, Some(lease), _) => MessageState::Sending { by: lease.owner.to_string(), until: lease.until },
        (_, _, Some(due)) => MessageState::Due(due),
        (_, _, None) => return Ok(None),
    };
    let (attempts, last_error) = (row.attempts, row.last_error);
    Ok(Some(MessageView { id, destination, payload, in_order_of, state, attempts, last_error }))
}

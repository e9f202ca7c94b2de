//! Messages of an outbox.

use serde::{Deserialize, Serialize};

use super::keys;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::payload::Payload;
use crate::process;
use crate::store::{Batch, Expect, NewEvent, NewWork};

/// A named outbox: messages that are sent in the same way. It is a constant of the program that producers and senders
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbox {
    name: &'static str,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub(super) written: Written,
    /// The name of the order that it belongs to.
    line: Option<String>,
}

/// The stored form of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) destination: String,
    pub(super) payload: Payload,
}

impl Message {
    /// Creates a message to a destination, such as an address, with a new id.
    ///
    /// # Errors
    /// Returns [`InvalidInput::Payload`] when the value cannot be encoded as JSON.
    pub fn new<T: Serialize + ?Sized>(
        destination: impl Into<String>,
        value: &T,
    ) -> Result<Self, InvalidInput> {
        let (id, destination, payload) =
            (process::uuid().to_string(), destination.into(), Payload::of(value)?);
        Ok(Self { written: Written { id, destination, payload }, line: None })
    }

    /// Sets the id of the message. It is part of the idempotency key that the receiver sees.
    ///
    /// A message replaces the one with the same id that is still in the outbox, even a blocked one, and has its own
    /// attempts. If the replaced message is being sent, it may arrive as well. In order, both are sent.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.written.id = id.into();
        self
    }

    /// Delivers the message after all earlier ordered messages to the same destination. A message that cannot be delivered
    /// delays those after it.
    #[must_use]
    pub fn in_order(self) -> Self {
        let line = self.written.destination.clone();
        self.in_order_of(line)
    }

    /// Orders the message after others with the same name, such as a customer, regardless of their destinations.
    #[must_use]
    pub fn in_order_of(mut self, line: impl Into<String>) -> Self {
        self.line = Some(line.into());
        self
    }
}

impl Outbox {
    /// Creates an outbox with this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a message to a batch. It is sent only after the batch is committed.
    ///
    /// Any batch is suitable: of a command, a reaction, an idempotent request or a workflow's `step_in`.
    ///
    /// # Errors
    /// Returns [`InvalidInput`] when the name of the outbox, the id or the destination is invalid.
    pub fn put(&self, batch: Batch, message: &Message) -> Result<Batch, InvalidInput> {
        let (queue, written) = (keys::queue(self.name)?, &message.written);
        let row = keys::message(self.name, &written.id)?;
        keys::destination(&written.destination)?;
        let payload = Payload::of(written)?;
        let Some(line) = &message.line else {
            // Waking the row would keep the block and the attempts of the earlier message.
            return Ok(batch.enqueue(NewWork::once(row, queue).payload(payload).replacing()));
        };
        let line = keys::line(self.name, line)?;
        // Delivered messages are removed from the stream, so a new row starts at the beginning of the stream.
        let first = NewWork::once(line.clone(), queue);
        let first = NewWork { follow: Some(line.clone()), position: Some(Position(0)), ..first };
        Ok(batch.append(&line, Expect::Any, [NewEvent::new(keys::event()?, payload)]).enqueue(first))
    }
}

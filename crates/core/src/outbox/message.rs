//! What is to be sent, and how it gets into a batch.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names;
use crate::error::InvalidInput;
use crate::id::Position;
use crate::payload::Payload;
use crate::store::{Batch, Expect, NewEvent, NewWork};

/// A name for messages that are sent alike. A constant of the program: those who put and those who send share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbox {
    name: &'static str,
}

/// Something to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub(super) written: Written,
    /// What it is in the order of.
    line: Option<String>,
}

/// A message as it stands in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) destination: String,
    pub(super) payload: Payload,
}

impl Message {
    /// A message to a destination, an address for example, with a new id.
    ///
    /// # Errors
    /// [`InvalidInput::Payload`] when the value cannot be written as JSON.
    pub fn new<T: Serialize + ?Sized>(
        destination: impl Into<String>,
        value: &T,
    ) -> Result<Self, InvalidInput> {
        let (id, destination, payload) =
            (Uuid::now_v7().to_string(), destination.into(), Payload::of(value)?);
        Ok(Self { written: Written { id, destination, payload }, line: None })
    }

    /// The same under an id that the caller chose. It is part of the key that the other side sees.
    ///
    /// A message with an id that is still in the outbox takes the place of that one, also when that one is blocked, and has
    /// attempts of its own. One that is just being sent may arrive as well. In order, both are sent.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.written.id = id.into();
        self
    }

    /// Delivered after all messages that were put before to the same destination, in order too. One that cannot be delivered holds
    /// up those behind it.
    #[must_use]
    pub fn in_order(self) -> Self {
        let line = self.written.destination.clone();
        self.in_order_of(line)
    }

    /// In order with others that name the same, a customer for example, whatever their destinations are.
    #[must_use]
    pub fn in_order_of(mut self, line: impl Into<String>) -> Self {
        self.line = Some(line.into());
        self
    }
}

impl Outbox {
    /// An outbox of this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a message to a batch. It is sent after the batch is committed, and never if it is not.
    ///
    /// Any batch will do: of a command, of a reaction, of an idempotent request, of a workflow's `step_in`.
    ///
    /// # Errors
    /// [`InvalidInput`] when the name of the outbox, the id or the destination is not valid.
    pub fn put(&self, batch: Batch, message: &Message) -> Result<Batch, InvalidInput> {
        let (lane, written) = (names::lane(self.name)?, &message.written);
        let row = names::message(self.name, &written.id)?;
        names::destination(&written.destination)?;
        let payload = Payload::of(written)?;
        let Some(line) = &message.line else {
            // A row that was woken would keep the block and the attempts of the message that was there before.
            return Ok(batch.enqueue(NewWork::once(row, lane).payload(payload).replacing()));
        };
        let line = names::line(self.name, line)?;
        // What was delivered is not in the stream any more, so a row that was gone begins where the stream does.
        let first = NewWork::once(line.clone(), lane);
        let first = NewWork { follow: Some(line.clone()), position: Some(Position(0)), ..first };
        Ok(batch.append(&line, Expect::Any, [NewEvent::new(names::event()?, payload)]).enqueue(first))
    }
}

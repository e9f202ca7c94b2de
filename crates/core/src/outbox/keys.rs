//! Keys and queues of messages in the store.

use crate::error::InvalidInput;
use crate::id::{EventType, QueueName};
use crate::key::{Arg, Key};

/// The kind of the row of a message: `tidelock.outbox("mails", "order-17")`.
const MESSAGE: &str = "tidelock.outbox";
/// The kind of the row and the stream of ordered messages: `tidelock.outbox-line("mails", "ada@example.com")`.
const LINE: &str = "tidelock.outbox-line";
/// The longest name of an outbox, in bytes.
pub const MAX_OUTBOX_BYTES: usize = 100;
/// The longest id of a message, in bytes.
pub const MAX_ID_BYTES: usize = 150;
/// The longest destination of a message, in bytes. The name of an order, which is the destination by default, has at most
/// 500.
pub const MAX_DESTINATION_BYTES: usize = 2_000;
/// The longest name of an order, in bytes.
const MAX_LINE_BYTES: usize = 500;

/// The purpose of a row of an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// One message, with its id.
    Message(String),
    /// Messages in order, with the name of the order.
    Line(String),
}

pub(super) fn queue(outbox: &str) -> Result<QueueName, InvalidInput> {
    check("the name of an outbox", outbox, MAX_OUTBOX_BYTES)?;
    QueueName::new(format!("outbox.{outbox}"))
}

pub(super) fn message(outbox: &str, id: &str) -> Result<Key, InvalidInput> {
    check("the id of a message", id, MAX_ID_BYTES)?;
    Key::new(MESSAGE, [outbox, id])
}

pub(super) fn line(outbox: &str, line: &str) -> Result<Key, InvalidInput> {
    check("what messages are in the order of", line, MAX_LINE_BYTES)?;
    Key::new(LINE, [outbox, line])
}

pub(super) fn destination(text: &str) -> Result<(), InvalidInput> {
    check("the destination of a message", text, MAX_DESTINATION_BYTES)
}

/// Returns the type of the events in the streams of ordered messages.
pub(super) fn event() -> Result<EventType, InvalidInput> {
    EventType::new("tidelock.Message")
}

/// Parses the key of a row of an outbox.
pub(super) fn row(key: &Key) -> Option<Row> {
    let Ok([Arg::Str(_), Arg::Str(name)]) = <[Arg; 2]>::try_from(key.args()) else { return None };
    match key.kind().as_str() {
        MESSAGE => Some(Row::Message(name)),
        LINE => Some(Row::Line(name)),
        _ => None,
    }
}

fn check(what: &'static str, text: &str, longest: usize) -> Result<(), InvalidInput> {
    let reason = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > longest {
        format!("it has {} bytes, at most {longest} are allowed", text.len())
    } else if text.chars().any(char::is_control) {
        "it contains control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(InvalidInput::name(what, text, reason))
}

//! Keys and queues of reactions in the store.
//!
//! All kinds start with `tidelock.`, so that a row never collides with a user's job, nor an inbox with a user's stream.

use crate::error::InvalidInput;
use crate::id::{Position, QueueName};
use crate::key::{Arg, Key, KeyPrefix};

/// The kind of the rows: `tidelock.reaction("reserve-stock", "order", "o-1")` for the key `order("o-1")`. The document
/// `tidelock.reaction("reserve-stock")` holds the definition.
const REACTION: &str = "tidelock.reaction";
/// The kind of the router rows.
const ROUTER: &str = "tidelock.router";
/// The kind of the inboxes.
const INBOX: &str = "tidelock.inbox";
/// The kind of the documents that hold parked events.
const PARKED: &str = "tidelock.parked";
/// The kind of the rows that replay them.
const REPLAY: &str = "tidelock.replay";
/// The kind of the documents with recorded attempts of rows whose holders died.
const SUSPECT: &str = "tidelock.suspect";
const SUSPECT_REPLAY: &str = "tidelock.suspect-replay";
/// The type of the events in an inbox.
pub(super) const ROUTED: &str = "tidelock.routed";
/// The prefix of event types that are reserved for Tidelock.
pub(super) const INTERNAL: &str = "tidelock.";
/// The longest name of a reaction, in bytes. It leaves room for the other parts of a key.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// Returns the queue of the router rows. No worker polls it; routers claim their rows by key.
pub(super) fn routers() -> Result<QueueName, InvalidInput> {
    QueueName::new("tidelock.router")
}

/// Returns the default queue of a reaction. It is unique, so that no process gets rows of unknown reactions.
pub(super) fn own_queue(name: &str) -> Result<QueueName, InvalidInput> {
    QueueName::new(format!("reaction.{name}"))
}

/// Returns the key of the router row of a reaction.
pub(super) fn router(name: &str) -> Result<Key, InvalidInput> {
    Key::new(ROUTER, [name])
}

/// Returns the key of the document with the definition of a reaction.
pub(super) fn definition(name: &str) -> Result<Key, InvalidInput> {
    Key::new(REACTION, [name])
}

/// Returns the key of the row of a reaction for a key.
pub(super) fn row(name: &str, key: &Key) -> Result<Key, InvalidInput> {
    below(REACTION, name, key, None)
}

/// Returns the inbox of a reaction for a key. A reset reaction starts with new inboxes.
pub(super) fn inbox(name: &str, generation: u64, key: &Key) -> Result<Key, InvalidInput> {
    let mut args = vec![Arg::Str(name.to_owned()), number(generation), Arg::Str(key.kind())];
    args.extend(key.args());
    Key::of(INBOX, &args)
}

/// Returns the range of all inboxes that a reaction has ever had.
pub(super) fn all_inboxes(name: &str) -> KeyPrefix {
    KeyPrefix::under(INBOX, &[Arg::Str(name.to_owned())])
}

/// Returns whether an inbox belongs to a generation before this one.
pub(super) fn is_inbox_before(inbox: &Key, generation: u64) -> bool {
    matches!(inbox.args().get(1), Some(Arg::Int(of)) if u64::try_from(*of).is_ok_and(|of| of < generation))
}

/// Returns the pattern of the replay rows of a reaction.
pub(super) fn replays_matching(name: &str) -> String {
    let named = Key::new(REPLAY, [name]).map_or_else(|_| name.to_owned(), |key| key.canonical().to_owned());
    format!("^{} ", escaped(&named))
}

/// Returns the key of the document of a parked event.
pub(super) fn parked(name: &str, key: &Key, position: Position) -> Result<Key, InvalidInput> {
    below(PARKED, name, key, Some(position))
}

/// Returns the key of the row that replays a parked event.
pub(super) fn replay(name: &str, key: &Key, position: Position) -> Result<Key, InvalidInput> {
    below(REPLAY, name, key, Some(position))
}

/// Returns the key of the document with the last recorded attempt of a row whose holder died. It is hardly longer than that of
/// the row, and has no other row's name.
pub(super) fn suspect(row: &Key) -> Result<Key, InvalidInput> {
    let kind = if row.kind() == REPLAY { SUSPECT_REPLAY } else { SUSPECT };
    Key::of(kind, &row.args())
}

/// Returns the range of the parked events of a reaction.
pub(super) fn all_parked(name: &str) -> KeyPrefix {
    KeyPrefix::under(PARKED, &[Arg::Str(name.to_owned())])
}

/// Returns the range of all parked events.
pub(super) fn every_parked() -> KeyPrefix {
    KeyPrefix::kind(PARKED)
}

/// Returns the reaction that a row or a document belongs to.
pub(super) fn reaction_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(name)) => Some(name),
        _ => None,
    }
}

/// Returns the range of all definitions.
pub(super) fn all_definitions() -> KeyPrefix {
    KeyPrefix::kind(REACTION)
}

fn below(kind: &str, name: &str, key: &Key, position: Option<Position>) -> Result<Key, InvalidInput> {
    let mut args = vec![Arg::Str(name.to_owned()), Arg::Str(key.kind())];
    args.extend(key.args());
    args.extend(position.map(|position| number(position.0)));
    Key::of(kind, &args)
}

fn number(number: u64) -> Arg {
    Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The purpose of a work row of a reaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A row that handles the events of a key.
    Key {
        /// The reaction.
        reaction: String,
        /// The key.
        key: Key,
    },
    /// A row that replays one parked event.
    Replay {
        /// The reaction.
        reaction: String,
        /// The key.
        key: Key,
        /// The event's position.
        position: Position,
    },
}

/// Returns the reaction and the key of a work row; `None` when the row belongs to no reaction.
#[must_use]
pub fn reaction_row(row: &Key) -> Option<(String, Key)> {
    match Row::read(row)? {
        Row::Key { reaction, key } | Row::Replay { reaction, key, .. } => Some((reaction, key)),
    }
}

impl Row {
    /// Returns whether a row belongs to a reaction.
    pub(super) fn is_of(row: &Key, name: &str) -> bool {
        match Self::read(row) {
            Some(Self::Key { reaction, .. } | Self::Replay { reaction, .. }) => reaction == name,
            None => false,
        }
    }

    /// Parses the key of a row; `None` when it is not a row of a reaction.
    pub(super) fn read(row: &Key) -> Option<Self> {
        let (kind, args) = (row.kind(), row.args());
        let (Arg::Str(reaction), rest) = args.split_first()? else { return None };
        let reaction = reaction.clone();
        match kind.as_str() {
            REACTION => Some(Self::Key { reaction, key: key_of(rest)? }),
            REPLAY => {
                let (position, key) = position_and_key(rest)?;
                Some(Self::Replay { reaction, key, position })
            }
            _ => None,
        }
    }
}

/// Parses the key and the position of a parked event from the key of its document.
pub(super) fn read_parked(document: &Key) -> Option<(Key, Position)> {
    let args = document.args();
    let (_, rest) = args.split_first().filter(|_| document.kind() == PARKED)?;
    let (position, key) = position_and_key(rest)?;
    Some((key, position))
}

fn position_and_key(args: &[Arg]) -> Option<(Position, Key)> {
    let (Arg::Int(position), key) = args.split_last()? else { return None };
    Some((Position(u64::try_from(*position).ok()?), key_of(key)?))
}

fn key_of(args: &[Arg]) -> Option<Key> {
    let (Arg::Str(kind), args) = args.split_first()? else { return None };
    Key::of(kind, args).ok()
}

/// Returns the pattern of the rows of one reaction whose key matches `keys`, or of all reactions.
pub(super) fn rows_matching(name: Option<&str>, keys: Option<&str>) -> String {
    let Some(name) = name else { return format!("^{} ", escaped(REACTION)) };
    // The canonical text of a row ends with the canonical text of its key.
    let named = Key::new(REACTION, [name]).map_or_else(|_| name.to_owned(), |key| key.canonical().to_owned());
    let rows = format!("^{} ", escaped(&named));
    match keys {
        Some(keys) => match keys.strip_prefix('^') {
            Some(anchored) => rows + anchored,
            None => format!("{rows}.*{keys}"),
        },
        None => rows,
    }
}

/// Escapes a text, so that the pattern matches it literally.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if !c.is_alphanumeric() && !matches!(c, ' ' | '-' | '_' | '/' | ':') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Pattern;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn names_read_back() {
        let order = key(r#"order("o-1", 42)"#);
        let reaction = "reserve stock".to_owned();
        let position = Position(17);
        let row = row(&reaction, &order).unwrap();
        assert_eq!(Row::read(&row), Some(Row::Key { reaction: reaction.clone(), key: order.clone() }));
        let again = replay(&reaction, &order, position).unwrap();
        assert_eq!(
            Row::read(&again),
            Some(Row::Replay { reaction: reaction.clone(), key: order.clone(), position })
        );
        let document = parked(&reaction, &order, position).unwrap();
        assert_eq!(read_parked(&document), Some((order.clone(), position)));
        assert!(all_parked(&reaction).contains(&document));
        assert!(!all_parked("reserve").contains(&document));
        for other in [router(&reaction).unwrap(), definition(&reaction).unwrap(), order] {
            assert_eq!(Row::read(&other), None, "{other}");
        }
    }

    #[test]
    fn inboxes_of_two_lives_are_two_streams() {
        let order = key(r#"order("o-1")"#);
        assert_ne!(inbox("r", 0, &order).unwrap(), inbox("r", 1, &order).unwrap());
    }

    #[test]
    fn patterns_concern_the_keys_of_one_reaction() {
        let matches = |name, pattern, row: &Key| {
            Pattern::new(&rows_matching(name, pattern)).unwrap().matches(row.canonical())
        };
        let mine = row("a.b", &key(r#"order("o-1")"#)).unwrap();
        let other = row("axb", &key(r#"order("o-1")"#)).unwrap();
        assert!(matches(Some("a.b"), None, &mine) && !matches(Some("a.b"), None, &other));
        assert!(matches(None, None, &mine) && matches(None, None, &other));
        assert!(matches(Some("a.b"), Some("^order .*"), &mine));
        assert!(matches(Some("a.b"), Some("o-1$"), &mine));
        assert!(!matches(Some("a.b"), Some("^o-1"), &mine));
        assert!(!matches(Some("a.b"), None, &router("a.b").unwrap()));
        assert!(!matches(Some("a"), None, &row("a.b", &key("k")).unwrap()));
    }
}

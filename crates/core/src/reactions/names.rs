//! The names that reactions have in the store: keys and lanes.
//!
//! All kinds are ours (`tidelock.`), so that a row never meets a job of a user's kind, and an inbox never a stream.

use crate::error::InvalidInput;
use crate::id::{Lane, Position};
use crate::key::{Arg, Key, KeyPrefix};

/// The kind of the rows: `tidelock.reaction("reserve-stock", "order", "o-1")` for the key `order("o-1")`. The document
/// `tidelock.reaction("reserve-stock")` says what the reaction is.
const REACTION: &str = "tidelock.reaction";
/// The kind of the rows that route.
const ROUTER: &str = "tidelock.router";
/// The kind of the streams that events are copied to.
const INBOX: &str = "tidelock.inbox";
/// The kind of the documents that hold parked events.
const PARKED: &str = "tidelock.parked";
/// The kind of the rows that replay them.
const REPLAY: &str = "tidelock.replay";
/// The kind of the documents with recorded attempts of rows whose holders died.
const SUSPECT: &str = "tidelock.suspect";
/// The type of the events in an inbox.
pub(super) const ROUTED: &str = "tidelock.routed";
/// What the types of events begin with that Tidelock keeps for itself.
pub(super) const INTERNAL: &str = "tidelock.";
/// The longest name of a reaction, in bytes. It leaves room for what is added to it.
pub(super) const MAX_NAME_BYTES: usize = 128;

/// The lane of the rows that route. Nobody claims from it: they are asked for by name.
pub(super) fn routers() -> Result<Lane, InvalidInput> {
    Lane::new("tidelock.router")
}

/// The lane of a reaction that was given none: its own, so that no process gets rows of reactions that it does not know.
pub(super) fn own_lane(name: &str) -> Result<Lane, InvalidInput> {
    Lane::new(format!("reaction.{name}"))
}

/// The row that routes the log to a reaction.
pub(super) fn router(name: &str) -> Result<Key, InvalidInput> {
    Key::new(ROUTER, [name])
}

/// The document that says what a reaction is.
pub(super) fn definition(name: &str) -> Result<Key, InvalidInput> {
    Key::new(REACTION, [name])
}

/// The row of a reaction for a key.
pub(super) fn row(name: &str, key: &Key) -> Result<Key, InvalidInput> {
    below(REACTION, name, key, None)
}

/// The inbox of a reaction for a key. A reaction that was reset begins with new ones.
pub(super) fn inbox(name: &str, generation: u64, key: &Key) -> Result<Key, InvalidInput> {
    let mut args = vec![Arg::Str(name.to_owned()), number(generation), Arg::Str(key.kind())];
    args.extend(key.args());
    Key::of(INBOX, &args)
}

/// All inboxes that a reaction has ever had.
pub(super) fn all_inboxes(name: &str) -> KeyPrefix {
    KeyPrefix::under(INBOX, &[Arg::Str(name.to_owned())])
}

/// Whether an inbox belongs to a generation before this one.
pub(super) fn is_inbox_before(inbox: &Key, generation: u64) -> bool {
    matches!(inbox.args().get(1), Some(Arg::Int(of)) if u64::try_from(*of).is_ok_and(|of| of < generation))
}

/// All replays of parked events of a reaction, as a pattern of their rows.
pub(super) fn replays_matching(name: &str) -> String {
    let named = Key::new(REPLAY, [name]).map_or_else(|_| name.to_owned(), |key| key.canonical().to_owned());
    format!("^{} ", escaped(&named))
}

/// The document of a parked event.
pub(super) fn parked(name: &str, key: &Key, position: Position) -> Result<Key, InvalidInput> {
    below(PARKED, name, key, Some(position))
}

/// The row that replays a parked event.
pub(super) fn replay(name: &str, key: &Key, position: Position) -> Result<Key, InvalidInput> {
    below(REPLAY, name, key, Some(position))
}

/// The document with the last recorded attempt of a row whose holder died.
pub(super) fn suspect(name: &str, row: &Key) -> Result<Key, InvalidInput> {
    below(SUSPECT, name, row, None)
}

/// All parked events of a reaction.
pub(super) fn all_parked(name: &str) -> KeyPrefix {
    KeyPrefix::under(PARKED, &[Arg::Str(name.to_owned())])
}

/// All parked events.
pub(super) fn every_parked() -> KeyPrefix {
    KeyPrefix::kind(PARKED)
}

/// The reaction that a row or a document belongs to.
pub(super) fn reaction_of(key: &Key) -> Option<String> {
    match key.args().into_iter().next() {
        Some(Arg::Str(name)) => Some(name),
        _ => None,
    }
}

/// All documents that say what a reaction is.
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

/// What a work row of a reaction is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// The events of a key.
    Key {
        /// The reaction.
        reaction: String,
        /// The key.
        key: Key,
    },
    /// One parked event.
    Replay {
        /// The reaction.
        reaction: String,
        /// The key.
        key: Key,
        /// The event's position.
        position: Position,
    },
}

/// What a work row is for, when it is one of a reaction: the reaction and the key.
#[must_use]
pub fn reaction_row(row: &Key) -> Option<(String, Key)> {
    match Row::read(row)? {
        Row::Key { reaction, key } | Row::Replay { reaction, key, .. } => Some((reaction, key)),
    }
}

impl Row {
    /// Whether a row belongs to a reaction.
    pub(super) fn is_of(row: &Key, name: &str) -> bool {
        match Self::read(row) {
            Some(Self::Key { reaction, .. } | Self::Replay { reaction, .. }) => reaction == name,
            None => false,
        }
    }

    /// Reads the name of a row; `None` when it is no row of a reaction.
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

/// The key and the position of a parked event, read from the name of its document.
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

/// The pattern of the rows of a reaction, or of all reactions; of one reaction, those whose key matches `keys`.
pub(super) fn rows_matching(name: Option<&str>, keys: Option<&str>) -> String {
    let Some(name) = name else { return format!("^{} ", escaped(REACTION)) };
    // The canonical text of a row is that of its key behind the name.
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

/// Text as a pattern that means itself.
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

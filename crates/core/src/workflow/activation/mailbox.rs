//! Signals that a run received and its workflow has not consumed, and the ids of those that it has.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::payload::Payload;
use crate::workflow::journal_entry::SignalReceived;

/// The number of ids that a run carries over when it continues as new.
const MAX_IDS: usize = 10_000;
/// The number of bytes of ids that it carries over.
const MAX_ID_BYTES: usize = 1024 * 1024;

/// Unread signals, by name and in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    unread: HashMap<String, VecDeque<Payload>>,
    ids: SignalIds,
}

impl Mailbox {
    /// Creates a mailbox that rejects repetitions of these signals.
    pub(super) fn new(received: &[(String, String)]) -> Self {
        Self { unread: HashMap::new(), ids: received.iter().cloned().collect() }
    }

    /// Adds a signal, unless one with its id was received before.
    pub(super) fn receive(&mut self, heard: &SignalReceived) {
        let id = heard.id.clone().map(|id| (heard.signal.clone(), id));
        if id.is_none_or(|id| self.ids.add(id)) {
            self.unread.entry(heard.signal.clone()).or_default().push_back(heard.value.clone());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unread.values().all(VecDeque::is_empty)
    }

    /// Removes the oldest signal of a name.
    pub(super) fn take(&mut self, signal: &str) -> Option<Payload> {
        self.unread.get_mut(signal)?.pop_front()
    }

    /// Puts a signal back that was handed to a wait and not consumed.
    pub(super) fn put_back(&mut self, signal: &str, value: Payload) {
        self.unread.entry(signal.to_owned()).or_default().push_front(value);
    }

    pub(super) fn unread(&self) -> impl Iterator<Item = (&String, &Payload)> {
        self.unread.iter().flat_map(|(signal, values)| values.iter().map(move |value| (signal, value)))
    }

    /// Returns the newest ids that fit into this number of bytes, oldest first.
    pub(super) fn ids(&self, bytes: usize) -> Vec<(String, String)> {
        self.ids.newest(bytes)
    }
}

/// Names and ids of received signals, in the order of arrival.
#[derive(Debug, Default)]
struct SignalIds {
    order: Vec<(String, String)>,
    all: HashSet<(String, String)>,
}

impl SignalIds {
    /// Adds an id. Returns whether it is new.
    fn add(&mut self, id: (String, String)) -> bool {
        let new = self.all.insert(id.clone());
        if new {
            self.order.push(id);
        }
        new
    }

    fn newest(&self, bytes: usize) -> Vec<(String, String)> {
        let mut room = bytes.min(MAX_ID_BYTES);
        let newest = self.order.iter().rev().take(MAX_IDS).take_while(|(signal, id)| {
            // Quotes, commas and escapes of the JSON text.
            let size = 2 * (signal.len() + id.len()) + 8;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let mut kept: Vec<_> = newest.cloned().collect();
        kept.reverse();
        kept
    }
}

impl FromIterator<(String, String)> for SignalIds {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(ids: I) -> Self {
        let mut known = Self::default();
        for id in ids {
            known.add(id);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ids_are_kept_within_the_limits() {
        let id = |n: usize| ("go".to_owned(), format!("{n:0>1000}"));
        let mut known: SignalIds = (0..5_000).map(id).collect();
        assert!(!known.add(id(17)));
        let kept = known.newest(usize::MAX);
        assert!(kept.len() > 400 && kept.len() < 600, "{}", kept.len());
        assert_eq!(kept.last(), Some(&id(4_999)));
        assert_eq!(known.newest(3_000).len(), 1);
    }

    #[test]
    fn a_repeated_signal_is_received_once_and_a_returned_one_comes_first() {
        let heard = |id: Option<&str>, value: &str| SignalReceived {
            signal: "go".to_owned(),
            id: id.map(str::to_owned),
            value: Payload::trusted(value),
        };
        let mut mailbox = Mailbox::new(&[("go".to_owned(), "a".to_owned())]);
        for (id, value) in [(Some("a"), "1"), (Some("b"), "2"), (Some("b"), "3"), (None, "4"), (None, "5")] {
            mailbox.receive(&heard(id, value));
        }
        let first = mailbox.take("go").unwrap();
        assert_eq!(first.as_str(), "2");
        mailbox.put_back("go", first);
        let unread: Vec<&str> = mailbox.unread().map(|(_, value)| value.as_str()).collect();
        assert_eq!(unread, ["2", "4", "5"]);
    }
}

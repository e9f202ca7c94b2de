//! Lists in a store: arrays in documents, and streams.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde_json::{Value, json};
use tidelock_core::id::{DocVersion, StreamVersion};
use tidelock_core::key::{Arg, Key};
use tidelock_core::store::{Batch, Delta, Expect, Get, NewEvent, StoreError, StreamQuery, limits};

use crate::builders::{event_type, payload};
use crate::conn::Conn;
use crate::history::list_append::{Executed, Reading};
use crate::rng::Rng;

/// A list. A long list is replaced by the next generation, so that readings stay short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// A list as a snapshot has it.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) list: ListId,
    /// The version of the document or the stream, if it exists.
    version: Option<u64>,
    pub(super) elements: Vec<u64>,
}

impl ListId {
    fn is_stream(self) -> bool {
        self.slot % 2 == 1
    }

    pub(super) fn name(self) -> String {
        let kind = if self.is_stream() { "stream" } else { "document" };
        format!("{kind} {}.{}", self.slot, self.generation)
    }

    fn key(self) -> Key {
        Key::of("transactions", &[Arg::Int(self.slot.into()), Arg::Int(self.generation.into())]).unwrap()
    }
}

impl FromStr for ListId {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let (_, numbers) = name.split_once(' ').ok_or(())?;
        let (slot, generation) = numbers.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse().map_err(drop);
        Ok(Self { slot: number(slot)?, generation: number(generation)? })
    }
}

impl Snapshot {
    pub(super) fn reading(&self) -> Reading {
        Reading { list: self.list.name(), elements: self.elements.clone() }
    }

    /// Adds the condition that the list is still the same.
    pub(super) fn guard(&self, batch: Batch) -> Batch {
        let key = self.list.key();
        if self.list.is_stream() {
            batch.guard_stream(&key, exactly(self.version.map(StreamVersion)))
        } else {
            batch.guard_document(&key, exactly(self.version.map(DocVersion)))
        }
    }

    /// Appends elements at exactly this version.
    pub(super) fn extend(&self, batch: Batch, elements: &[u64]) -> Batch {
        let key = self.list.key();
        if self.list.is_stream() {
            batch.append(&key, exactly(self.version.map(StreamVersion)), events(elements))
        } else {
            let all: Vec<u64> = self.elements.iter().chain(elements).copied().collect();
            batch.put(&key, exactly(self.version.map(DocVersion)), payload(json!({ "n": all })))
        }
    }
}

fn exactly<V>(version: Option<V>) -> Expect<V> {
    version.map_or(Expect::Absent, Expect::Exact)
}

fn events(elements: &[u64]) -> Vec<NewEvent> {
    elements.iter().map(|n| NewEvent::new(event_type("Appended"), payload(json!({ "n": n })))).collect()
}

/// Appends elements whatever the list contains: in one effect, or one effect for each.
pub(super) fn push(mut batch: Batch, list: ListId, elements: &[u64], rng: &mut Rng) -> Batch {
    let size = if rng.one_in(2) { 1 } else { elements.len() };
    for some in elements.chunks(size.max(1)) {
        batch = if list.is_stream() {
            batch.append(&list.key(), Expect::Any, events(some))
        } else {
            let deltas = some.iter().map(|n| Delta::push("/n", *n));
            batch.merge_or_create(&list.key(), payload(json!({ "n": [] })), deltas)
        };
    }
    batch
}

/// Reads lists from one snapshot. A stream is the beginning up to the head that the snapshot has.
pub(super) async fn snapshot(conn: &Conn, lists: &[ListId]) -> Result<Vec<Snapshot>, StoreError> {
    let get = |list: &ListId| {
        if list.is_stream() { Get::Stream(list.key()) } else { Get::Document(list.key()) }
    };
    let gets: Vec<Get> = lists.iter().map(get).collect();
    let mut rows = conn.read(&gets).await?;
    let mut found = Vec::new();
    for (n, list) in lists.iter().enumerate() {
        let (version, elements) = if list.is_stream() {
            let head = rows.take_stream(n).and_then(|stream| stream.head);
            (head.map(|head| head.0), stream_to(conn, *list, head).await?)
        } else {
            let document = rows.take_document(n);
            let version = document.as_ref().map(|document| document.version.0);
            (version, document.map_or_else(Vec::new, |document| elements(document.value.as_str())))
        };
        found.push(Snapshot { list: *list, version, elements });
    }
    Ok(found)
}

async fn stream_to(conn: &Conn, list: ListId, head: Option<StreamVersion>) -> Result<Vec<u64>, StoreError> {
    let Some(head) = head else { return Ok(Vec::new()) };
    let page = conn.read_stream(StreamQuery::forward(&list.key(), limits::PAGE_ROWS)).await?;
    let events = page.events.into_iter().filter(|event| event.version <= head);
    Ok(events.map(|event| event.payload.parse::<Value>().unwrap()["n"].as_u64().unwrap()).collect())
}

/// Returns the elements of a document.
pub(super) fn elements(value: &str) -> Vec<u64> {
    let value: Value = serde_json::from_str(value).unwrap();
    serde_json::from_value(value["n"].clone()).unwrap()
}

/// Returns the list that is a document with this key.
pub(super) fn document(key: &Key, lists: &[ListId]) -> Option<ListId> {
    lists.iter().copied().find(|list| !list.is_stream() && list.key() == *key)
}

/// Returns all lists of a history.
pub(super) fn used(history: &[Executed]) -> Vec<ListId> {
    let appends = history.iter().flat_map(|transaction| &transaction.asked.appends);
    let lists: BTreeSet<ListId> = appends.filter_map(|append| append.list.parse().ok()).collect();
    lists.into_iter().collect()
}

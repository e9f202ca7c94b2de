//! The model of a record, as [`State`](tidelock_core::state::State) offers it: a register and a counter with
//! versions.
//!
//! Every write raises the version by one. Mutations of one process that wait together share a write and therefore a
//! version, and so do deltas. While such a write is open, another operation of the same side may join its version. That
//! operation must have been called before any of the others was answered. A reader, or a write of any other client,
//! closes the write, because no client may see half of it. A delete keeps the version, and the next record continues
//! from it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Model, Operation};

/// The value of a record.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// A counter.
    pub count: i64,
    /// The write that created the value. Tags are unique in a history, so that they reveal the order of the writes.
    pub tag: u64,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.count, self.tag)
    }
}

/// A request of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientRequest {
    /// The process, whose mutations may share writes.
    pub side: usize,
    /// The operation.
    pub what: RecordOperation,
}

impl fmt::Debug for ClientRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "side {} {:?}", self.side, self.what)
    }
}

/// The operations on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOperation {
    /// Reads the value.
    Get,
    /// Reads the value and its version.
    Read,
    /// Replaces the value.
    Set(Record),
    /// Adds to the count, sets the tag and returns the old value.
    Mutate {
        /// The number to add.
        add: i64,
        /// The new tag.
        tag: u64,
    },
    /// Mutates without a change and returns the value.
    Touch,
    /// Changes the draft, then rejects the mutation and returns the rejected value.
    Refuse,
    /// Adds to the count with a delta.
    Inc(i64),
    /// Deletes the record.
    Delete,
}

/// The answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientResponse {
    /// The value, or the default if there is no record.
    Value(Record),
    /// The version and the value, if there is a record.
    Found(Option<(u64, Record)>),
    /// The write produced this version.
    Written {
        /// The previous value, if the operation returns it.
        old: Option<Record>,
        /// The version.
        version: u64,
    },
    /// Nothing changed at this version.
    Unchanged {
        /// The value.
        old: Record,
        /// The version.
        version: u64,
    },
    /// The mutator rejected this value.
    Refused(Record),
    /// There is no record to which the delta could apply.
    Missing,
    /// The record is deleted.
    Deleted,
}

/// The state of a record at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The value, or `None` if there is no record.
    pub value: Option<Record>,
    /// The version of the last write.
    pub version: u64,
    /// The operations that may still join the last write.
    pub open: Option<Open>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value:?} in version {}", self.version)?,
            None => write!(f, "gone since version {}", self.version)?,
        }
        self.open.map_or(Ok(()), |open| write!(f, ", open to {:?}", open.by))
    }
}

/// A write that other operations may still join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// The group that shares the write.
    pub by: Sharing,
    /// The instant of the first answer to a member of the write. Operations called later cannot join it.
    pub before: u64,
}

/// A group of operations that may share a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// The mutations of a side.
    Mutations(usize),
    /// The deltas of a side.
    Deltas(usize),
}

/// The model.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordModel;

impl Standing {
    fn closed(self) -> Self {
        Self { open: None, ..self }
    }

    fn record(self) -> Record {
        self.value.unwrap_or_default()
    }

    /// Returns the open write if an operation can join it.
    fn takes(self, by: Sharing, call: u64) -> Option<Open> {
        self.open.filter(|open| open.by == by && call < open.before)
    }

    /// Adds the states to which a write can lead: with a new version, or as a part of the open write.
    fn write(self, value: Record, asked: &Request, told: Option<u64>, next: &mut Vec<Self>) {
        let by = asked.asked.sharing();
        let before = told.map_or(u64::MAX, |_| asked.end);
        let state = |version, before| Self { value: Some(value), version, open: Some(Open { by, before }) };
        let alone = self.version + 1;
        if told.is_none_or(|version| version == alone) {
            next.push(state(alone, before));
        }
        if let Some(open) = self.takes(by, asked.call).filter(|_| told.is_none_or(|v| v == self.version)) {
            next.push(state(self.version, before.min(open.before)));
        }
    }

    fn deleted(self) -> Self {
        Self { value: None, version: self.version + u64::from(self.value.is_some()), open: None }
    }
}

impl RecordOperation {
    /// Applies a mutation to a value.
    fn mutated(self, old: Record) -> Option<Record> {
        match self {
            Self::Set(record) => Some(record),
            Self::Mutate { add, tag } => Some(Record { count: old.count.wrapping_add(add), tag }),
            Self::Touch => Some(old),
            Self::Inc(by) => Some(Record { count: old.count.wrapping_add(by), ..old }),
            Self::Get | Self::Read | Self::Refuse | Self::Delete => None,
        }
    }
}

impl ClientRequest {
    fn sharing(self) -> Sharing {
        match self.what {
            RecordOperation::Inc(_) => Sharing::Deltas(self.side),
            _ => Sharing::Mutations(self.side),
        }
    }
}

type Request = Operation<ClientRequest, ClientResponse>;

impl Model for RecordModel {
    type State = Standing;
    type Request = ClientRequest;
    type Response = ClientResponse;

    fn start(&self) -> Standing {
        Standing { value: None, version: 0, open: None }
    }

    fn step(
        &self,
        state: &Standing,
        asked: &Request,
        answer: Option<&ClientResponse>,
        next: &mut Vec<Standing>,
    ) {
        match answer {
            Some(told) => known(*state, asked, *told, next),
            None => unknown(*state, asked, next),
        }
    }

    /// Versions never decrease, and no operation joins a closed write.
    fn open(&self, state: &Standing, asked: &Request, told: &ClientResponse) -> bool {
        match *told {
            ClientResponse::Written { version, .. } => {
                let part = || state.takes(asked.asked.sharing(), asked.call).is_some();
                version > state.version || (version == state.version && part())
            }
            ClientResponse::Found(Some((version, value))) => {
                version > state.version
                    || (version == state.version && (state.open.is_some() || state.value == Some(value)))
            }
            ClientResponse::Unchanged { version, .. } => version >= state.version,
            ClientResponse::Value(_)
            | ClientResponse::Found(None)
            | ClientResponse::Refused(_)
            | ClientResponse::Missing
            | ClientResponse::Deleted => true,
        }
    }

    fn only_looks(&self, _: &Request, told: &ClientResponse) -> bool {
        !matches!(told, ClientResponse::Written { .. } | ClientResponse::Deleted)
    }
}

/// Adds the states after an operation with an unknown answer. Operations without an effect are left out.
fn unknown(state: Standing, asked: &Request, next: &mut Vec<Standing>) {
    let what = asked.asked.what;
    match what {
        RecordOperation::Get | RecordOperation::Read | RecordOperation::Refuse => {}
        RecordOperation::Delete => next.push(state.deleted()),
        // A touch changes the state only if it creates the record.
        RecordOperation::Touch if state.value.is_some() => {}
        RecordOperation::Inc(_) if state.value.is_none() => {}
        RecordOperation::Set(_)
        | RecordOperation::Mutate { .. }
        | RecordOperation::Touch
        | RecordOperation::Inc(_) => {
            if let Some(value) = what.mutated(state.record()) {
                state.write(value, asked, None, next);
            }
        }
    }
}

fn known(state: Standing, asked: &Request, told: ClientResponse, next: &mut Vec<Standing>) {
    let what = asked.asked.what;
    match (what, told) {
        (RecordOperation::Get, ClientResponse::Value(value)) if state.record() == value => {
            next.push(state.closed())
        }
        (RecordOperation::Read, ClientResponse::Found(found))
            if found == state.value.map(|value| (state.version, value)) =>
        {
            next.push(state.closed());
        }
        (
            RecordOperation::Set(_)
            | RecordOperation::Mutate { .. }
            | RecordOperation::Touch
            | RecordOperation::Inc(_),
            ClientResponse::Written { old, version },
        ) => {
            let seen = old.is_none_or(|old| old == state.record());
            let there = state.value.is_some() || !matches!(what, RecordOperation::Inc(_));
            if let Some(value) = what.mutated(state.record()).filter(|_| seen && there) {
                state.write(value, asked, Some(version), next);
            }
        }
        (RecordOperation::Touch, ClientResponse::Unchanged { old, version })
            if (state.value, state.version) == (Some(old), version) =>
        {
            next.push(state.closed());
        }
        // A rejected mutation may be placed within a write of the same side.
        (RecordOperation::Refuse, ClientResponse::Refused(old)) if state.record() == old => {
            let part = state.takes(asked.asked.sharing(), asked.call);
            next.push(part.map_or(state.closed(), |_| state));
        }
        (RecordOperation::Inc(_), ClientResponse::Missing) if state.value.is_none() => next.push(state),
        (RecordOperation::Delete, ClientResponse::Deleted) => next.push(state.deleted()),
        _ => {}
    }
}

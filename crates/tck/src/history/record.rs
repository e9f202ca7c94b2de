//! The model of a record, as [`Container`](tidelock_core::state::Container) offers it: a register and a counter with
//! versions.
//!
//! Every write raises the version by one. Mutations of one process that wait together share a write and so a version, and
//! so do deltas: while such a write is open, the next one of the same side may have the same version, if it was called
//! before any of the others was answered. A reader, or a write of anybody else, closes it, for nobody may see half of it.
//! A delete leaves the version behind, and the next
//! record goes on from it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Model, Operation};

/// The value of a record.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// A number that is added to.
    pub count: i64,
    /// The write that made it. No two writes of a history may have the same, so that it tells who was before whom.
    pub tag: u64,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.count, self.tag)
    }
}

/// What a client asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The process, whose mutations may share writes.
    pub side: usize,
    /// What it asks.
    pub what: What,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "side {} {:?}", self.side, self.what)
    }
}

/// What can be asked of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The value.
    Get,
    /// The value and its version.
    Read,
    /// Replaces the value.
    Set(Record),
    /// Adds to the count, and sets the tag; tells the old value.
    Mutate {
        /// What is added.
        add: i64,
        /// The new tag.
        tag: u64,
    },
    /// A mutation that changes nothing; tells the value.
    Touch,
    /// A mutation that changes its draft and then refuses; tells the value that it refused.
    Refuse,
    /// Adds to the count by a delta.
    Inc(i64),
    /// Deletes the record.
    Delete,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The value; the default when there is no record.
    Value(Record),
    /// The version and the value, if there is a record.
    Found(Option<(u64, Record)>),
    /// It was written as this version.
    Written {
        /// What the value was before, if it was told.
        old: Option<Record>,
        /// The version.
        version: u64,
    },
    /// Nothing changed, and this is the version.
    Unchanged {
        /// The value.
        old: Record,
        /// The version.
        version: u64,
    },
    /// The mutator refused this value.
    Refused(Record),
    /// There is no record for the delta.
    Missing,
    /// There is no record any more.
    Deleted,
}

/// A record at an instant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The value; `None` when there is no record.
    pub value: Option<Record>,
    /// The version of the last write.
    pub version: u64,
    /// Who may still add to the last write.
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

/// A write that others may still be a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// Whose.
    pub by: Sharing,
    /// The first answer to one of its parts: whoever was called later is not one of them.
    pub before: u64,
}

/// Those whose writes may be one.
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

    /// Whether an operation can be a part of the last write.
    fn takes(self, by: Sharing, call: u64) -> Option<Open> {
        self.open.filter(|open| open.by == by && call < open.before)
    }

    /// The states that a write can lead to: a version of its own, or a part of the one that is open.
    fn write(self, value: Record, asked: &Asked, told: Option<u64>, next: &mut Vec<Self>) {
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

impl What {
    /// What a mutation makes of a value.
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

impl Ask {
    fn sharing(self) -> Sharing {
        match self.what {
            What::Inc(_) => Sharing::Deltas(self.side),
            _ => Sharing::Mutations(self.side),
        }
    }
}

type Asked = Operation<Ask, Told>;

impl Model for RecordModel {
    type State = Standing;
    type Asked = Ask;
    type Answer = Told;

    fn start(&self) -> Standing {
        Standing { value: None, version: 0, open: None }
    }

    fn step(&self, state: &Standing, asked: &Asked, answer: Option<&Told>, next: &mut Vec<Standing>) {
        match answer {
            Some(told) => known(*state, asked, *told, next),
            None => unknown(*state, asked, next),
        }
    }

    /// Versions never fall, and nobody adds to a write that is closed.
    fn open(&self, state: &Standing, asked: &Asked, told: &Told) -> bool {
        match *told {
            Told::Written { version, .. } => {
                let part = || state.takes(asked.asked.sharing(), asked.call).is_some();
                version > state.version || (version == state.version && part())
            }
            Told::Found(Some((version, value))) => {
                version > state.version
                    || (version == state.version && (state.open.is_some() || state.value == Some(value)))
            }
            Told::Unchanged { version, .. } => version >= state.version,
            Told::Value(_) | Told::Found(None) | Told::Refused(_) | Told::Missing | Told::Deleted => true,
        }
    }

    fn only_looks(&self, _: &Asked, told: &Told) -> bool {
        !matches!(told, Told::Written { .. } | Told::Deleted)
    }
}

/// What an operation leads to whose answer nobody knows. What changes nothing is left out.
fn unknown(state: Standing, asked: &Asked, next: &mut Vec<Standing>) {
    let what = asked.asked.what;
    match what {
        What::Get | What::Read | What::Refuse => {}
        What::Delete => next.push(state.deleted()),
        // Only creating a record is a change.
        What::Touch if state.value.is_some() => {}
        What::Inc(_) if state.value.is_none() => {}
        What::Set(_) | What::Mutate { .. } | What::Touch | What::Inc(_) => {
            if let Some(value) = what.mutated(state.record()) {
                state.write(value, asked, None, next);
            }
        }
    }
}

fn known(state: Standing, asked: &Asked, told: Told, next: &mut Vec<Standing>) {
    let what = asked.asked.what;
    match (what, told) {
        (What::Get, Told::Value(value)) if state.record() == value => next.push(state.closed()),
        (What::Read, Told::Found(found)) if found == state.value.map(|value| (state.version, value)) => {
            next.push(state.closed());
        }
        (What::Set(_) | What::Mutate { .. } | What::Touch | What::Inc(_), Told::Written { old, version }) => {
            let seen = old.is_none_or(|old| old == state.record());
            let there = state.value.is_some() || !matches!(what, What::Inc(_));
            if let Some(value) = what.mutated(state.record()).filter(|_| seen && there) {
                state.write(value, asked, Some(version), next);
            }
        }
        (What::Touch, Told::Unchanged { old, version })
            if (state.value, state.version) == (Some(old), version) =>
        {
            next.push(state.closed());
        }
        // One that refuses may stand in the middle of a write of its own side.
        (What::Refuse, Told::Refused(old)) if state.record() == old => {
            let part = state.takes(asked.asked.sharing(), asked.call);
            next.push(part.map_or(state.closed(), |_| state));
        }
        (What::Inc(_), Told::Missing) if state.value.is_none() => next.push(state),
        (What::Delete, Told::Deleted) => next.push(state.deleted()),
        _ => {}
    }
}

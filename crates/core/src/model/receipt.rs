//! Receipts of applied batches.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::clock::Timestamp;
use crate::id::{DocVersion, OpId, Position, StreamVersion};
use crate::key::Key;
use crate::payload::Payload;

/// Proof that a batch was applied, with the numbers that the store assigned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The commit time, by the store's clock.
    pub at: Timestamp,
    /// One entry for each append of at least one event, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub appended: Vec<Appended>,
    /// One entry for each put, delete and merge, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<Written>,
    /// The number of changed rows for each operator's action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operated: Vec<u64>,
    /// The number of removed events for each truncate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<u64>,
    /// Whether the batch had been applied before. A repeated receipt contains no document values.
    #[serde(default, skip)]
    pub repeated: bool,
}

impl Receipt {
    pub(super) fn new(at: Timestamp) -> Self {
        Self {
            at,
            appended: Vec::new(),
            documents: Vec::new(),
            operated: Vec::new(),
            truncated: Vec::new(),
            repeated: false,
        }
    }

    /// Returns the receipt as a repetition gets it: marked as repeated, and without document values.
    #[must_use]
    pub fn into_repeated(mut self) -> Self {
        for written in &mut self.documents {
            written.value = None;
        }
        self.repeated = true;
        self
    }

    /// Returns the position of the last event of the batch, for a reader that waits for it.
    #[must_use]
    pub fn last_position(&self) -> Option<Position> {
        self.appended.iter().map(|a| a.last_position).max()
    }
}

/// The versions and positions of the events of one append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The stream.
    pub stream: Key,
    /// The version of the first event.
    pub first_version: StreamVersion,
    /// The version of the last event.
    pub last_version: StreamVersion,
    /// The position of the first event.
    pub first_position: Position,
    /// The position of the last event.
    pub last_position: Position,
}

/// The result of one put, delete or merge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// The document.
    pub key: Key,
    /// The version after the write.
    pub version: DocVersion,
    /// The value that the merges of this document in the batch arrived at; they share it. Stores do not keep it: it is `None`
    /// in a repeated receipt. Read the document instead.
    #[serde(skip)]
    pub value: Option<Payload>,
}

/// The known outcome of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// The batch was applied. The receipt is marked as repeated.
    Applied(Receipt),
    /// The batch was not applied. The id is void: a batch that arrives under it later is refused.
    NotApplied,
}

impl Resolution {
    /// Decides a batch whose id has this record already.
    ///
    /// # Errors
    /// [`Refusal::OperationVoid`] when the id is void.
    pub fn verdict(self, id: OpId) -> Result<Receipt, Box<Refusal>> {
        match self {
            Self::Applied(receipt) => Ok(receipt.into_repeated()),
            Self::NotApplied => Err(Box::new(Refusal::OperationVoid { id })),
        }
    }

    /// The receipt, when the batch was applied.
    #[must_use]
    pub fn into_receipt(self) -> Option<Receipt> {
        match self {
            Self::Applied(receipt) => Some(receipt.into_repeated()),
            Self::NotApplied => None,
        }
    }
}

//! The Store contract: one write, one claim, reads that block nobody, and hints that make things fast.
//!
//! [`Store`] is object-safe; programs hold an `Arc<dyn Store>`. Backends implement it by moving rows between their
//! tables and the pure decisions in [`model`](crate::model); the kit in `tidelock-tck` checks every one of them.

mod claim;
mod error;
pub mod layer;
pub mod memory;
mod read;
pub mod report;
mod watch;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use crate::model::batch::{
    Batch, Effect, Expect, Missing, NewEvent, NewWork, Operation, Selection, WorkFilter,
};
pub use crate::model::claim::Denied;
pub use crate::model::delta::Delta;
pub use crate::model::epoch::HistoryCut;
pub use crate::model::limits;
pub use crate::model::pattern::Pattern;
pub use crate::model::receipt::{Appended, Receipt, Resolution, Written};
pub use crate::model::refusal::{DocumentFound, Holder, Refusal, StreamFound};
pub use crate::model::rows::{Blocked, Document, Event, Lease, LeaseRow, Lifetime, StreamRow, WorkRow};
pub use claim::{Claim, Claimed, Gathering, Grant, NextReady, Pick};
pub use error::{ApplyError, StoreError, StoreErrorKind};
pub use memory::MemoryStore;
pub use read::{
    Direction, EventFilter, EventPage, Get, LogQuery, Page, PageOf, RowSet, StoredRow, StreamInfo,
    StreamQuery, Sweep, Swept,
};
pub use watch::{Watch, Watcher};

use crate::clock::Timestamp;
use crate::id::{Epoch, Lane, OpId};
use crate::key::{Key, KeyPrefix};

/// Whether an acknowledged write survives a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Flushed to the device before the caller hears OK.
    #[default]
    Full,
    /// Consistent after a power cut, but the last moments may be missing. Survives the death of the process.
    Relaxed,
    /// Gone with the process: the memory store.
    None,
}

/// What a store says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// `memory`, `sqlite`, …
    pub backend: String,
    /// Where the data is, without secrets.
    pub location: String,
    /// What an acknowledgement is worth, as read back from the backend.
    pub durability: Durability,
    /// The version of the schema in use.
    pub schema: u32,
    /// The epoch of its history.
    pub epoch: Epoch,
    /// The engine beneath, with its version.
    pub engine: String,
}

/// A store of facts, state and work.
///
/// # Guarantees that every implementation MUST give
/// - **All or nothing.** A batch is applied as a whole or not at all, and an acknowledged batch stays applied as
///   [`Durability`] says.
/// - **One order.** All batches and claims have one order that agrees with real time: whoever starts after another's
///   acknowledgement sees its effects.
/// - **Positions are visible in order.** A reader that has seen position p never later meets a new event below p,
///   and positions and versions of one stream agree.
/// - **Fences rise.** Every grant has a higher fence than all before it; a write that shows a stale fence is refused.
/// - **Epochs.** When the history may have been cut, a new epoch begins: positions and fences of the lost part never come
///   back, what the process remembered is dropped, and a reader with a position of the lost part gets an error.
/// - **The store's clock decides** when work is due, leases end and documents expire.
/// - **Groups are independent.** Batches that share a flush do not share a fate.
///
/// # Cancel safety
/// A future that is dropped before its first poll does nothing. Dropped later, the batch or claim may still be
/// carried out: give the batch an [`OpId`] when it matters, and let leases end by themselves.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Applies a batch: all of it or nothing.
    ///
    /// # Crash safety
    /// When the process dies before the acknowledgement, the batch was applied as a whole or not at all.
    /// [`resolve`](Self::resolve) returns which.
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError>;

    /// Leases work that may be had to one worker, skipping what others hold.
    ///
    /// # Crash safety
    /// A worker that dies with a grant loses it when the lease ends; the attempt has been counted.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;

    /// Returns when the first row of these lanes can be claimed, without leasing it. A read: it waits for no writer, and
    /// costs the same however many rows the lanes have.
    ///
    /// A row may be gone when the instant has come, because another worker was faster. A store that does not see every row
    /// of other processes at once returns no later instant than the one at which it will.
    async fn next_ready(&self, lanes: &[Lane]) -> Result<NextReady, StoreError>;

    /// Turns an unknown outcome into a known one.
    ///
    /// Returns the receipt of the batch that was applied under this id. A batch that is being committed is waited for.
    /// Without one, the id becomes void in the same step: a batch that arrives under it later is refused with
    /// [`Refusal::OperationVoid`]. So [`Resolution::NotApplied`] stays true, and the work may be done again under a new
    /// id. Call it within the retention of operation records: a record that a sweep removed cannot be told from one
    /// that never was.
    ///
    /// # Errors
    /// [`StoreErrorKind::Busy`] when the batch is still being committed after the time that the store waits. After any
    /// error the outcome is as unknown as before; call it again.
    ///
    /// # Cancel safety
    /// Dropped, it may still make the id void.
    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError>;

    /// Reads several rows of any kind from one snapshot, with the store's clock. The rows are in the order of the request,
    /// and a row that does not exist is `None`. Without a request it only reads the clock.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] for more than [`limits::READ_ROWS`] rows. A row that does not read back fails the whole
    /// read.
    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError>;

    /// The receipt that is recorded under this id, without waiting. `None` means not recorded yet: the batch may still
    /// be in flight, and its id may be void. [`resolve`](Self::resolve) returns the outcome.
    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError>;

    /// A document by its key.
    async fn document(&self, key: &Key) -> Result<Option<Document>, StoreError>;

    /// Documents in the order of their keys. Pages neither repeat nor skip a document that stays.
    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<Document>, StoreError>;

    /// Returns the number of documents in a range of keys, without reading their values.
    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError>;

    /// A stream by its key; `None` when it has neither events nor a tombstone.
    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError>;

    /// Streams in the order of their keys.
    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError>;

    /// Events of one stream.
    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError>;

    /// Events of the whole log, in order of position.
    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError>;

    /// A work row by its key, without leasing it.
    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError>;

    /// Work rows in the order of their keys, without leasing them.
    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError>;

    /// How many work rows match: what an operator's verb would touch.
    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError>;

    /// The epoch of the store's history, as this process last confirmed it.
    ///
    /// Take it before you read something that you will write by later, and put it on the batch with
    /// [`Batch::observed_in`].
    fn epoch(&self) -> Epoch;

    /// Declares that the history of the store was cut, for example by restoring a backup: begins a new epoch.
    ///
    /// Positions, fences and creation numbers move far ahead, so that none of the lost part comes back. Every process
    /// drops what it remembers. Declaring it without need is harmless.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be written; then the epoch is the same as before.
    ///
    /// # Crash safety
    /// A process that dies meanwhile leaves the old epoch or the new one.
    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError>;

    /// Removes what no reader sees any more: expired documents, and old tombstones and operation records.
    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError>;

    /// Hints that something may have changed, in this process or another. Correctness never depends on it.
    fn watch(&self) -> Watch;

    /// The store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns the store's clock as this process knows it, without a round trip.
    ///
    /// It may be behind the clock by the time since the last reply of the store. Use it for times that are recorded and shown,
    /// never to decide whether a lease has ended.
    fn estimated_now(&self) -> Timestamp;

    /// What the store is, read back from the backend; fails when it cannot be reached.
    async fn info(&self) -> Result<StoreInfo, StoreError>;
}

/// A store as programs hold it.
pub type SharedStore = Arc<dyn Store>;

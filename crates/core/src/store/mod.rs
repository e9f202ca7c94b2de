//! Store contract: one write, one claim, non-blocking reads, and change hints that reduce latency.
//!
//! [`Store`] is object-safe, and programs hold an `Arc<dyn Store>`. Backends implement it by moving rows between their tables
//! and the pure decisions in [`model`](crate::model). The kit in `tidelock-tck` checks every backend.

mod claim;
mod error;
pub mod layer;
pub mod memory;
mod read;
pub mod report;
mod watch;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use crate::model::batch::{
    Batch, Effect, Expect, Missing, NewEvent, NewWork, Operation, Selection, WorkFilter,
};
pub use crate::model::claim::ClaimDenied;
pub use crate::model::delta::Delta;
pub use crate::model::epoch::HistoryCut;
pub use crate::model::limits;
pub use crate::model::pattern::Pattern;
pub use crate::model::receipt::{Appended, Receipt, Resolution, Written};
pub use crate::model::refusal::{DocumentFound, Holder, Refusal, StreamFound};
pub use crate::model::rows::{Blocked, Event, Lease, LeaseRow, Lifetime, StoredDocument, StreamRow, WorkRow};
pub use claim::{Claim, ClaimTarget, Claimed, Gathering, Grant, NextReady};
pub use error::{ApplyError, StoreError, StoreErrorKind};
pub use memory::MemoryStore;
pub use read::{
    Direction, EventFilter, EventPage, Get, LogQuery, Page, PageOf, RowSet, StoredRow, StreamInfo,
    StreamQuery, Sweep, Swept,
};
pub use watch::{Watch, Watcher};

use crate::clock::Timestamp;
use crate::id::{Epoch, OpId, QueueName};
use crate::key::{Key, KeyPrefix};

/// The guarantee for acknowledged writes after a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Flushed to the device before the store acknowledges the write.
    #[default]
    Full,
    /// Consistent after a power cut, but the last writes may be missing. Survives the death of the process.
    Relaxed,
    /// Lost with the process, as in the memory store.
    None,
}

/// A description of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// `memory`, `sqlite`, …
    pub backend: String,
    /// The location of the data, without secrets.
    pub location: String,
    /// The guarantee of an acknowledgement, as read back from the backend.
    pub durability: Durability,
    /// The version of the schema in use.
    pub schema: u32,
    /// The epoch of the store's history.
    pub epoch: Epoch,
    /// The underlying engine, with its version.
    pub engine: String,
}

/// A store of events, documents and work.
///
/// A store is [`Any`], so that a program that knows the backend can use what only this backend has.
///
/// # Guarantees that every implementation MUST give
/// - **All or nothing.** A batch is applied as a whole or not at all, and an acknowledged batch stays applied as
///   [`Durability`] says.
/// - **One order.** All batches and claims have one order that agrees with real time. An operation that starts after the
///   acknowledgement of another sees its effects.
/// - **Positions are visible in order.** A reader that has seen position p never later meets a new event below p. Positions
///   and versions of one stream agree.
/// - **Fences rise.** Every grant has a higher fence than all before it. The store refuses a write with a stale fence.
/// - **Epochs.** When the history may have been cut, a new epoch begins. Positions and fences of the lost part are never
///   assigned again. The process drops its cached state, and a reader with a position of the lost part gets an error.
/// - **The store's clock decides** when work is due, leases expire and documents expire.
/// - **Groups are independent.** Batches that share a flush succeed or fail independently.
///
/// # Cancel safety
/// A future that is dropped before its first poll does nothing. If it is dropped later, the batch or claim may still be
/// executed. Give the batch an [`OpId`] when that matters, and let leases expire.
#[async_trait]
pub trait Store: Any + Send + Sync + fmt::Debug {
    /// Applies a batch, all or nothing.
    ///
    /// # Crash safety
    /// When the process dies before the acknowledgement, the batch was applied as a whole or not at all.
    /// [`resolve`](Self::resolve) returns which.
    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError>;

    /// Leases claimable work to one worker, and skips rows that others hold.
    ///
    /// # Crash safety
    /// If a worker dies with a grant, the lease expires. The attempt has been counted.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;

    /// Returns when the first row of these queues can be claimed, without leasing it. It is a read that waits for no writer,
    /// and its cost does not depend on the number of rows in the queues.
    ///
    /// Another worker may have claimed the row when the instant comes. A store that does not see every row of other processes
    /// at once returns no later instant than the one at which it will.
    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError>;

    /// Resolves an unknown outcome.
    ///
    /// Returns the receipt of the batch that was applied under this id. Waits for a batch that is being committed. If there is
    /// none, it voids the id in the same step: the store refuses a later batch under it with [`Refusal::OperationVoid`].
    /// [`Resolution::NotApplied`] therefore stays true, and the caller may repeat the work under a new id. Call it within the
    /// retention of operation records, because a swept record is indistinguishable from one that never existed.
    ///
    /// # Errors
    /// [`StoreErrorKind::Busy`] when the batch is still being committed after the store's wait time. After any error the
    /// outcome is still unknown. Call it again.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may still void the id.
    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError>;

    /// Reads several rows of any kind from one snapshot, with the store's clock. The rows are in the order of the request, and
    /// a row that does not exist is `None`. Without a request it only reads the clock.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] for more than [`limits::READ_ROWS`] rows. A row that does not decode fails the whole read.
    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError>;

    /// Returns the receipt that is recorded under this id, without waiting. `None` means not recorded yet: the batch may still
    /// be in flight, and its id may be void. [`resolve`](Self::resolve) returns the outcome.
    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError>;

    /// Returns a document by its key.
    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError>;

    /// Lists documents in the order of their keys. Pages neither repeat nor skip a document that stays.
    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError>;

    /// Returns the number of documents in a range of keys, without reading their values.
    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError>;

    /// Returns a stream by its key. `None` when it has neither events nor a tombstone.
    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError>;

    /// Lists streams in the order of their keys.
    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError>;

    /// Reads events of one stream.
    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError>;

    /// Reads events of the whole log, in order of position.
    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError>;

    /// Returns a work row by its key, without leasing it.
    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError>;

    /// Lists work rows in the order of their keys, without leasing them.
    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError>;

    /// Returns the number of matching work rows, which an operator's action would affect.
    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError>;

    /// Returns the epoch of the store's history, as this process last confirmed it.
    ///
    /// Call it before you read state that a later write depends on, and put it on the batch with [`Batch::observed_in`].
    fn epoch(&self) -> Epoch;

    /// Declares that the history of the store was cut, for example by restoring a backup, and begins a new epoch.
    ///
    /// Positions, fences and creation numbers move far ahead, so that no number of the lost part is assigned again. Every
    /// process drops its cached state. An unnecessary declaration is harmless.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be written. The epoch is then unchanged.
    ///
    /// # Crash safety
    /// If the process dies during the call, the store has either the old epoch or the new one.
    async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError>;

    /// Removes rows that are no longer visible to readers: expired documents, old tombstones and old operation records.
    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError>;

    /// Returns hints that data may have changed, in this process or another. Correctness never depends on them.
    fn watch(&self) -> Watch;

    /// Returns the store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns the store's clock as this process knows it, without a round trip.
    ///
    /// It may lag behind the clock by the time since the last reply of the store. Use it for times that are recorded and
    /// shown, never to decide whether a lease has expired.
    fn estimated_now(&self) -> Timestamp;

    /// Returns the description of the store, read back from the backend. Fails when the backend cannot be reached.
    async fn info(&self) -> Result<StoreInfo, StoreError>;
}

/// A shared handle to a store.
pub type SharedStore = Arc<dyn Store>;

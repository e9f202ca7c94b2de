//! The connection of a simulated process to the store: delays, losses and crashes at every operation.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, OpId, QueueName};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::layer::StoreLayer;
use tidelock_core::store::*;
use tokio::time::sleep;

use crate::fault::Fault;
use crate::world::World;

/// The longest time that an operation waits for a partition to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval at which a partitioned operation retries.
const RETRY: Duration = Duration::from_millis(500);

/// The connection of one process to the store.
pub(crate) struct Link {
    world: Arc<World>,
    store: MemoryStore,
    host: usize,
    name: String,
    /// Hints of the store. `None` delivers none, as when the connection for notifications is lost.
    hints: Option<Watcher>,
    /// The store's clock at the last reply, which is all that a process knows without a round trip.
    known: Mutex<Timestamp>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Lets other tasks run. Every operation of the store is such a point, before and after it.
async fn give_way() {
    let mut gave = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn lost(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, what, "the connection was lost")
}

impl Link {
    pub(crate) fn new(
        world: &Arc<World>,
        store: &MemoryStore,
        host: usize,
        name: &str,
        hinted: bool,
    ) -> Self {
        let hints = (!hinted).then(Watcher::default);
        let known = Mutex::new(store.estimated_now());
        Self { world: Arc::clone(world), store: store.clone(), host, name: name.to_owned(), hints, known }
    }

    /// Waits for the connection. A partition that lasts makes the operation fail.
    async fn connect(&self, what: &str) -> Result<(), StoreError> {
        give_way().await;
        let mut waited = Duration::ZERO;
        while self.world.is_partitioned(self.host) {
            if waited >= PATIENCE {
                return Err(lost(what));
            }
            sleep(RETRY).await;
            waited += RETRY;
        }
        Ok(())
    }

    /// Executes a read.
    async fn reading<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.connect("read").await?;
        *self.known.lock() = self.store.estimated_now();
        read.await
    }

    /// Executes a write in the manner of the fault that the plan has for it. The outer error is the loss of the connection,
    /// with whether the write was applied.
    async fn writing<T, F>(&self, what: &str, write: F) -> Result<T, (StoreError, bool)>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (number, fault) = self.world.next_write(self.host);
        if self.connect(what).await.is_err() {
            // The request may have been sent before the partition was noticed.
            let maybe = self.world.below(4);
            if maybe == 0 {
                drop(write.await);
            }
            return Err((lost(what), maybe > 1));
        }
        *self.known.lock() = self.store.estimated_now();
        if let Some(fault) = &fault {
            self.world.note(|| format!("{}: fault: {fault}", self.name));
        }
        match fault {
            None => Ok(write.await),
            Some(Fault::Rejected { .. }) => Err((lost(what), true)),
            Some(Fault::LostReply { applied, .. }) => {
                if applied {
                    drop(write.await);
                }
                Err((lost(what), false))
            }
            Some(Fault::CrashAtWrite { applied, down, .. }) => {
                if applied {
                    drop(write.await);
                }
                self.world.request_crash(self.host, down);
                std::future::pending().await
            }
            Some(Fault::Late { by, .. }) => {
                self.late(number, by, write).await.ok_or_else(|| (lost(what), false))
            }
            Some(_) => Ok(write.await),
        }
    }

    /// Executes a write later, outside the process, so that a crash does not stop it.
    async fn late<T, F>(&self, number: u64, by: Duration, write: F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (world, name) = (Arc::clone(&self.world), self.name.clone());
        let delayed = tokio::spawn(async move {
            sleep(by).await;
            world.note(|| format!("{name}: delayed write {number} is applied"));
            write.await
        });
        delayed.await.ok()
    }
}

/// Describes the effects of a batch for the trace.
fn effects(batch: &Batch) -> String {
    let all: Vec<String> = batch.effects().iter().map(effect).collect();
    all.join(", ")
}

fn effect(effect: &Effect) -> String {
    let of = |verb: &str, lease: &Lease| format!("{verb} {}", lease.key);
    match effect {
        Effect::Append { stream, events, .. } => {
            let types: Vec<String> = events.iter().map(|event| event.event_type.to_string()).collect();
            format!("append {} to {stream}", types.join("+"))
        }
        Effect::Close { stream, .. } => format!("close {stream}"),
        Effect::Truncate { stream, .. } => format!("truncate {stream}"),
        Effect::Put { key, .. } => format!("put {key}"),
        Effect::Delete { key, .. } => format!("delete {key}"),
        Effect::Merge { key, .. } => format!("merge {key}"),
        Effect::Enqueue(work) => format!("enqueue {}", work.key),
        Effect::Ack { lease } => of("ack", lease),
        Effect::Advance { lease, .. } => of("advance", lease),
        Effect::Defer { lease, .. } => of("defer", lease),
        Effect::Fail { lease, error, .. } => format!("{}: {error}", of("fail", lease)),
        Effect::Block { lease, reason } => format!("{}: {reason}", of("block", lease)),
        Effect::Renew { lease, .. } => of("renew", lease),
        Effect::Release { lease } => of("release", lease),
        Effect::Operate { operation, .. } => format!("{operation:?}"),
        Effect::GuardStream { stream, .. } => format!("guard {stream}"),
        Effect::GuardDocument { key, .. } | Effect::GuardWork { key, .. } => format!("guard {key}"),
        Effect::GuardLease { lease } => of("guard", lease),
    }
}

#[async_trait]
impl StoreLayer for Link {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let (id, store, sent) = (batch.id(), self.store.clone(), batch.clone());
        let applied = self.writing("apply", async move { store.apply(batch).await }).await;
        let applied = match applied {
            Ok(applied) => applied,
            Err((error, true)) => Err(ApplyError::not_decided(error, id)),
            Err((error, false)) => Err(ApplyError::unknown(error, id)),
        };
        match &applied {
            Ok(receipt) => {
                self.world.audit.applied(receipt);
                self.world.note(|| format!("{}: {}", self.name, effects(&sent)));
            }
            Err(error) => self.world.note(|| format!("{}: FAILED {}: {error}", self.name, effects(&sent))),
        }
        self.world.mix(u64::from(applied.is_ok()));
        give_way().await;
        applied
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let store = self.store.clone();
        let claimed = self.writing("claim", async move { store.claim(claim).await }).await;
        let claimed = claimed.unwrap_or_else(|(error, _)| Err(error));
        if let Ok(claimed) = &claimed {
            if let Err(failure) = self.world.audit.claimed(claimed) {
                self.world.fail(|| failure);
            }
            for grant in &claimed.grants {
                self.world.mix(grant.fence.0);
                self.world
                    .note(|| format!("{}: leased {} with fence {}", self.name, grant.row.key, grant.fence));
            }
        }
        give_way().await;
        claimed
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept, StoreError> {
        let store = self.store.clone();
        let swept = self.writing("sweep", async move { store.sweep(sweep).await }).await;
        swept.unwrap_or_else(|(error, _)| Err(error))
    }

    async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        self.reading(self.store.resolve(id)).await
    }

    async fn next_ready(&self, queues: &[QueueName]) -> Result<NextReady, StoreError> {
        self.reading(self.store.next_ready(queues)).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        self.reading(self.store.read(gets)).await
    }

    async fn operation(&self, id: OpId) -> Result<Option<Receipt>, StoreError> {
        self.reading(self.store.operation(id)).await
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        self.reading(self.store.document(key)).await
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        self.reading(self.store.documents(prefix, page)).await
    }

    async fn count_documents(&self, prefix: &KeyPrefix) -> Result<u64, StoreError> {
        self.reading(self.store.count_documents(prefix)).await
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        self.reading(self.store.stream(key)).await
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        self.reading(self.store.streams(prefix, page)).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.reading(self.store.read_stream(query)).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.reading(self.store.read_log(query)).await
    }

    async fn work(&self, key: &Key) -> Result<Option<WorkRow>, StoreError> {
        self.reading(self.store.work(key)).await
    }

    async fn works(&self, filter: &WorkFilter, page: Page) -> Result<PageOf<WorkRow>, StoreError> {
        self.reading(self.store.works(filter, page)).await
    }

    async fn count_work(&self, filter: &WorkFilter) -> Result<u64, StoreError> {
        self.reading(self.store.count_work(filter)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.reading(self.store.now()).await
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn estimated_now(&self) -> Timestamp {
        *self.known.lock()
    }

    fn watch(&self) -> Watch {
        match &self.hints {
            None => self.store.watch(),
            Some(silent) => silent.listen(),
        }
    }
}

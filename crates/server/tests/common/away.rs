//! Test store that becomes unreachable after a number of writes, as if the process had died before the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tidelock::prelude::*;
use tidelock::store::{ApplyError, EventPage, LogQuery, Receipt, StoreError, StoreErrorKind, StoreInfo};

#[derive(Debug)]
pub(crate) struct Away {
    inner: SharedStore,
    /// The number of writes that still succeed.
    left: AtomicUsize,
    /// Whether reads of the log fail as well.
    pub(crate) reads: std::sync::atomic::AtomicBool,
    /// The schema version to report. 0 reports the real one.
    pub(crate) schema: AtomicUsize,
}

impl Away {
    pub(crate) fn after(inner: &SharedStore, writes: usize) -> Arc<Self> {
        let (inner, left) = (Arc::clone(inner), AtomicUsize::new(writes));
        Arc::new(Self { inner, left, reads: false.into(), schema: AtomicUsize::new(0) })
    }

    fn read(&self) -> Result<(), StoreError> {
        if self.reads.load(Ordering::SeqCst) { Err(away()) } else { Ok(()) }
    }
}

fn away() -> StoreError {
    StoreError::new(StoreErrorKind::Unreachable, "the store is away", "this is a test")
}

#[async_trait]
impl tidelock::store::layer::StoreLayer for Away {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let one = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one).is_err() {
            return Err(ApplyError::not_applied(away()));
        }
        self.inner.apply(batch).await
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        self.read()?;
        self.inner.read_log(query).await
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        let info = self.inner.info().await?;
        match u32::try_from(self.schema.load(Ordering::SeqCst)).unwrap() {
            0 => Ok(info),
            schema => Ok(StoreInfo { schema, ..info }),
        }
    }
}

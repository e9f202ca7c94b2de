//! A store with one planted fault.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock, Timestamp};
use tidelock_core::id::EventId;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::*;
use tidelock_tck::{Backend, Capabilities, Database};

/// The planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    IgnoresDocumentVersions,
    IgnoresStreamVersions,
    HonoursStaleFences,
    TearsBatches,
    ForgetsOperations,
    ForgetsEventIds,
    ClaimsATickLate,
    ForgetsExpiry,
    SkipsEvents,
    SkipsAtPageEnds,
    GrantsWhatIsHeld,
    LosesWakes,
    /// Treats an exact expected version of a document as any version.
    IgnoresExactVersions,
    /// Sometimes returns a document as it was a few versions ago.
    ReadsStale,
    /// Sometimes acknowledges a put without applying it.
    ForgetsWrites,
    /// Sometimes applies a merge twice.
    MergesTwice,
    TruncatesTooMuch,
    ForgetsHeads,
    /// Reads the rows of one read one after another.
    TearsReads,
    /// As above, without waiting for a write in between.
    ReadsRowByRow,
    /// Applies the effects of a batch one after another.
    SplitsBatches,
}

pub(crate) struct Faulty(pub(crate) Fault);

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        let sound = MemoryStore::with_clock(clock.clone());
        let (calls, applied) = (Arc::default(), Arc::default());
        Box::new(FaultyStore { fault: self.0, sound, clock, calls, applied, past: Arc::default() })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn attach(&self, _address: &str, _clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        unreachable!("memory is not shared by processes")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    fault: Fault,
    sound: MemoryStore,
    clock: Arc<ManualClock>,
    /// The number of opportunities for the fault.
    calls: Arc<AtomicU64>,
    /// The number of batches applied.
    applied: Arc<AtomicU64>,
    /// Earlier versions of documents.
    past: Arc<Mutex<BTreeMap<Key, VecDeque<StoredDocument>>>>,
}

#[async_trait]
impl Database for FaultyStore {
    async fn connect(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn address(&self) -> Option<String> {
        None
    }
}

impl FaultyStore {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Returns the batch as the faulty store understands it.
    async fn misread(&self, batch: Batch) -> Batch {
        let mut misread = Batch::new();
        for effect in batch.effects() {
            let mut effect = effect.clone();
            self.bend(&mut effect).await;
            misread = misread.with(effect);
        }
        match batch.id().filter(|_| !self.has(Fault::ForgetsOperations)) {
            Some(id) => misread.op_id(id),
            None => misread,
        }
    }

    async fn bend(&self, effect: &mut Effect) {
        match effect {
            Effect::Put { expect, .. }
            | Effect::Delete { expect, .. }
            | Effect::GuardDocument { expect, .. }
                if self.has(Fault::IgnoresDocumentVersions) =>
            {
                *expect = Expect::Any;
            }
            Effect::Put { expect: expect @ Expect::Exact(_), .. }
                if self.has(Fault::IgnoresExactVersions) =>
            {
                *expect = Expect::Any;
            }
            Effect::Put { expires, .. } if self.has(Fault::ForgetsExpiry) => *expires = None,
            Effect::Append { expect, .. } if self.has(Fault::IgnoresStreamVersions) => *expect = Expect::Any,
            Effect::Truncate { before, .. } if self.has(Fault::TruncatesTooMuch) => *before = before.next(),
            Effect::Append { events, .. } if self.has(Fault::ForgetsEventIds) => {
                events.iter_mut().for_each(|event| event.id = EventId::new());
            }
            Effect::Ack { lease }
            | Effect::Advance { lease, .. }
            | Effect::Defer { lease, .. }
            | Effect::Fail { lease, .. }
            | Effect::Block { lease, .. }
            | Effect::Renew { lease, .. }
            | Effect::Release { lease }
            | Effect::GuardLease { lease }
                if self.has(Fault::HonoursStaleFences) =>
            {
                if let Some(held) = self.holder(&lease.key).await {
                    (lease.fence, lease.owner) = (held.fence, Some(held.owner));
                }
            }
            _ => {}
        }
    }

    /// Returns true on every fortieth call.
    fn now_and_then(&self, fault: Fault) -> bool {
        self.has(fault) && self.calls.fetch_add(1, Ordering::SeqCst) % 40 == 39
    }

    /// Returns the receipt for a batch that is not applied.
    async fn pretend(&self, batch: &Batch) -> Option<Receipt> {
        let [Effect::Put { key, .. }] = batch.effects() else { return None };
        let current = self.sound.document(key).await.ok()??;
        let mut receipt = self.sound.apply(Batch::new()).await.ok()?;
        receipt.documents.push(Written { key: key.clone(), version: current.version.next(), value: None });
        Some(receipt)
    }

    /// Returns the document as it was some versions ago.
    fn stale(&self, document: StoredDocument) -> StoredDocument {
        let mut past = self.past.lock().unwrap();
        let versions = past.entry(document.key.clone()).or_default();
        versions.push_back(document.clone());
        if versions.len() > 8 {
            versions.pop_front();
        }
        let old = versions.front().filter(|_| self.now_and_then(Fault::ReadsStale));
        old.cloned().unwrap_or(document)
    }

    /// Applies the effects one by one. The preconditions after the first one are not compared.
    async fn split(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        let mut receipt = None;
        let last = batch.effects().len().saturating_sub(1);
        for (n, effect) in batch.effects().iter().enumerate() {
            tokio::task::yield_now().await;
            let one = Batch::new().with(effect.clone());
            let one = if n == last { batch.id().map_or(one.clone(), |id| one.op_id(id)) } else { one };
            match self.sound.apply(one).await {
                Ok(next) => receipt = Some(next),
                Err(error) if n == 0 => return Err(error),
                Err(_) => {}
            }
        }
        receipt.ok_or_else(|| ApplyError::not_applied(StoreError::new(StoreErrorKind::Bug, "split", "empty")))
    }

    /// Waits for the batch of another caller, at most for a second.
    async fn next_batch(&self) {
        let (seen, since) = (self.applied.load(Ordering::SeqCst), Instant::now());
        while self.applied.load(Ordering::SeqCst) == seen && since.elapsed() < Duration::from_secs(1) {
            tokio::task::yield_now().await;
        }
    }

    async fn holder(&self, key: &Key) -> Option<LeaseRow> {
        self.sound.work(key).await.ok().flatten()?.lease
    }

    /// Returns a stream as the faulty store reports it: without a head when no event is left.
    fn seen(&self, mut info: StreamInfo) -> StreamInfo {
        if self.has(Fault::ForgetsHeads) && info.first.is_none() {
            info.head = None;
        }
        info
    }

    async fn loses(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Enqueue(work) if self.has(Fault::LosesWakes) => self.holder(&work.key).await.is_some(),
            _ => false,
        }
    }
}

#[async_trait]
impl tidelock_core::store::layer::StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &self.sound
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.applied.fetch_add(1, Ordering::SeqCst);
        let batch = self.misread(batch).await;
        let mut kept = Batch::new();
        for effect in batch.effects() {
            if !self.loses(effect).await {
                kept = kept.with(effect.clone());
            }
        }
        if let Some(id) = batch.id() {
            kept = kept.op_id(id);
        }
        if self.has(Fault::TearsBatches) && kept.effects().len() > 1 && kept.id().is_none() {
            // Effects before the failing one stay.
            let mut last = None;
            for effect in kept.effects() {
                last = Some(self.sound.apply(Batch::new().with(effect.clone())).await?);
            }
            return Ok(last.expect("there are several"));
        }
        if self.has(Fault::SplitsBatches) {
            return self.split(kept).await;
        }
        if self.now_and_then(Fault::ForgetsWrites)
            && let Some(receipt) = self.pretend(&kept).await
        {
            return Ok(receipt);
        }
        let merge = kept.effects().iter().find(|effect| matches!(effect, Effect::Merge { .. }));
        if let Some(merge) = merge.filter(|_| self.now_and_then(Fault::MergesTwice)) {
            self.sound.apply(Batch::new().with(merge.clone())).await?;
        }
        self.sound.apply(kept).await
    }

    async fn claim(&self, mut claim: Claim) -> Result<Claimed, StoreError> {
        if self.has(Fault::GrantsWhatIsHeld)
            && let ClaimTarget::Named { key, .. } = &claim.pick
            && let Some(held) = self.holder(key).await
        {
            claim.owner = held.owner;
        }
        if self.has(Fault::ClaimsATickLate) {
            let now = self.clock.now();
            self.clock.set(Timestamp::from_micros(now.as_micros() - 1));
            claim.ttl += Duration::from_micros(1);
            let claimed = self.sound.claim(claim).await;
            self.clock.set(now);
            return claimed;
        }
        self.sound.claim(claim).await
    }

    async fn read(&self, gets: &[Get]) -> Result<RowSet, StoreError> {
        let mut found = self.sound.read(gets).await?;
        for (get, row) in gets.iter().zip(&mut found.rows) {
            if self.has(Fault::TearsReads) {
                self.next_batch().await;
            }
            if self.has(Fault::TearsReads) || self.has(Fault::ReadsRowByRow) {
                tokio::task::yield_now().await;
                *row = self.sound.read(std::slice::from_ref(get)).await?.rows.pop().flatten();
            }
            *row = row.take().map(|row| match row {
                StoredRow::Document(document) => StoredRow::Document(self.stale(document)),
                StoredRow::Stream(info) => StoredRow::Stream(self.seen(info)),
                row => row,
            });
        }
        Ok(found)
    }

    async fn document(&self, key: &Key) -> Result<Option<StoredDocument>, StoreError> {
        let document = self.sound.document(key).await?;
        Ok(document.map(|document| self.stale(document)))
    }

    async fn documents(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StoredDocument>, StoreError> {
        let mut page = self.sound.documents(prefix, page).await?;
        if self.has(Fault::SkipsAtPageEnds) && page.next.is_some() {
            page.rows.pop();
        }
        Ok(page)
    }

    async fn stream(&self, key: &Key) -> Result<Option<StreamInfo>, StoreError> {
        Ok(self.sound.stream(key).await?.map(|info| self.seen(info)))
    }

    async fn streams(&self, prefix: &KeyPrefix, page: Page) -> Result<PageOf<StreamInfo>, StoreError> {
        let mut page = self.sound.streams(prefix, page).await?;
        page.rows = page.rows.into_iter().map(|info| self.seen(info)).collect();
        Ok(page)
    }

    async fn read_log(&self, query: LogQuery) -> Result<EventPage, StoreError> {
        let mut page = self.sound.read_log(query).await?;
        if self.has(Fault::SkipsEvents) && page.events.len() > 3 {
            page.events.remove(1);
        }
        Ok(page)
    }
}

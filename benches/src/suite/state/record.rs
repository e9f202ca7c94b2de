//! The records with counters, and the check that no increment was lost.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock_console::progress::Progress;

use super::strategy::{Load, Strategy};

/// The size of batches and pages.
const PAGE: usize = 5_000;

/// A record with a counter, about 200 bytes of JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) count: u64,
    order: String,
    customer: String,
    price_cents: u64,
    tags: Vec<String>,
    note: String,
}

impl Record {
    /// Creates a record with a count of 0.
    pub(super) fn new() -> Self {
        Self {
            count: 0,
            order: "o-000017".to_owned(),
            customer: "c-4711".to_owned(),
            price_cents: 1_299,
            tags: vec!["fragile".to_owned(), "express".to_owned()],
            note: "leave it at the door, ring twice, and mind the step: the third one is loose".to_owned(),
        }
    }
}

/// The records of one strategy under one load.
#[derive(Debug)]
pub(super) struct Records {
    kind: String,
    keys: Arc<[Key]>,
    seen: Sums,
}

/// Sums over all records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// The sum of the counters.
    count: u64,
    /// The sum of the versions, which is the number of writes.
    versions: u64,
}

impl Records {
    /// Creates `count` records.
    pub(super) async fn create(
        store: &dyn Store,
        (load, strategy): (Load, Strategy),
        count: u32,
        progress: &Progress,
    ) -> Result<Self> {
        let kind = format!("bench-{}-{}", load.name(), strategy.name());
        let keys: Vec<Key> = (0..count).map(|number| Key::new(&kind, [number])).collect::<Result<_, _>>()?;
        let value = Payload::of(&Record::new())?;
        for some in keys.chunks(PAGE) {
            let put = |batch: Batch, key| batch.put(key, Expect::Absent, value.clone());
            store.apply(some.iter().fold(Batch::new(), put)).await?;
            progress.done(some.len() as u64);
        }
        let mut records = Self { kind, keys: keys.into(), seen: Sums::default() };
        records.seen = records.sums(store).await?;
        Ok(records)
    }

    /// Returns the keys.
    pub(super) fn keys(&self) -> Arc<[Key]> {
        Arc::clone(&self.keys)
    }

    /// Checks that the counters grew by exactly `acknowledged` since the last call. Returns the number of writes.
    pub(super) async fn verify(&mut self, store: &dyn Store, acknowledged: u64) -> Result<u64> {
        let sums = self.sums(store).await?;
        let expected = self.seen.count + acknowledged;
        if sums.count != expected {
            let Self { kind, .. } = self;
            let found = sums.count;
            let fault = if found < expected { "lost updates" } else { "unacknowledged updates" };
            bail!(
                "{fault}: the counters of {kind} add up to {found} instead of {expected}; \
                 discard this run and report the command"
            );
        }
        let writes = sums.versions.saturating_sub(self.seen.versions);
        self.seen = sums;
        Ok(writes)
    }

    async fn sums(&self, store: &dyn Store) -> Result<Sums> {
        let prefix = KeyPrefix::kind(&self.kind);
        let (mut sums, mut page) = (Sums::default(), Page::first(PAGE));
        loop {
            let found = store.documents(&prefix, page).await?;
            for document in found.rows {
                let record: Record = document.value.parse().with_context(|| document.key.to_string())?;
                sums.count += record.count;
                sums.versions += document.version.0;
            }
            match found.next {
                Some(last) => page = Page::after(&last, PAGE),
                None => return Ok(sums),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn two_records(store: &MemoryStore) -> Records {
        Records::create(store, (Load::Hot, Strategy::Naive), 2, &Progress::new(2)).await.unwrap()
    }

    #[test]
    fn a_record_has_about_200_bytes() {
        let bytes = Payload::of(&Record::new()).unwrap().len();
        assert!((180..220).contains(&bytes), "{bytes}");
    }

    #[tokio::test]
    async fn acknowledged_increments_are_found_once() {
        let store = MemoryStore::new();
        let mut records = two_records(&store).await;
        for (key, by) in records.keys().iter().zip([3, 4]) {
            store.apply(Batch::new().merge(key, [Delta::inc("/count", by)])).await.unwrap();
        }
        assert_eq!(records.verify(&store, 7).await.unwrap(), 2, "one write to each of them");
        assert_eq!(records.verify(&store, 0).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_lost_or_extra_increment_fails_the_run() {
        let store = MemoryStore::new();
        let mut records = two_records(&store).await;
        let first = records.keys().first().cloned().unwrap();
        store.apply(Batch::new().merge(&first, [Delta::inc("/count", 5)])).await.unwrap();
        let lost = records.verify(&store, 6).await.unwrap_err().to_string();
        assert!(lost.starts_with("lost updates: the counters of bench-hot-naive"), "{lost}");
        assert!(lost.contains("add up to 5 instead of 6"), "{lost}");
        let more = records.verify(&store, 4).await.unwrap_err().to_string();
        assert!(more.starts_with("unacknowledged updates"), "{more}");
    }
}

//! The commit workload: producers append one event at a time to streams of their own, with a version check.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tidelock::prelude::*;
use tidelock::store::StoreError;
use tokio::task::JoinSet;

use super::statistics::{Commits, Latencies, per_second};

/// The type of every event.
pub const EVENT_TYPE: &str = "ItemAdded";

/// The number of errors that reached a caller, by code.
pub type Errors = BTreeMap<String, u64>;

/// Returns the payload of every event, a JSON object of about 200 bytes.
#[must_use]
pub fn payload_text() -> String {
    let note =
        "leave it at the door, ring twice, and mind the step: the third one is loose and creaks loudly";
    format!(
        r#"{{"order":"o-000017","customer":"c-4711","item":"apples","quantity":3,"price_cents":1299,"note":"{note}"}}"#
    )
}

/// Returns the key of a stream.
///
/// # Errors
/// When `kind` is invalid.
pub fn stream_key(kind: &str, number: u32) -> Result<Key> {
    Ok(Key::new(kind, [number])?)
}

/// Producers that continue where their last slice ended.
#[derive(Debug)]
pub struct Producers {
    producers: Vec<Producer>,
}

/// The result of one slice of time.
#[derive(Debug)]
pub struct Slice {
    /// The time until the last producer was done.
    pub took: Duration,
    /// The latency of each acknowledged commit.
    pub latencies: Latencies,
    /// Errors that reached a producer.
    pub errors: Errors,
}

impl Slice {
    /// Returns the rate and the latencies.
    ///
    /// # Errors
    /// When a commit failed.
    pub fn commits(mut self) -> Result<Commits> {
        if !self.errors.is_empty() {
            bail!("cannot measure: commits failed: {:?}", self.errors);
        }
        Ok(self.numbers())
    }

    /// Returns the rate and the latencies, and ignores errors.
    pub fn numbers(&mut self) -> Commits {
        Commits {
            per_s: per_second(self.latencies.count(), self.took),
            p50_us: self.latencies.percentile(0.5),
            p99_us: self.latencies.percentile(0.99),
        }
    }
}

impl Producers {
    /// Distributes `streams` streams of a kind over the producers.
    ///
    /// # Errors
    /// When `kind` is invalid.
    pub fn new(kind: &str, producers: u32, streams: u32) -> Result<Self> {
        let payload = Payload::from_json(payload_text())?;
        let event_type = EventType::new(EVENT_TYPE)?;
        let mut all = Vec::new();
        for first in 0..producers {
            let step = usize::try_from(producers.max(1))?;
            let owned: Result<Vec<_>> = (first..streams.max(producers))
                .step_by(step)
                .map(|n| Ok((stream_key(kind, n)?, None)))
                .collect();
            let (payload, event_type) = (payload.clone(), event_type.clone());
            all.push(Producer { streams: owned?, next: 0, payload, event_type });
        }
        Ok(Self { producers: all })
    }

    /// Runs all producers for a while.
    ///
    /// # Errors
    /// When a producer panics.
    pub async fn slice(&mut self, store: &SharedStore, length: Duration) -> Result<Slice> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for producer in self.producers.drain(..) {
            let store = SharedStore::clone(store);
            tasks.spawn(async move { producer.run(&*store, started + length).await });
        }
        let mut slice = Slice { took: length, latencies: Latencies::default(), errors: Errors::new() };
        while let Some(joined) = tasks.join_next().await {
            let (producer, part) = joined?;
            self.producers.push(producer);
            slice.latencies.merge(part.latencies);
            for (code, count) in part.errors {
                *slice.errors.entry(code).or_default() += count;
            }
        }
        slice.took = started.elapsed();
        Ok(slice)
    }
}

/// The result of one producer.
#[derive(Debug, Default)]
struct Part {
    latencies: Latencies,
    errors: Errors,
}

/// One task that commits.
#[derive(Debug)]
struct Producer {
    /// Its streams with their last versions.
    streams: Vec<(Key, Option<StreamVersion>)>,
    next: usize,
    payload: Payload,
    event_type: EventType,
}

impl Producer {
    async fn run(mut self, store: &dyn Store, until: Instant) -> (Self, Part) {
        let mut part = Part::default();
        while Instant::now() < until {
            let started = Instant::now();
            match self.commit(store).await {
                Ok(()) => part.latencies.add(started.elapsed()),
                Err(error) => {
                    *part.errors.entry(error.code().to_string()).or_default() += 1;
                    if self.reload(store).await.is_err() {
                        break;
                    }
                }
            }
            self.next += 1;
        }
        (self, part)
    }

    async fn commit(&mut self, store: &dyn Store) -> Result<(), ApplyError> {
        let event = NewEvent::new(self.event_type.clone(), self.payload.clone());
        let index = self.next.checked_rem(self.streams.len()).unwrap_or(0);
        let Some((stream, head)) = self.streams.get_mut(index) else { return Ok(()) };
        let expect = head.map_or(Expect::Absent, Expect::Exact);
        let receipt = store.apply(Batch::new().append(stream, expect, [event])).await?;
        *head = receipt.appended.first().map(|appended| appended.last_version);
        Ok(())
    }

    /// Reloads the stream's version, which is unknown after an error.
    async fn reload(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let index = self.next.checked_rem(self.streams.len()).unwrap_or(0);
        if let Some((stream, head)) = self.streams.get_mut(index) {
            *head = store.stream(stream).await?.and_then(|found| found.head);
        }
        Ok(())
    }
}

//! The commit workload: producers that each own some streams and append one event at a time, with the version check.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tokio::task::JoinSet;

use super::measure::{Commits, Latencies, per_second};

/// The type of every event.
pub(crate) const EVENT_TYPE: &str = "ItemAdded";

/// Errors that reached a caller, counted by code.
pub(crate) type Errors = BTreeMap<String, u64>;

/// The payload of every event: a JSON object of about 200 bytes.
pub(crate) fn payload_text() -> String {
    let note =
        "leave it at the door, ring twice, and mind the step: the third one is loose and creaks loudly";
    format!(
        r#"{{"order":"o-000017","customer":"c-4711","item":"apples","quantity":3,"price_cents":1299,"note":"{note}"}}"#
    )
}

/// The name of one of a kind's streams.
pub(crate) fn stream_key(kind: &str, number: u32) -> Result<Key> {
    Ok(Key::new(kind, [number])?)
}

/// Producers that go on where they stopped.
#[derive(Debug)]
pub(crate) struct Crew {
    producers: Vec<Producer>,
}

/// What a crew did in one slice of time.
#[derive(Debug)]
pub(crate) struct Slice {
    /// How long it really took, until the last producer was done.
    pub(crate) took: Duration,
    /// One entry for each commit that was acknowledged.
    pub(crate) latencies: Latencies,
    /// Errors that reached a producer.
    pub(crate) errors: Errors,
}

impl Slice {
    /// The numbers of the slice; an error when anything failed.
    pub(crate) fn commits(mut self) -> Result<Commits> {
        if !self.errors.is_empty() {
            bail!("commits failed while measuring: {:?}", self.errors);
        }
        Ok(self.numbers())
    }

    /// The numbers of the slice, whatever failed.
    pub(crate) fn numbers(&mut self) -> Commits {
        Commits {
            per_s: per_second(self.latencies.count(), self.took),
            p50_us: self.latencies.percentile(0.5),
            p99_us: self.latencies.percentile(0.99),
        }
    }
}

impl Crew {
    /// Shares `streams` streams of a kind out among the producers.
    pub(crate) fn new(kind: &str, producers: u32, streams: u32) -> Result<Self> {
        let payload = Payload::from_json(payload_text())?;
        let event_type = EventType::new(EVENT_TYPE)?;
        let mut crew = Vec::new();
        for first in 0..producers {
            let step = usize::try_from(producers.max(1))?;
            let owned: Result<Vec<_>> = (first..streams.max(producers))
                .step_by(step)
                .map(|n| Ok((stream_key(kind, n)?, None)))
                .collect();
            let (payload, event_type) = (payload.clone(), event_type.clone());
            crew.push(Producer { streams: owned?, next: 0, payload, event_type });
        }
        Ok(Self { producers: crew })
    }

    /// Lets all producers commit for a while.
    pub(crate) async fn slice(&mut self, store: &SharedStore, length: Duration) -> Result<Slice> {
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

/// What one producer did.
#[derive(Debug, Default)]
struct Part {
    latencies: Latencies,
    errors: Errors,
}

/// One task that commits.
#[derive(Debug)]
struct Producer {
    /// Its streams, with the last version that it wrote.
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
                    if self.look_again(store).await.is_err() {
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

    /// After an error the producer does not trust its memory.
    async fn look_again(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let index = self.next.checked_rem(self.streams.len()).unwrap_or(0);
        if let Some((stream, head)) = self.streams.get_mut(index) {
            *head = store.stream(stream).await?.and_then(|found| found.head);
        }
        Ok(())
    }
}

/// What one process reports to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessResult {
    /// Which process.
    pub(crate) process: u32,
    /// Commits that were acknowledged.
    pub(crate) commits: u64,
    /// Commits per second.
    pub(crate) per_s: f64,
    /// Half of them were done within this time.
    pub(crate) p50_us: f64,
    /// All but one in a hundred were.
    pub(crate) p99_us: f64,
    /// Transactions that were flushed.
    pub(crate) groups: u64,
    /// Errors that reached a producer, by code.
    pub(crate) errors: Errors,
}

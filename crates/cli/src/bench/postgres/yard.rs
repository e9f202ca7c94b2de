//! The yardsticks at work: producers that commit by hand, on connections that they share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::hand::{Append, Hand, Way};
use crate::bench::commit::{self, Slice};
use crate::bench::measure::Latencies;
use crate::random::Random;
use crate::server_url::ServerUrl;

/// Connections that all producers share, as in a pool.
pub(crate) const CONNECTIONS: usize = 16;

/// Connections, handed out one at a time to whoever has waited longest.
#[derive(Debug)]
pub(crate) struct Yard {
    free: Mutex<Vec<Hand>>,
    turns: Semaphore,
    payload: String,
}

impl Yard {
    /// Opens all connections.
    pub(crate) async fn new(url: &ServerUrl, schema: &str) -> Result<Self> {
        let lock = i64::from_ne_bytes(Random::fresh().next().to_ne_bytes());
        let mut hands = Vec::new();
        for _ in 0..CONNECTIONS {
            hands.push(Hand::new(url, schema, lock).await?);
        }
        Ok(Self {
            turns: Semaphore::new(hands.len()),
            free: Mutex::new(hands),
            payload: commit::payload_text(),
        })
    }

    async fn commit(&self, way: Way, stream: &str, version: i64) -> Result<()> {
        let turn = self.turns.acquire().await?;
        let hand = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut hand = hand.context("a turn without a connection")?;
        let done = hand.commit(way, Append { stream, version, payload: &self.payload }).await;
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(hand);
        drop(turn);
        done
    }
}

/// Producers that commit in one way, and go on where they stopped.
#[derive(Debug)]
pub(crate) struct Crowd {
    way: Way,
    producers: Vec<Producer>,
}

impl Crowd {
    /// Shares `streams` streams of a kind out among the producers.
    pub(crate) fn new(way: Way, kind: &str, producers: u32, streams: u32) -> Result<Self> {
        let mut crowd = Vec::new();
        for first in 0..producers {
            let step = usize::try_from(producers.max(1))?;
            let owned = (first..streams.max(producers)).step_by(step);
            let named = owned.map(|n| Ok((commit::stream_key(kind, n)?.canonical().to_owned(), 0)));
            crowd.push(Producer { streams: named.collect::<Result<_>>()?, next: 0 });
        }
        Ok(Self { way, producers: crowd })
    }

    /// Lets all producers commit for a while.
    pub(crate) async fn slice(&mut self, yard: &Arc<Yard>, length: Duration) -> Result<Slice> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for producer in self.producers.drain(..) {
            tasks.spawn(producer.run(Arc::clone(yard), self.way, started + length));
        }
        let mut latencies = Latencies::default();
        while let Some(joined) = tasks.join_next().await {
            let (producer, part) = joined??;
            self.producers.push(producer);
            latencies.merge(part);
        }
        Ok(Slice { took: started.elapsed(), latencies, errors: commit::Errors::new() })
    }
}

/// One task that commits.
#[derive(Debug)]
struct Producer {
    /// Its streams, with the next version of each.
    streams: Vec<(String, i64)>,
    next: usize,
}

impl Producer {
    async fn run(mut self, yard: Arc<Yard>, way: Way, until: Instant) -> Result<(Self, Latencies)> {
        let mut latencies = Latencies::default();
        while Instant::now() < until {
            let started = Instant::now();
            let index = self.next.checked_rem(self.streams.len()).unwrap_or(0);
            let Some((stream, version)) = self.streams.get_mut(index) else { break };
            yard.commit(way, stream, *version).await?;
            latencies.add(started.elapsed());
            *version += 1;
            self.next += 1;
        }
        Ok((self, latencies))
    }
}

//! The driver baseline on PostgreSQL: writers that commit with handwritten SQL on shared connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::commit::{self, Slice};
use super::handwritten::{Append, Handwritten, Strategy};
use super::statistics::Latencies;
use crate::random::Random;
use crate::server_url::ServerUrl;

/// The size of the connection pool.
pub const CONNECTIONS: usize = 16;

/// A first-in, first-out connection pool.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Vec<Handwritten>>,
    permits: Semaphore,
    payload: String,
}

impl Pool {
    /// Opens all connections.
    ///
    /// # Errors
    /// When the server rejects a connection or a statement.
    pub async fn new(url: &ServerUrl, schema: &str) -> Result<Self> {
        let lock = i64::from_ne_bytes(Random::fresh().next().to_ne_bytes());
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Handwritten::new(url, schema, lock).await?);
        }
        Ok(Self {
            permits: Semaphore::new(connections.len()),
            free: Mutex::new(connections),
            payload: commit::payload_text(),
        })
    }

    async fn commit(&self, strategy: Strategy, stream: &str, version: i64) -> Result<()> {
        let permit = self.permits.acquire().await?;
        let connection = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = connection.context("cannot commit: a permit without a connection")?;
        let done = connection.commit(strategy, Append { stream, version, payload: &self.payload }).await;
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        drop(permit);
        done
    }
}

/// Writers with one strategy that continue where their last slice ended.
#[derive(Debug)]
pub struct Writers {
    strategy: Strategy,
    writers: Vec<Writer>,
}

impl Writers {
    /// Distributes `streams` streams of a kind over the writers.
    ///
    /// # Errors
    /// When `kind` is invalid.
    pub fn new(strategy: Strategy, kind: &str, writers: u32, streams: u32) -> Result<Self> {
        let mut all = Vec::new();
        for first in 0..writers {
            let step = usize::try_from(writers.max(1))?;
            let owned = (first..streams.max(writers)).step_by(step);
            let named = owned.map(|n| Ok((commit::stream_key(kind, n)?.canonical().to_owned(), 0)));
            all.push(Writer { streams: named.collect::<Result<_>>()?, next: 0 });
        }
        Ok(Self { strategy, writers: all })
    }

    /// Runs all writers for a while.
    ///
    /// # Errors
    /// When a commit fails.
    pub async fn slice(&mut self, pool: &Arc<Pool>, length: Duration) -> Result<Slice> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for writer in self.writers.drain(..) {
            tasks.spawn(writer.run(Arc::clone(pool), self.strategy, started + length));
        }
        let mut latencies = Latencies::default();
        while let Some(joined) = tasks.join_next().await {
            let (writer, part) = joined??;
            self.writers.push(writer);
            latencies.merge(part);
        }
        Ok(Slice { took: started.elapsed(), latencies, errors: commit::Errors::new() })
    }
}

/// One task that commits.
#[derive(Debug)]
struct Writer {
    /// Its streams with their next versions.
    streams: Vec<(String, i64)>,
    next: usize,
}

impl Writer {
    async fn run(mut self, pool: Arc<Pool>, strategy: Strategy, until: Instant) -> Result<(Self, Latencies)> {
        let mut latencies = Latencies::default();
        while Instant::now() < until {
            let started = Instant::now();
            let index = self.next.checked_rem(self.streams.len()).unwrap_or(0);
            let Some((stream, version)) = self.streams.get_mut(index) else { break };
            pool.commit(strategy, stream, *version).await?;
            latencies.add(started.elapsed());
            *version += 1;
            self.next += 1;
        }
        Ok((self, latencies))
    }
}

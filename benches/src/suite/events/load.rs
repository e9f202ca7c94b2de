//! Uncached loads of a long stream, with and without a snapshot.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use tidelock::events::{EventsOptions, Loaded};
use tidelock::prelude::*;

use super::{Stock, StockEvent};

/// Events of one append.
const BATCH: u32 = 500;
/// Events after the snapshot.
const SINCE: u32 = 50;
const ID: &str = "long";

/// A stream with many events and a snapshot shortly before its end.
pub(super) struct Long {
    events: u32,
}

impl Long {
    pub(super) async fn make(store: &SharedStore, events: u32) -> Result<Self> {
        let writer = Events::new(Arc::clone(store)).snapshots::<Stock>(1);
        let mut left = events.saturating_sub(SINCE);
        while left > 0 {
            let now = left.min(BATCH);
            writer.append::<Stock>(ID, (0..now).map(|_| StockEvent::received())).await?;
            left -= now;
        }
        // Loading takes the snapshot.
        writer.load::<Stock>(ID).await?;
        let snapshot = Stock::stream(ID)?.beside("snapshot")?;
        while store.document(&snapshot).await?.is_none() {
            tokio::task::yield_now().await;
        }
        let plain = Events::new(Arc::clone(store));
        plain.append::<Stock>(ID, (0..SINCE.min(events)).map(|_| StockEvent::received())).await?;
        Ok(Self { events })
    }

    /// Returns the milliseconds of a load without and with the snapshot.
    pub(super) async fn load(&self, store: &SharedStore) -> Result<(f64, f64)> {
        let cold = || {
            Events::with_options(Arc::clone(store), EventsOptions { cached: 0, ..EventsOptions::default() })
        };
        let without = self.timed(&cold()).await?;
        let with = self.timed(&cold().snapshots::<Stock>(u64::MAX)).await?;
        Ok((without, with))
    }

    async fn timed(&self, events: &Events) -> Result<f64> {
        let started = Instant::now();
        let Loaded { state, .. } = events.load::<Stock>(ID).await?;
        let took = started.elapsed().as_secs_f64() * 1_000.0;
        ensure!(
            state.left == u64::from(self.events),
            "cannot trust the load: {} of {} events were folded",
            state.left,
            self.events
        );
        Ok(took)
    }
}

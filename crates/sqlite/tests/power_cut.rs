//! Power cuts: unflushed writes are lost, reordered or torn, every acknowledged batch is there, and the file is sound.
#![cfg(unix)]
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::{Durability, Store};
use tidelock_sqlite::{SqliteOptions, SqliteStore};
use tidelock_tck::power_cut::{Device, PowerCuts, Promise};
use tidelock_tck::{Backend, Capabilities, Database};

use common::Sqlite;

/// Number of seeds in the test command; the soak test takes more. A seed in five cuts the power twice.
const SEEDS: u64 = 50;
/// Number of seeds with relaxed durability.
const RELAXED_SEEDS: u64 = 10;

mod full {
    tidelock_tck::child!(crate::common::Sqlite::default());
}

mod relaxed {
    tidelock_tck::child!(crate::Relaxed);
}

/// The same backend without a flush for each commit.
struct Relaxed;

#[async_trait]
impl Backend for Relaxed {
    fn name(&self) -> &'static str {
        "sqlite-relaxed"
    }

    async fn fresh(&self, _clock: Arc<ManualClock>) -> Box<dyn Database> {
        unreachable!("power cuts make their own directories")
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, durable: true, documents_only: false }
    }

    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        let durability = Durability::Relaxed;
        let options =
            SqliteOptions { clock, durability, readers: 2, unindexed: 24, ..SqliteOptions::default() };
        Arc::new(SqliteStore::open(Path::new(address), options).await.unwrap())
    }

    async fn detach(&self, store: Arc<dyn Store>) {
        common::close(&store).await;
    }

    async fn inspect(&self, address: &str) {
        common::inspect(address);
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_by_power_cuts() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    let first = setting("TIDELOCK_SEED", 0);
    let seeds = first..first + setting("TIDELOCK_ROUNDS", SEEDS);
    let report = rig.rounds(&Sqlite::default(), Promise::Durable, seeds).await;
    eprintln!("sqlite: {report}");
    assert!(report.lossy > 0, "no cut lost anything: the test proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relaxed_durability_loses_the_last_commits_and_no_half_batch() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    let report = rig.rounds(&Relaxed, Promise::Atomic, 0..RELAXED_SEEDS).await;
    eprintln!("sqlite with relaxed durability: {report}");
    // The loss that full durability survives.
    let lost = rig.survives_the_worst(&Relaxed, Device::Honest).await.unwrap_err();
    assert!(lost.contains("acknowledged and lost"), "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_creating_and_then_by_a_power_cut() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    let report = rig.creation(&Sqlite::default(), 8).await;
    eprintln!("sqlite, killed while creating: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_ignores_flushes_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    rig.survives_the_worst(&Sqlite::default(), Device::Honest).await.unwrap();
    let lost = rig.survives_the_worst(&Sqlite::default(), Device::IgnoresFlushes).await.unwrap_err();
    assert!(lost.contains("acknowledged and lost"), "{lost}");
}

//! Power cuts: names and writes that were not flushed are lost, reordered or torn, and every acknowledged batch is there.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use tidelock_tck::power_cut::{Device, PowerCuts, Promise};

use common::Files;

tidelock_tck::child!(crate::common::Files::default());

/// Number of seeds in the test command; the soak test takes more. A seed in five cuts the power twice.
const SEEDS: u64 = 50;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_by_power_cuts() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    let first = setting("TIDELOCK_SEED", 0);
    let seeds = first..first + setting("TIDELOCK_ROUNDS", SEEDS);
    let report = rig.rounds(&Files::default(), Promise::Durable, seeds).await;
    eprintln!("files: {report}");
    assert!(report.lossy > 0, "no cut lost anything: the test proves nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_creating_and_then_by_a_power_cut() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    let report = rig.creation(&Files::default(), 1).await;
    eprintln!("files, killed while creating: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_ignores_flushes_is_found() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(rig) = PowerCuts::prepare(scratch.path()) else { return };
    rig.survives_the_worst(&Files::default(), Device::Honest).await.unwrap();
    let lost = rig.survives_the_worst(&Files::default(), Device::IgnoresFlushes).await.unwrap_err();
    assert!(lost.contains("acknowledged and lost"), "{lost}");
}

//! Load generators, baselines and reports, shared by `tidelock bench` and the benchmark program.
//!
//! A rate alone describes the disk more than the store. Every phase therefore runs in short slices, in rounds, beside the
//! device and the bare driver. Each ratio is the median of the ratios of the rounds.

pub mod claim;
pub mod claim_baseline;
pub mod commit;
pub mod directory;
pub mod flush;
pub mod handwritten;
pub mod machine;
pub mod memory_baseline;
pub mod postgres_baseline;
pub mod report;
pub mod server;
pub mod sqlite_baseline;
pub mod statistics;

use anyhow::{Result, bail};

/// Runs a measurement until it ends or the user interrupts it. An interrupted measurement is dropped.
///
/// # Errors
/// The measurement's own, and one when it was interrupted.
pub async fn until_interrupted<T>(measurement: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        done = measurement => done,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            bail!("cannot report: the measurement was interrupted")
        }
    }
}

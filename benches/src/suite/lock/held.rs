//! The memory of held and released keys, measured in separate processes for each library.

use std::process::ExitCode;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use tidelock_benches::lock::{Footprint, HashMap, Ours, footprint};
use tidelock_console::bench::statistics::median;
use tidelock_console::output;
use tidelock_console::progress::Progress;
use tokio::process::Command;

use super::{Plan, failed};
use crate::args::{HolderArgs, Library};

/// Progress steps of one measurement.
pub(super) const STEPS: u64 = 2;

/// The resident memory that a process reports, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Resident {
    before: f64,
    held: f64,
    released: f64,
}

/// The memory of each library's keys.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Weights {
    pub(super) tidelock: Weight,
    pub(super) lockable: Weight,
}

/// Bytes of one key, without the key itself.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Weight {
    /// While held, with the guard.
    pub(super) held_bytes: Bytes,
    /// After the release, including memory that the allocator keeps.
    pub(super) idle_bytes: Bytes,
}

/// A number of bytes, where the system reports it.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Known(f64),
    Unknown(&'static str),
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(bytes) => write!(f, "{bytes:.1}"),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// Measures both libraries.
pub(super) async fn weigh(plan: &Plan, progress: &Progress) -> Result<Weights> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    progress.say("measuring the memory of locks");
    for _ in 0..plan.weighings {
        ours.push(ask(Library::Tidelock, plan.held_keys).await?);
        progress.done(1);
        theirs.push(ask(Library::Lockable, plan.held_keys).await?);
        progress.done(1);
    }
    let keys = f64::from(plan.held_keys);
    Ok(Weights { tidelock: weight(&ours, keys), lockable: weight(&theirs, keys) })
}

fn weight(all: &[Option<Resident>], keys: f64) -> Weight {
    let known: Vec<Resident> = all.iter().copied().flatten().collect();
    let bytes = |pick: fn(&Resident) -> f64| {
        if known.is_empty() { Bytes::Unknown("unknown") } else { Bytes::Known(median(&known, pick) / keys) }
    };
    Weight { held_bytes: bytes(|r| r.held - r.before), idle_bytes: bytes(|r| r.released - r.before) }
}

/// Measures in a new process.
async fn ask(library: Library, keys: u32) -> Result<Option<Resident>> {
    let name = library.to_possible_value().context("cannot name the library")?;
    let output = Command::new(std::env::current_exe()?)
        .args(["holder", "--library", name.get_name(), "--keys", &keys.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .context("cannot start a second process of this program")?;
    if !output.status.success() {
        bail!("cannot measure: a child process failed; see its message above");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Holds the keys and reports the memory, in a child process.
pub(crate) async fn hold(options: &HolderArgs) -> Result<ExitCode> {
    let seen = match options.library {
        Library::Tidelock => footprint::<Ours>(options.keys).await,
        Library::Lockable => footprint::<HashMap>(options.keys).await,
    };
    let resident = seen.map_err(failed)?.map(|Footprint { before, held, released }| Resident {
        before: before as f64,
        held: held as f64,
        released: released as f64,
    });
    output::json(&resident)?;
    Ok(ExitCode::SUCCESS)
}

//! What a held key weighs, and what is left of one that was released: each library in processes of its own, so that
//! nothing but its locks is weighed.

use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use tidelock_benches::lock::{Footprint, HashMap, Ours, footprint};
use tokio::process::Command;

use super::super::measure::median;
use super::{Plan, failed};
use crate::args::{BenchHolder, Library};
use crate::exit::Exit;
use crate::output;
use crate::progress::Progress;

/// Steps of the progress for one weighing.
pub(super) const STEPS: u64 = 2;

/// What a process says: how many bytes were resident.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Resident {
    before: f64,
    held: f64,
    released: f64,
}

/// What each library's keys weigh.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Weights {
    pub(super) tidelock: Weight,
    pub(super) lockable: Weight,
}

/// Bytes for one key, the key itself not counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Weight {
    /// While it is held, with its guard.
    pub(super) held_bytes: Bytes,
    /// After it was released. What the allocator keeps counts.
    pub(super) idle_bytes: Bytes,
}

/// A number of bytes, where it can be known.
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

/// Weighs both.
pub(super) async fn weigh(plan: &Plan, progress: &Progress) -> Result<Weights> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    progress.say("weighing locks");
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

/// Lets a new process hold the keys and say what it saw.
async fn ask(library: Library, keys: u32) -> Result<Option<Resident>> {
    let name = library.to_possible_value().context("a library without a name")?;
    let output = Command::new(std::env::current_exe()?)
        .args(["bench-holder", "--library", name.get_name(), "--keys", &keys.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .context("a second process of this program cannot be started")?;
    if !output.status.success() {
        bail!("a child process failed; see its message above");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The work of such a process.
pub(crate) async fn hold(options: BenchHolder) -> Result<Exit> {
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
    Ok(Exit::Well)
}

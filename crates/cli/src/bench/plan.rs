//! What is measured, how long, and where.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;
use tempfile::TempDir;

use crate::args::BenchStore;
use crate::exit::WrongUse;
use crate::{output, target};

/// Phases take turns this often, so that a noisy moment hits all of them or is outvoted.
const ROUNDS: u32 = 15;
/// The same for a shortened run.
const QUICK_ROUNDS: u32 = 3;
/// Streams that the producers share out among themselves.
const STREAMS: u32 = 1_000;
/// Work rows of the small claim phase.
const SMALL_ROWS: u32 = 1_000;

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// Tasks that commit at the same time in the crowded phase.
    pub(crate) producers: u32,
    /// Processes that do so.
    pub(crate) processes: u32,
    /// How long each phase takes over all rounds.
    pub(crate) seconds: f64,
    /// How often the phases take turns.
    pub(crate) rounds: u32,
    /// Streams that are appended to.
    pub(crate) streams: u32,
    /// The length of an event's payload.
    pub(crate) payload_bytes: usize,
    /// Work rows of the small claim phase.
    pub(crate) small_rows: u32,
    /// Work rows of the large claim phase.
    pub(crate) large_rows: u32,
    /// Jobs that are finished beside an old snapshot.
    pub(crate) aged_jobs: u32,
    /// Documents beside which a sweep has nothing to do.
    pub(crate) documents: u32,
    /// Whether this is a shortened run.
    pub(crate) quick: bool,
}

impl Plan {
    /// The plan that the user asked for.
    pub(crate) fn of(options: &BenchStore) -> Self {
        let usual = Duration::from_millis(if options.quick { 600 } else { 5_000 });
        Self {
            producers: options.producers,
            processes: options.processes,
            seconds: options.seconds.unwrap_or(usual).as_secs_f64(),
            rounds: if options.quick { QUICK_ROUNDS } else { ROUNDS },
            streams: STREAMS.max(options.producers),
            payload_bytes: super::commit::payload_text().len(),
            small_rows: SMALL_ROWS,
            large_rows: if options.quick { 100_000 } else { 1_000_000 },
            aged_jobs: if options.quick { 10_000 } else { 100_000 },
            documents: if options.quick { 200_000 } else { 4_000_000 },
            quick: options.quick,
        }
    }

    /// How long the rate of a queue beside an old snapshot is measured.
    pub(crate) fn aged_slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The number of documents as part of a name.
    pub(crate) fn documents_name(&self) -> &'static str {
        if self.quick { "200k" } else { "4m" }
    }

    /// How long one phase takes in one round.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(self.rounds.max(1)))
    }

    /// The number of rows of the large claim phase as part of a name.
    pub(crate) fn large_name(&self) -> &'static str {
        if self.quick { "100k" } else { "1m" }
    }
}

/// The directory that a run works in. It goes with everything in it when the run ends.
#[derive(Debug)]
pub(crate) struct Place {
    directory: TempDir,
    store: PathBuf,
}

impl Place {
    /// A fresh directory below the one that was named, or below the one for temporary files. When a file was named,
    /// it becomes the store's file and stays.
    pub(crate) fn choose(path: Option<&Path>) -> Result<Self> {
        let (parent, file) = match path {
            None => (std::env::temp_dir(), None),
            Some(path) if path.is_dir() => (path.to_owned(), None),
            Some(path) if path.exists() => {
                let shown = path.display();
                return Err(WrongUse(format!("{shown} exists; name a directory or a new file")).into());
            }
            Some(path) => (target::directory_of(path).to_owned(), Some(path.to_owned())),
        };
        let directory = tempfile::Builder::new()
            .prefix("tidelock-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("a directory below {} cannot be made", parent.display()))?;
        let store = file.unwrap_or_else(|| directory.path().join("store.db"));
        Ok(Self { directory, store })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file of the store that commits are measured on.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Another file of the run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Says so when flushes cost nothing here.
    pub(crate) fn warn_about_memory(&self) {
        let kind = target::file_system(self.directory());
        if target::is_memory(&kind) {
            let shown = output::escaped(&self.directory().display().to_string());
            eprintln!("warning: {shown} is on {kind}, where flushes are free; name a disk with --path");
        }
    }
}

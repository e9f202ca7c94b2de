//! The parameters of the `store` suite.

use std::time::Duration;

use serde::Serialize;
use tidelock_console::bench::commit;

use crate::args::StoreArgs;
use crate::suite::duration::Pace;

/// The number of rounds, so that a noisy moment affects all phases or is outvoted by the median.
const ROUNDS: u32 = 15;
/// The number of streams, distributed over the producers.
const STREAMS: u32 = 1_000;
/// Work rows of the small claim phase.
const SMALL_ROWS: u32 = 1_000;

/// The parameters of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Plan {
    /// The number of concurrent producers.
    pub(crate) producers: u32,
    /// The number of processes.
    pub(crate) processes: u32,
    #[serde(flatten)]
    pub(crate) pace: Pace,
    /// The number of streams.
    pub(crate) streams: u32,
    /// The size of an event's payload.
    pub(crate) payload_bytes: usize,
    /// Work rows of the small claim phase.
    pub(crate) small_rows: u32,
    /// Work rows of the large claim phase.
    pub(crate) large_rows: u32,
    /// Jobs that finish beside an old snapshot.
    pub(crate) aged_jobs: u32,
    /// Documents beside an idle sweep.
    pub(crate) documents: u32,
}

impl Plan {
    /// Derives the plan from the arguments.
    pub(crate) fn of(options: &StoreArgs) -> Self {
        let pace = if options.quick { Pace::quick(600) } else { Pace::full(ROUNDS, 5_000) };
        Self {
            producers: options.producers,
            processes: options.processes,
            pace: pace.within(options.seconds),
            streams: STREAMS.max(options.producers),
            payload_bytes: commit::payload_text().len(),
            small_rows: SMALL_ROWS,
            large_rows: if options.quick { 100_000 } else { 1_000_000 },
            aged_jobs: if options.quick { 10_000 } else { 100_000 },
            documents: if options.quick { 200_000 } else { 4_000_000 },
        }
    }

    /// The time for measuring a queue beside an old snapshot.
    pub(crate) fn aged_slice(&self) -> Duration {
        Duration::from_secs_f64(self.pace.seconds)
    }

    /// The number of documents, as part of a ratio's name.
    pub(crate) fn documents_name(&self) -> &'static str {
        if self.pace.quick { "200k" } else { "4m" }
    }

    /// The number of rows of the large claim phase, as part of a ratio's name.
    pub(crate) fn large_name(&self) -> &'static str {
        if self.pace.quick { "100k" } else { "1m" }
    }
}

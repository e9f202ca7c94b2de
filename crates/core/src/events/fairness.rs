//! Fairness between processes on a hot stream, by the rule of [`contention`](crate::runtime::contention).

use std::time::{Duration, Instant};

use super::Events;
use super::aggregate::{Aggregate, Loaded};
use super::cache::CachedAggregate;
use super::error::EventsError;
use crate::id::StreamVersion;
use crate::key::Key;
use crate::process;
use crate::runtime::contention::WriteTurn;
use crate::runtime::timer::sleep_until;

impl Events {
    /// Waits for the turn of this process, at most until the deadline. It leaves a gap after its own turn, and waits for
    /// the end of another process's turn. When that turn has ended, the state is the newest.
    pub(super) async fn await_turn<A: Aggregate>(
        &self,
        stream: &Key,
        known: &mut CachedAggregate<A>,
        deadline: Instant,
    ) -> Result<(), EventsError> {
        match known.contention.next(process::now()) {
            WriteTurn::Write => return Ok(()),
            WriteTurn::Read => return self.refresh(stream, &mut known.loaded).await.map(drop),
            WriteTurn::Gap(gap) => self.leave_gap(stream, known, gap).await?,
            WriteTurn::Wait => {}
        }
        while known.contention.next(process::now()) == WriteTurn::Wait && process::now() < deadline {
            let pause_end = deadline.min(process::now() + known.contention.pause(process::now()));
            sleep_until(pause_end).await;
            known.contention.delayed(process::elapsed(pause_end));
            let found = self.refresh(stream, &mut known.loaded).await?.version;
            known.contention.read(counted(found), process::now());
        }
        Ok(())
    }

    /// Waits until another process has written, or the gap ends.
    async fn leave_gap<A: Aggregate>(
        &self,
        stream: &Key,
        known: &mut CachedAggregate<A>,
        gap: Duration,
    ) -> Result<(), EventsError> {
        let own = known.loaded.as_ref().and_then(|loaded: &Loaded<A>| loaded.version);
        let end = process::now() + gap;
        while own.is_some() && process::now() < end {
            let pause_end = end.min(process::now() + known.contention.poll());
            sleep_until(pause_end).await;
            known.contention.delayed(process::elapsed(pause_end));
            let found = self.store.stream(stream).await?.and_then(|found| found.head);
            if found != own {
                known.contention.gap_used(counted(found), process::now());
                return Ok(());
            }
        }
        known.contention.gap_unused(process::now());
        Ok(())
    }
}

/// Converts a version to the contention rule's representation.
pub(super) fn counted(version: Option<StreamVersion>) -> Option<u64> {
    version.map(|version| version.0)
}

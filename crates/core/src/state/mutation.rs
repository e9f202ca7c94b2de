//! How far a mutation has come, as both its caller and whoever carries it out see it: so a caller that gives up tells the
//! truth, and what it gave up is not applied.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::Stage;
use crate::id::{DocVersion, OpId};

/// Shared by a caller and its mutation.
#[derive(Debug, Default)]
pub(super) struct Mutation {
    state: Mutex<State>,
    gone: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    phase: Phase,
    /// The caller went away while its effect was being written.
    left: bool,
    conflicts: u32,
    current: Option<DocVersion>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Queued,
    Running,
    Writing(OpId),
    /// The caller went away while it could.
    GivenUp,
}

/// What a caller finds when it gives up.
pub(super) struct GivenUp {
    pub(super) stage: Stage,
    pub(super) conflicts: u32,
    pub(super) current: Option<DocVersion>,
}

impl State {
    /// Its effect was not written. A caller that left meanwhile was told an id, and nothing may be written under another.
    fn back(&mut self) {
        self.phase = if self.left || self.phase == Phase::GivenUp { Phase::GivenUp } else { Phase::Running };
    }
}

impl Mutation {
    /// The mutator is about to run. `false` when nobody wants it any more.
    pub(super) fn run(&self) -> bool {
        let mut state = self.state.lock();
        let wanted = state.phase != Phase::GivenUp;
        if wanted {
            state.phase = Phase::Running;
        }
        wanted
    }

    /// Waits until the caller went away.
    pub(super) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Its effect is about to be written under this id. `false` when nobody wants it any more.
    pub(super) fn write(&self, id: OpId) -> bool {
        let mut state = self.state.lock();
        let wanted = state.phase != Phase::GivenUp;
        if wanted {
            state.phase = Phase::Writing(id);
        }
        wanted
    }

    /// The write was refused, because somebody else wrote this version, or nothing was written at all.
    pub(super) fn conflict(&self, current: Option<DocVersion>) {
        let mut state = self.state.lock();
        state.back();
        state.conflicts += 1;
        state.current = current;
    }

    /// It was not written after all, and nobody else was in the way.
    pub(super) fn again(&self) {
        self.state.lock().back();
    }

    pub(super) fn conflicts(&self) -> u32 {
        self.state.lock().conflicts
    }

    /// The caller goes away. From here on its mutator does not run, and its effect is not written, unless it is on its
    /// way; if that write is refused, it is not tried again.
    pub(super) fn give_up(&self) -> GivenUp {
        let mut state = self.state.lock();
        let stage = match state.phase {
            Phase::Queued => Stage::NotStarted,
            Phase::Running | Phase::GivenUp => Stage::NotApplied,
            Phase::Writing(id) => Stage::Unknown(id),
        };
        if matches!(state.phase, Phase::Writing(_)) {
            state.left = true;
        } else {
            state.phase = Phase::GivenUp;
            self.gone.notify_one();
        }
        GivenUp { stage, conflicts: state.conflicts, current: state.current }
    }
}

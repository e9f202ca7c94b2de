//! Mutation progress, shared by its caller and its driver. A caller that gives up can report the exact stage, and an
//! abandoned mutation is not applied.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::Stage;
use crate::id::{DocVersion, OpId};

/// The state that a caller shares with its mutation.
#[derive(Debug, Default)]
pub(super) struct Mutation {
    state: Mutex<State>,
    gone: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    phase: Phase,
    /// The caller gave up while the effect was being written.
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
    /// The caller gave up, and no write is in flight.
    GivenUp,
}

/// The state that a caller gets when it gives up.
pub(super) struct GivenUp {
    pub(super) stage: Stage,
    pub(super) conflicts: u32,
    pub(super) current: Option<DocVersion>,
}

impl State {
    /// Records that the effect was not written. A caller that gave up during the write has reported its id, so nothing
    /// may be written under another id.
    fn back(&mut self) {
        self.phase = if self.left || self.phase == Phase::GivenUp { Phase::GivenUp } else { Phase::Running };
    }
}

impl Mutation {
    /// Records that the mutator is about to run. Returns `false` when the caller has given up.
    pub(super) fn run(&self) -> bool {
        let mut state = self.state.lock();
        let wanted = state.phase != Phase::GivenUp;
        if wanted {
            state.phase = Phase::Running;
        }
        wanted
    }

    /// Waits until the caller gives up.
    pub(super) async fn gone(&self) {
        self.gone.notified().await;
    }

    /// Records that the effect is about to be written under this id. Returns `false` when the caller has given up.
    pub(super) fn write(&self, id: OpId) -> bool {
        let mut state = self.state.lock();
        let wanted = state.phase != Phase::GivenUp;
        if wanted {
            state.phase = Phase::Writing(id);
        }
        wanted
    }

    /// Records a conflict: another writer wrote this version, or the write had no effect.
    pub(super) fn conflict(&self, current: Option<DocVersion>) {
        let mut state = self.state.lock();
        state.back();
        state.conflicts += 1;
        state.current = current;
    }

    /// Records that the effect was not written, without a conflict.
    pub(super) fn again(&self) {
        self.state.lock().back();
    }

    pub(super) fn conflicts(&self) -> u32 {
        self.state.lock().conflicts
    }

    /// Gives up on behalf of the caller. From here on the mutator does not run, and the effect is not written. A write in
    /// flight may still succeed, but is not retried after a refusal.
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

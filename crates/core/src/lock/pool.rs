//! The lock table of a process.
//!
//! References to it are static. The tables of simulated processes are therefore reused: a crash drops all guards, which
//! leaves a table empty.

use super::Locks;

#[cfg(feature = "sim")]
static UNUSED: parking_lot::Mutex<Vec<&'static Locks>> = parking_lot::Mutex::new(Vec::new());

/// The table of a process, which a simulated process returns when it ends.
#[derive(Debug)]
pub(super) struct ProcessLocks(&'static Locks);

impl ProcessLocks {
    pub(super) fn new() -> Self {
        #[cfg(feature = "sim")]
        if crate::process::is_simulated()
            && let Some(unused) = UNUSED.lock().pop()
        {
            return Self(unused);
        }
        Self(Box::leak(Box::default()))
    }

    pub(super) fn table(&self) -> &'static Locks {
        self.0
    }
}

#[cfg(feature = "sim")]
impl Drop for ProcessLocks {
    fn drop(&mut self) {
        UNUSED.lock().push(self.0);
    }
}

//! Background threads of leases: one renews, one acquires, waits and releases.
//!
//! Each thread has a runtime of its own, so a program whose executor is blocked keeps its leases. A thread starts with its
//! first task and sleeps while there is nothing to do. If the process dies, its leases expire in the store.
//!
//! Renewal has a thread to itself. Thousands of waiters, or a store whose futures block their thread, delay each other
//! there, and never the renewal of a lease that is held.

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use super::error::LeaseError;

/// Renews the leases that are held, and does nothing else.
pub(super) static RENEWAL: Background = Background::new("tidelock-leases");
/// Acquires and releases leases, and waits in lines.
pub(super) static TASKS: Background = Background::new("tidelock-lease-tasks");

/// A thread that drives tasks which outlive their callers.
pub(super) struct Background {
    name: &'static str,
    runtime: Mutex<Option<Handle>>,
}

impl Background {
    const fn new(name: &'static str) -> Self {
        Self { name, runtime: Mutex::new(None) }
    }

    /// Runs a task on the thread, starting it where needed. The task continues when the handle is dropped; its output is
    /// then dropped on the thread.
    pub(super) fn spawn<F>(&self, task: F) -> Result<JoinHandle<F::Output>, LeaseError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.handle()?.spawn(task))
    }

    fn handle(&self) -> Result<Handle, LeaseError> {
        let mut started = self.runtime.lock();
        if let Some(handle) = started.as_ref() {
            return Ok(handle.clone());
        }
        let failed = |e: std::io::Error| LeaseError::NoKeeper { reason: e.to_string() };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .map_err(failed)?;
        *started = Some(handle.clone());
        Ok(handle)
    }
}

/// Runs a task in the background and waits for its output. Dropping the future does not stop the task.
pub(crate) async fn run<F>(task: F) -> Result<F::Output, LeaseError>
where
    F: Future<Output: Send> + Send + 'static,
{
    TASKS.spawn(task)?.await.map_err(|ended| LeaseError::NoKeeper { reason: ended.to_string() })
}

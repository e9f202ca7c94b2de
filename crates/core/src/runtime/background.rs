//! Background threads for tasks that outlive their callers, each with a Tokio runtime of its own.
//!
//! A program whose executor is blocked, idle or shut down keeps what runs here. A thread starts with its first task and
//! sleeps while it has none. It ends with the process.

use std::io;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// A thread that drives tasks which outlive their callers.
#[derive(Debug)]
pub(crate) struct Background {
    name: &'static str,
    runtime: Mutex<Option<Handle>>,
}

impl Background {
    /// Names a thread, which the first task starts.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, runtime: Mutex::new(None) }
    }

    /// Spawns a task on the thread, starting it where needed. Dropping the handle detaches the task; its output is then
    /// dropped on the thread.
    ///
    /// # Errors
    /// Returns an error when the operating system provides no thread.
    pub(crate) fn spawn<F>(&self, task: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.handle()?.spawn(task))
    }

    fn handle(&self) -> io::Result<Handle> {
        let mut started = self.runtime.lock();
        if let Some(handle) = started.as_ref() {
            return Ok(handle.clone());
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        *started = Some(handle.clone());
        Ok(handle)
    }
}

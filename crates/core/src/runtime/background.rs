//! Background runtimes for tasks that outlive their callers.
//!
//! A program whose executor is blocked, idle or shut down keeps what runs here. A runtime starts with its first task and
//! sleeps while it has none. It ends with the process.

use std::io;
use std::sync::OnceLock;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use super::panic::isolate;
use crate::process;

/// A Tokio runtime of the library, independent of the runtimes of its callers. Meant for a `static`.
#[derive(Debug)]
pub struct Background {
    name: &'static str,
    threads: Threads,
    started: OnceLock<Started>,
    starting: Mutex<()>,
}

/// Spawns tasks on a started runtime. In a simulated process, which has no threads, they run on the current runtime.
#[derive(Clone, Copy, Debug)]
pub struct Spawner<'a>(Option<&'a Handle>);

impl Spawner<'_> {
    /// Spawns a task. Dropping the handle detaches it.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self.0 {
            Some(handle) => handle.spawn(task),
            None => process::spawn(task),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Threads {
    One,
    PerCore,
}

#[derive(Debug)]
enum Started {
    /// A thread owns the runtime.
    One(Handle),
    PerCore(Runtime),
}

impl Background {
    /// Names a runtime with one thread, which the first task starts.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self::with(name, Threads::One)
    }

    /// Names a runtime with one thread per core, which the first task starts.
    #[must_use]
    pub const fn multi_thread(name: &'static str) -> Self {
        Self::with(name, Threads::PerCore)
    }

    const fn with(name: &'static str, threads: Threads) -> Self {
        Self { name, threads, started: OnceLock::new(), starting: Mutex::new(()) }
    }

    /// Spawns a task on the runtime, starting it where needed. Dropping the handle detaches the task; its output is then
    /// dropped on the runtime.
    ///
    /// # Errors
    /// Returns an error when the operating system provides no thread.
    pub fn spawn<F>(&self, task: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.spawner()?.spawn(task))
    }

    /// Returns the spawner of the runtime, starting the runtime where needed. Tasks can be spawned on it at any time.
    ///
    /// # Errors
    /// Returns an error when the operating system provides no thread.
    pub fn spawner(&self) -> io::Result<Spawner<'_>> {
        if process::is_simulated() {
            Ok(Spawner(None))
        } else {
            self.handle().map(|handle| Spawner(Some(handle)))
        }
    }

    fn handle(&self) -> io::Result<&Handle> {
        if let Some(started) = self.started.get() {
            return Ok(started.handle());
        }
        let _starting = self.starting.lock();
        if let Some(started) = self.started.get() {
            return Ok(started.handle());
        }
        let started = self.start()?;
        Ok(self.started.get_or_init(|| started).handle())
    }

    fn start(&self) -> io::Result<Started> {
        match self.threads {
            Threads::One => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let handle = runtime.handle().clone();
                std::thread::Builder::new()
                    .name(self.name.to_owned())
                    .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
                Ok(Started::One(handle))
            }
            Threads::PerCore => {
                let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                let mut builder = Builder::new_multi_thread();
                let builder = builder.worker_threads(threads).thread_name(self.name).enable_all();
                // Tokio panics when the operating system provides no worker thread.
                let runtime =
                    isolate("the start of a runtime", || builder.build()).map_err(io::Error::other)??;
                Ok(Started::PerCore(runtime))
            }
        }
    }
}

impl Started {
    fn handle(&self) -> &Handle {
        match self {
            Self::One(handle) => handle,
            Self::PerCore(runtime) => runtime.handle(),
        }
    }
}

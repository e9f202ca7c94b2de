//! A worker thread with a bounded queue: file operations are slow and must not block the caller's threads.

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce() + Send>;

/// The queue. Its thread ends when the queue is closed and empty.
pub(crate) struct Queue {
    sender: Mutex<Option<mpsc::Sender<Job>>>,
}

impl Queue {
    pub(crate) fn start(name: &str, capacity: usize) -> std::io::Result<Self> {
        let (sender, mut jobs) = mpsc::channel::<Job>(capacity.clamp(1, 1_000_000));
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(job) = jobs.blocking_recv() {
                job();
            }
        })?;
        Ok(Self { sender: Mutex::new(Some(sender)) })
    }

    /// Runs a function in the thread. `None` when the queue is closed.
    ///
    /// If the future is dropped before the job is queued, nothing happens. If it is dropped later, the job runs all the
    /// same.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let sender = self.sender.lock().clone()?;
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move || drop(reply.send(work())));
        sender.send(job).await.ok()?;
        drop(sender);
        answer.await.ok()
    }

    /// Rejects new jobs. The thread still runs the queued ones.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("open", &self.sender.lock().is_some()).finish()
    }
}

//! A thread with a bounded queue in front: files are slow, and the caller's threads are not ours to block.

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

    /// Has something done in the thread; `None` when the queue is closed.
    ///
    /// Dropped while it waits outside, nothing happens. Dropped later, the job is done all the same.
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

    /// Takes no more jobs; those that are queued are done.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("open", &self.sender.lock().is_some()).finish()
    }
}

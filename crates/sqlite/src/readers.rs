//! The pool of readers: a few threads with read-only connections, so that a read never waits for a write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::checkpoint::Gate;
use crate::ending::Ending;
use crate::error::Failure;
use crate::open;
use crate::queue::Queue;

/// How many reads may wait; further callers wait outside.
const WAITING: usize = 1024;

type Read = Box<dyn FnOnce(&mut Connection) + Send>;

/// The pool. Its threads end when it is closed.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Arc<Queue<ReadJob>>,
    path: PathBuf,
}

/// The threads end with the pool, also when opening the store failed half way.
impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

struct ReadJob(Read);

impl std::fmt::Debug for ReadJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadJob")
    }
}

impl Readers {
    /// Opens the connections and starts the threads.
    pub(crate) fn start(
        path: &Path,
        count: usize,
        busy_timeout: Duration,
        gate: &Gate,
        ending: &Ending,
    ) -> Result<Self, StoreError> {
        let readers = Self { queue: Arc::new(Queue::new(WAITING)), path: path.to_owned() };
        for number in 0..count.max(1) {
            let connection = open::reader(path, busy_timeout)?;
            let (jobs, gate) = (Arc::clone(&readers.queue), Arc::clone(gate));
            let ending = ending.clone();
            std::thread::Builder::new()
                .name(format!("tidelock-read-{number}"))
                .spawn(move || {
                    serve(&jobs, &gate, connection);
                    drop(ending);
                })
                .map_err(|e| crate::no_thread(&e))?;
        }
        Ok(readers)
    }

    /// Runs a query on one of the connections, in one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Read = Box::new(move |connection| drop(reply.send(in_snapshot(connection, query))));
        self.queue.push(ReadJob(job)).await.map_err(|_| crate::closed(&self.path))?;
        match answer.await {
            Ok(result) => result.map_err(StoreError::from),
            Err(_) => Err(crate::closed(&self.path)),
        }
    }

    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

fn in_snapshot<T>(
    connection: &mut Connection,
    query: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let transaction = connection.transaction()?;
    let result = query(&transaction)?;
    transaction.finish()?;
    Ok(result)
}

fn serve(jobs: &Queue<ReadJob>, gate: &Gate, mut connection: Connection) {
    while let Some(batch) = jobs.take(1) {
        for ReadJob(read) in batch {
            let _open = gate.read();
            // A panic in a query must cost its caller an answer, not everybody the reader.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&mut connection)));
            if outcome.is_err() {
                tracing::error!(kind = ?StoreErrorKind::Bug, "a read panicked");
            }
        }
    }
}

//! The reader pool: a few threads with read-only connections, so that a read never waits for a write.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::checkpoint::Gate;
use crate::error::Failure;
use crate::open;
use crate::queue::Queue;
use crate::shutdown::Shutdown;

/// The number of reads that may wait; further callers wait outside.
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
        ending: &Shutdown,
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

    /// Runs a query on one of the connections, in one snapshot. If the caller drops the future, the query is not
    /// started, or is interrupted. Abandoned queries thus do not delay others.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let awaited = Awaited::default();
        let abandoned = Arc::clone(&awaited.abandoned);
        let job: Read = Box::new(move |connection| {
            if !abandoned.load(Ordering::Relaxed) {
                drop(reply.send(unless(abandoned, connection, query)));
            }
        });
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

/// A guard that marks the query as abandoned when the caller drops it.
#[derive(Debug, Default)]
struct Awaited {
    abandoned: Arc<AtomicBool>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// The number of SQLite VM instructions between two checks whether the caller still waits: a millisecond or less.
const LOOK_EVERY: i32 = 10_000;

fn unless<T>(
    abandoned: Arc<AtomicBool>,
    connection: &mut Connection,
    query: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // The handler stays until the next read of this connection replaces it.
    connection.progress_handler(LOOK_EVERY, Some(move || abandoned.load(Ordering::Relaxed)))?;
    in_snapshot(connection, query)
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
            // A panic in a query fails that query only; the reader keeps serving the others.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&mut connection)));
            if outcome.is_err() {
                tracing::error!(kind = ?StoreErrorKind::Bug, "a read panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::time::Duration;

    use super::Readers;
    use crate::checkpoint::Gate;
    use crate::shutdown::Shutdown;

    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";

    #[tokio::test]
    async fn an_abandoned_read_frees_its_connection() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let (ending, _ended) = Shutdown::new();
        let readers = Readers::start(&path, 1, Duration::from_secs(1), &Gate::default(), &ending).unwrap();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let endless = readers.read(move |db| {
            begun.send(()).unwrap();
            Ok(db.query_row(ENDLESS, [], |row| row.get::<_, i64>(0))?)
        });
        let never_begun = readers.read::<()>(|_| panic!("no caller waits for this read"));
        tokio::select! {
            biased;
            _ = async { tokio::join!(endless, never_begun) } => unreachable!("it has no end"),
            begun = begins => begun.unwrap(),
        }
        let next = readers.read(|db| Ok(db.query_row("SELECT 7", [], |row| row.get::<_, i64>(0))?));
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), next).await.unwrap().unwrap(), 7);
    }
}

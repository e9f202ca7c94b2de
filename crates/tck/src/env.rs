//! What a case works with: a database of its own, two independent connections to it, and its clock.

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock as _, ManualClock, Timestamp};
use tokio::sync::{Barrier, Mutex};

use crate::conn::Conn;
use crate::{Backend, Capabilities, Database};

/// How many connections the tasks of a race are spread over. Cases that race run both ways.
pub(crate) const ONE_AND_TWO: [usize; 2] = [1, 2];

/// What a case works with.
pub struct Env {
    /// A connection.
    pub store: Conn,
    /// Another connection to the same database, independent of the first.
    pub other: Conn,
    /// The clock of both. It stands still until the case moves it.
    pub clock: Arc<ManualClock>,
    /// The backend under test.
    pub backend: Arc<dyn Backend>,
    database: Mutex<Box<dyn Database>>,
}

impl Env {
    /// A new database with two connections.
    pub async fn open(backend: Arc<dyn Backend>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let database = backend.fresh(Arc::clone(&clock)).await;
        let store = Conn(database.connect().await);
        let other = Conn(database.connect().await);
        Self { store, other, clock, backend, database: Mutex::new(database) }
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock forward.
    pub fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// A further independent connection.
    pub async fn connect(&self) -> Conn {
        Conn(self.database.lock().await.connect().await)
    }

    /// Closes every connection and opens one anew. The connections from before are not to be used any more.
    pub async fn restart(&self) -> Conn {
        Conn(self.database.lock().await.restart().await)
    }

    /// Copies the database as it is now; `false` when the backend cannot.
    pub async fn backup(&self) -> bool {
        let copied = self.database.lock().await.backup().await;
        if !copied {
            crate::run::say(&format!(
                "tck: {} cannot go back to a copy; the case is passed over",
                self.backend.name()
            ));
        }
        copied
    }

    /// Puts the last copy in the place of the database: everything since then is lost.
    pub async fn restore(&self) {
        // Numbers continue from the clock, which never stands still in the world outside.
        self.clock.advance(Duration::from_secs(1));
        self.database.lock().await.restore().await;
    }

    /// How another process finds the database.
    pub async fn address(&self) -> Option<String> {
        self.database.lock().await.address()
    }

    /// Runs `tasks` tasks at the same time, started together, spread over one or two connections. Their answers come
    /// back in the order of the tasks.
    pub async fn race<T, F, W>(&self, connections: usize, tasks: usize, work: W) -> Vec<T>
    where
        W: Fn(usize, Conn) -> F,
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let start = Arc::new(Barrier::new(tasks));
        let mut running = Vec::with_capacity(tasks);
        for i in 0..tasks {
            let conn = if i % connections == 0 { &self.store } else { &self.other };
            let (task, start) = (work(i, conn.clone()), Arc::clone(&start));
            running.push(tokio::spawn(async move {
                start.wait().await;
                task.await
            }));
        }
        let mut answers = Vec::with_capacity(tasks);
        for task in running {
            answers.push(task.await.expect("a racing task panicked"));
        }
        answers
    }
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("backend", &self.backend.name()).field("now", &self.now()).finish()
    }
}

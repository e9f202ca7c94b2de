//! The environment of a case: a separate database, two independent connections to it, and its clock.

use std::sync::Arc;
use std::time::Duration;

use tidelock_core::clock::{Clock as _, ManualClock, Timestamp};
use tokio::sync::{Barrier, Mutex};

use crate::conn::Conn;
use crate::{Backend, Capabilities, Database};

/// Numbers of connections over which the tasks of a race are spread. Racing cases run with both.
pub(crate) const ONE_AND_TWO: [usize; 2] = [1, 2];

/// The environment of a case.
pub struct Env {
    /// A connection.
    pub store: Conn,
    /// Another connection to the same database, independent of the first.
    pub other: Conn,
    /// The clock of both connections. It advances only when the case advances it.
    pub clock: Arc<ManualClock>,
    /// The backend under test.
    pub backend: Arc<dyn Backend>,
    database: Mutex<Box<dyn Database>>,
}

impl Env {
    /// Opens a new database with two connections.
    pub async fn open(backend: Arc<dyn Backend>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let database = backend.fresh(Arc::clone(&clock)).await;
        let store = Conn(database.connect().await);
        let other = Conn(database.connect().await);
        Self { store, other, clock, backend, database: Mutex::new(database) }
    }

    /// Returns the capabilities of the backend.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// Returns the current instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Advances the clock.
    pub fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Opens another independent connection.
    pub async fn connect(&self) -> Conn {
        Conn(self.database.lock().await.connect().await)
    }

    /// Closes every connection and opens a new one. The earlier connections must not be used afterwards.
    pub async fn restart(&self) -> Conn {
        Conn(self.database.lock().await.restart().await)
    }

    /// Copies the current state of the database. Returns `false` if the backend cannot do that.
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

    /// Replaces the database with the last copy, so that everything since then is lost.
    pub async fn restore(&self) {
        // Numbers continue from the clock, which always advances in production.
        self.clock.advance(Duration::from_secs(1));
        self.database.lock().await.restore().await;
    }

    /// Returns the address by which another process finds the database.
    pub async fn address(&self) -> Option<String> {
        self.database.lock().await.address()
    }

    /// Runs `tasks` tasks at the same time, started together, spread over one or two connections. Returns their results
    /// in the order of the tasks.
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

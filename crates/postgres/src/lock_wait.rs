//! Only here: short waits for table locks, with retries. SQLite locks the file as a whole.
//!
//! A statement that waits for a lock blocks every later statement that conflicts with it. So each wait is short. Then
//! the transaction is rolled back, and retried after a pause in which other sessions run.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, IsolationLevel, Transaction};

use crate::error::{Failure, Meaning};
use crate::writer::pause;

/// The longest single wait for a lock.
const WAIT: Duration = Duration::from_millis(200);

/// The attempts of a transaction that needs table locks.
pub(crate) struct LockWait {
    give_up: Instant,
    attempts: u32,
}

impl LockWait {
    /// Creates attempts that end before `give_up`.
    pub(crate) fn until(give_up: Instant) -> Self {
        Self { give_up, attempts: 0 }
    }

    fn left(&self) -> Duration {
        self.give_up.saturating_duration_since(Instant::now())
    }

    /// Begins an attempt. At read committed, a transaction that waited for a lock sees the changes of the one before.
    pub(crate) async fn begin<'a>(
        &self,
        client: &'a mut Client,
    ) -> Result<Transaction<'a>, tokio_postgres::Error> {
        let wait = WAIT.min(self.left() / 2).max(Duration::from_millis(1));
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let transaction = begin.start().await?;
        transaction.batch_execute(&format!("SET LOCAL lock_timeout = {}", wait.as_millis())).await?;
        Ok(transaction)
    }

    /// Returns whether another attempt is worthwhile after a failure, after a pause.
    pub(crate) async fn again(&mut self, failure: &Failure) -> bool {
        let waited = matches!(failure.meaning, Meaning::Locked | Meaning::Again);
        if !waited || self.left() <= WAIT {
            return false;
        }
        self.attempts += 1;
        pause(self.attempts).await;
        true
    }
}

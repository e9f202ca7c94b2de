//! Only here: resolution of an operation's outcome, as a separate statement. The unique index on operation ids orders
//! it with every batch, so it need not be queued behind them. On SQLite the session of the writer resolves.
//!
//! Repeating it changes nothing, so a lost connection costs another attempt. If the process dies in between, the id may
//! be void, and the next call returns that.

use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::OpId;
use tidelock_core::store::{Resolution, StoreError, StoreErrorKind};
use tokio_postgres::types::Type;

use crate::db::Call;
use crate::error::{Failure, Meaning};
use crate::flush::stored_operation;
use crate::writer::{Engine, pause};

impl Engine {
    /// Returns the outcome of an operation, or makes its id void. Waits for its batch until the patience is used up.
    pub(crate) async fn resolve(&self, id: OpId) -> Result<Resolution, StoreError> {
        let give_up = Instant::now() + self.patience;
        let mut attempts = 0;
        loop {
            let failure = match self.record_or_void(id, give_up).await {
                Ok(Some(resolution)) => return Ok(resolution),
                Ok(None) => Failure::stale(),
                Err(failure) => failure,
            };
            attempts += 1;
            if failure.meaning == Meaning::Failed || Instant::now() >= give_up {
                return Err(self.unresolved(id, failure));
            }
            pause(attempts).await;
        }
    }

    /// `None`: a sweep removed the record between the two reads of it.
    async fn record_or_void(&self, id: OpId, give_up: Instant) -> Result<Option<Resolution>, Failure> {
        let client = self.writer(give_up).await?;
        let wait = give_up.saturating_duration_since(Instant::now()).as_millis().max(1);
        let call = Call::new(&self.sql.resolve)
            .with(id.0, Type::UUID)
            .with(self.time.fixed().map(Timestamp::as_micros), Type::INT8)
            .with(format!("{wait}ms"), Type::TEXT)
            .with(self.flush_setting, Type::TEXT);
        let db = self.db(&client);
        match self.bounded(&client, db.query(call)).await {
            Ok(found) => found.first().map(|row| Ok(stored_operation(row)?.1)).transpose(),
            Err(failure) => {
                if matches!(failure.meaning, Meaning::Lost | Meaning::Unsent) {
                    self.lost(client);
                }
                Err(failure)
            }
        }
    }

    fn unresolved(&self, id: OpId, failure: Failure) -> StoreError {
        let what = format!("resolving operation {id}");
        match failure.meaning {
            Meaning::Locked => {
                let detail = format!("its batch is still in flight after {:?}", self.patience);
                StoreError::new(StoreErrorKind::Busy, what, detail)
            }
            _ => {
                let mut error = failure.error;
                error.what = what.into();
                error
            }
        }
    }
}

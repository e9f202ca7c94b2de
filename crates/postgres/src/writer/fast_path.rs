//! Only here: a batch without concurrent batches, which its caller's own task sends. Waking a committer and being woken
//! by it would take as long as the commit. On SQLite, only the writer thread writes.
//!
//! It is one statement. A caller that is dropped in the middle leaves behind only an unread response.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidelock_core::model::working_set::Footprint;
use tidelock_core::store::{ApplyError, Batch, Receipt};

use super::{Engine, answer_of, failed, rows_of};
use crate::error::Meaning;
use crate::flush::Flush;

/// How long it waits for a connection; queued jobs wait longer.
const CONNECT: Duration = Duration::from_millis(250);

impl Engine {
    /// Executes a batch at once. `None` when it must be queued: other batches are in flight, or it cannot be guessed.
    pub(crate) async fn lone(&self, batch: &Batch) -> Option<Result<Receipt, ApplyError>> {
        let _place = self.queue.place(rows_of(batch))?;
        let mut session = self.predict(std::iter::once(batch))?;
        let client = tokio::time::timeout(CONNECT, self.writers.get()).await.ok()?.ok()?;
        let check = self.time.to_check(session.now);
        let flush = Flush::of(&mut session, check, self.flush_setting);
        let db = self.db(&client);
        let sent = self.bounded(&client, flush.send_alone(&db, &self.sql, &session)).await;
        let failure = match sent {
            Ok(drawn) => {
                self.meter.groups.fetch_add(1, Ordering::Relaxed);
                self.meter.batches.fetch_add(1, Ordering::Relaxed);
                self.remember(&flush, &session, &drawn);
                return Some(answer_of(drawn.verdict(&session, 0), batch.id()));
            }
            Err(failure) => failure,
        };
        match failure.meaning {
            Meaning::Lost | Meaning::Unclear => {
                self.lost(client);
                Some(Err(failed(failure, batch.id())))
            }
            Meaning::Failed => Some(Err(failed(failure, batch.id()))),
            Meaning::Unsent => {
                self.lost(client);
                None
            }
            Meaning::Epoch => {
                self.reconfirm(&client).await;
                None
            }
            Meaning::Clock => {
                self.time.forget();
                None
            }
            Meaning::Stale | Meaning::TakenEventId | Meaning::Locked | Meaning::Again => {
                self.meter.stale.fetch_add(1, Ordering::Relaxed);
                self.warm.invalidate(&Footprint::of(batch));
                None
            }
        }
    }
}

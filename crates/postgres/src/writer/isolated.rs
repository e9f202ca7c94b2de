//! Only here: execution of each batch of a group in its own transaction, all at the same time. Used when one batch
//! would hold up the others: another transaction holds its rows, or its event ids are taken. SQLite has one writer that
//! waits for no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidelock_core::id::EventId;

use super::pessimistic::Decided;
use super::{Applying, Engine, fail};
use crate::error::{Failure, Meaning};
use crate::flush::Flush;

/// The lock timeout of one attempt. After it, the batch lets another one run whose row may be free.
const LOCK: Duration = Duration::from_millis(150);

impl Engine {
    /// Executes each batch alone, with its event ids looked up first, while the committer continues with other work.
    /// Batches that share rows take turns; the others run at the same time. The rows stay in flight until then, so they
    /// are removed from `rows`.
    pub(super) fn isolated(self: &Arc<Self>, jobs: Vec<Applying>, rows: &mut Vec<u64>) {
        for queue in apart(jobs) {
            let mine: Vec<u64> = queue.iter().flat_map(|job| super::rows_of(&job.batch)).collect();
            rows.retain(|row| !mine.contains(row));
            let engine = Arc::clone(self);
            self.tasks.spawn(async move {
                for job in queue {
                    let give_up = job.since + engine.patience;
                    engine.alone(job, give_up).await;
                }
                engine.queue.done(&mine);
            });
        }
    }

    async fn alone(&self, job: Applying, give_up: Instant) {
        let mut job = Some(job);
        let mut pause = Duration::from_millis(2);
        while let Some(mine) = job.take() {
            match self.attempt(mine, give_up).await {
                None => return,
                Some((mine, failure)) => {
                    if failure.meaning == Meaning::Failed || Instant::now() + pause >= give_up {
                        return fail(vec![mine], &failure);
                    }
                    tokio::time::sleep(super::engine::jittered(pause)).await;
                    pause = (pause * 2).min(Duration::from_millis(50));
                    job = Some(mine);
                }
            }
        }
    }

    /// Makes one attempt. Returns the batch when it was not applied and got no reply.
    async fn attempt(&self, job: Applying, give_up: Instant) -> Option<(Applying, Failure)> {
        // The semaphore is never closed.
        let _turn = self.alone.acquire().await;
        let client = match self.writer(give_up).await {
            Ok(client) => client,
            Err(failure) => return Some((job, failure)),
        };
        let ids: Vec<EventId> = job.batch.event_ids().collect();
        let lock = LOCK.min(give_up.saturating_duration_since(Instant::now())).max(Duration::from_millis(1));
        let db = self.db(&client);
        let batches = [job.batch.as_ref()];
        let decided = self.hold_and_decide(&db, &batches, lock.as_millis(), &ids);
        let Decided { mut session, .. } = match self.bounded(&client, decided).await {
            Ok(decided) => decided,
            Err(failure) => {
                self.roll_back(client, &failure).await;
                return Some((job, failure.unsent()));
            }
        };
        let flush = Flush::of(&mut session, None, self.flush_setting);
        let sent = flush.send(&db, &self.sql, &session, Some("COMMIT"), Vec::new());
        match self.bounded(&client, sent).await {
            Ok((drawn, _)) => {
                self.committed(&flush, &session, &drawn, vec![job]);
                None
            }
            Err(failure) if failure.meaning.is_open() => {
                self.lost(client);
                fail(vec![job], &failure);
                None
            }
            Err(failure) => {
                self.roll_back(client, &failure).await;
                Some((job, failure))
            }
        }
    }
}

/// Sorts batches into queues that have no row in common, each in its original order.
fn apart(jobs: Vec<Applying>) -> Vec<Vec<Applying>> {
    let mut queues: Vec<(HashSet<u64>, Vec<Applying>)> = Vec::new();
    for job in jobs {
        let mut rows: HashSet<u64> = super::rows_of(&job.batch).into_iter().collect();
        let mut mine = Vec::new();
        queues.retain_mut(|(theirs, queue)| {
            let shared = !theirs.is_disjoint(&rows);
            if shared {
                rows.extend(theirs.drain());
                mine.append(queue);
            }
            !shared
        });
        mine.push(job);
        queues.push((rows, mine));
    }
    queues.into_iter().map(|(_, queue)| queue).collect()
}

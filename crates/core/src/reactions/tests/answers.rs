//! Lost responses of the store: no effect is applied twice, and none is omitted.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;
use crate::error::Outcome;

/// The fate of a batch whose response is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was applied.
    Applied,
    /// It is applied later, after its sender has given up.
    Late,
}

/// A store that loses every third response to a batch of more than one effect.
#[derive(Debug)]
struct Lossy {
    inner: MemoryStore,
    fate: Fate,
    count: AtomicU32,
    late: Mutex<Vec<Batch>>,
}

impl Lossy {
    fn new(fate: Fate) -> Arc<Self> {
        Arc::new(Self { inner: MemoryStore::new(), fate, count: AtomicU32::new(0), late: Mutex::default() })
    }

    fn loses(&self, batch: &Batch) -> bool {
        batch.effects().len() > 1 && self.count.fetch_add(1, Ordering::SeqCst) % 3 == 2
    }
}

#[async_trait]
impl crate::store::layer::StoreLayer for Lossy {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        if !self.loses(&batch) {
            let answer = self.inner.apply(batch).await;
            let late = std::mem::take(&mut *self.late.lock());
            for batch in late {
                // The network was slow, and the abandoned batch arrives now.
                drop(self.inner.apply(batch).await);
            }
            return answer;
        }
        let error = StoreError::new(StoreErrorKind::Unreachable, "a test", "the answer is lost");
        match self.fate {
            Fate::Applied => drop(self.inner.apply(batch).await),
            Fate::Late => self.late.lock().push(batch),
        }
        Err(ApplyError::Store { error, outcome: Outcome::Unknown(None) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_do_nothing_twice_and_leave_nothing_out() {
    for fate in [Fate::Applied, Fate::Late] {
        for chosen in [false, true] {
            let lossy = Lossy::new(fate);
            let store: SharedStore = lossy.clone();
            let noting = if chosen { noting("r").to(|_| Some(key("all"))) } else { noting("r") };
            let sound: SharedStore = Arc::new(lossy.inner.clone());
            let running = reactions(&store).with(noting).start().await.unwrap();
            for n in 0..40 {
                append(&sound, &key("s"), [n]).await;
            }
            in_time("it settles", running.quiesce()).await.unwrap();
            assert_eq!(noted(&sound).await, (0..40).collect::<Vec<_>>(), "{fate:?}, chosen keys: {chosen}");
            assert!(lossy.count.load(Ordering::SeqCst) > 10, "answers were lost");
            running.shutdown().await;
        }
    }
}

//! A client: it writes, and records the outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidelock_core::error::{Explain as _, InvalidInput, Outcome};
use tidelock_core::id::{EventType, OpId, Owner, Position, QueueName};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Claim, Delta, Expect, LogQuery, NewEvent, Receipt, Resolution, Store as _, StoreError,
    StoreErrorKind,
};
use tidelock_postgres::PostgresStore;

use crate::ledger::{Ledger, Number, Verdict};

/// Counters and locks that all clients share.
pub(crate) const COUNTERS: u64 = 8;
const LOCKS: u64 = 4;
/// How long a lease lasts: longer than a client holds it, shorter than a failover.
const TTL: Duration = Duration::from_secs(5);
/// How often a write with an unknown outcome is sent again, or resolved.
const RETRIES: u32 = 20;

/// How often a client writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Some 30 times a second.
    Busy,
    /// Now and then, so that its caches grow old.
    Quiet,
}

pub(crate) struct Client {
    way: &'static str,
    stream: String,
    store: PostgresStore,
    ledger: Arc<Ledger>,
    random: u64,
}

impl Client {
    pub(crate) fn new(
        way: &'static str,
        number: u64,
        store: PostgresStore,
        ledger: Arc<Ledger>,
        seed: u64,
    ) -> Self {
        let random = seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { way, stream: format!("client-{number}"), store, ledger, random }
    }

    /// Writes until the load stops.
    pub(crate) async fn run(mut self, pace: Pace, stopping: Arc<AtomicBool>) {
        while !stopping.load(Ordering::SeqCst) {
            if let Err(error) = self.write().await {
                println!("{}: {error}", self.way);
            }
            let pause = match pace {
                Pace::Busy => 15 + self.below(30),
                Pace::Quiet => 300 + self.below(1_500),
            };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    async fn write(&mut self) -> Result<(), InvalidInput> {
        match self.below(100) {
            0..65 => self.increment(Some(OpId::new())).await,
            65..80 => self.increment(None).await,
            _ => self.write_under_lease().await,
        }
    }

    /// Appends an event and adds 1 to a counter, in one batch.
    async fn increment(&mut self, id: Option<OpId>) -> Result<(), InvalidInput> {
        let (number, counter) = (self.ledger.number(), self.below(COUNTERS));
        let event = event(&json!({"number": number, "counter": counter}))?;
        let stream = Key::new("client", [self.stream.as_str()])?;
        let batch = Batch::new().append(&stream, Expect::Any, [event]);
        let (counter, zero) = (counter_key(counter)?, Payload::of(&0)?);
        self.submit(number, batch.merge_or_create(&counter, zero, [Delta::inc("", 1)]), id).await;
        Ok(())
    }

    /// Acquires a lease, appends an event that shows its fence, and releases it.
    async fn write_under_lease(&mut self) -> Result<(), InvalidInput> {
        let (number, lock) = (self.ledger.number(), self.below(LOCKS));
        let owner: Owner = format!("owner-{number}").parse()?;
        let queue: QueueName = "locks".parse()?;
        let key = Key::new("lock", [lock.to_string().as_str()])?;
        // A failed claim may have been granted. Its lease expires.
        let claimed = self.store.claim(Claim::named(&owner, &key, &queue, TTL)).await;
        let Some(grant) = claimed.ok().and_then(|claimed| claimed.grants.into_iter().next()) else {
            return Ok(());
        };
        self.ledger.granted(grant.fence);
        let event = event(&json!({"number": number, "lock": lock, "fence": grant.fence.0}))?;
        let lease = grant.lease();
        let batch = Batch::new().guard_lease(&lease).append(&key, Expect::Any, [event]);
        self.submit(number, batch, Some(OpId::new())).await;
        // A lease that is not released expires.
        drop(self.store.apply(Batch::new().release(&lease)).await);
        Ok(())
    }

    /// Applies a batch and records the outcome. An unknown outcome under an id is dealt with in one of three ways: the batch
    /// is sent again, the store resolves the id at once, or it does so at the end.
    async fn submit(&mut self, number: Number, batch: Batch, id: Option<OpId>) {
        let (batch, way) = match id {
            Some(id) => (batch.op_id(id), self.below(3)),
            None => (batch, 2),
        };
        for attempt in 0..=RETRIES {
            let answer = match id {
                Some(id) if attempt > 0 && way == 1 => self.resolve(id).await,
                _ => attempted(self.store.apply(batch.clone()).await),
            };
            let open = matches!(answer.0, Verdict::Unknown(_));
            self.ledger.record(self.way, number, answer.0, answer.1);
            if !open || way == 2 {
                return;
            }
        }
    }

    async fn resolve(&self, id: OpId) -> AppendResult {
        match self.store.resolve(id).await {
            Ok(Resolution::Applied(receipt)) => (Verdict::Acknowledged, Ok(receipt.last_position())),
            Ok(Resolution::NotApplied) => (Verdict::NotApplied, Err("resolved".to_owned())),
            Err(error) => (Verdict::Unknown(Some(id)), Err(error.to_string())),
        }
    }

    /// A number below `limit`, from SplitMix64.
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The outcome, and the position of the event or the error.
type AppendResult = (Verdict, Result<Option<Position>, String>);

fn attempted(answer: Result<Receipt, ApplyError>) -> AppendResult {
    let verdict = match answer.as_ref().map_err(ApplyError::outcome) {
        Ok(_) | Err(Outcome::Applied) => Verdict::Acknowledged,
        Err(Outcome::NotApplied) => Verdict::NotApplied,
        Err(Outcome::Unknown(id)) => Verdict::Unknown(id),
    };
    (verdict, answer.map(|receipt| receipt.last_position()).map_err(|error| error.to_string()))
}

/// The key of a counter.
pub(crate) fn counter_key(counter: u64) -> Result<Key, InvalidInput> {
    Key::new("counter", [counter.to_string().as_str()])
}

fn event(payload: &Value) -> Result<NewEvent, InvalidInput> {
    Ok(NewEvent::new(EventType::new("Wrote")?, Payload::of(payload)?))
}

/// A number in the payload of an event.
pub(crate) fn field(payload: &Payload, name: &str) -> Option<u64> {
    payload.parse::<Value>().ok()?.get(name)?.as_u64()
}

/// Follows the log until the load stops. A reader that the store turns away for another reason than an outage starts from
/// the beginning.
pub(crate) async fn read(store: &PostgresStore, ledger: &Ledger, stopping: &AtomicBool) {
    let mut after = None;
    while !stopping.load(Ordering::SeqCst) {
        let pause = match read_on(store, ledger, &mut after).await {
            Ok(true) => continue,
            Ok(false) => 50,
            Err(error) => {
                if !matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::Busy) {
                    println!("the reader starts again: {error}");
                    after = None;
                }
                200
            }
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    ledger.with(|inner| inner.read_to = after);
}

/// Reads a page. Returns whether there may be more.
pub(crate) async fn read_on(
    store: &PostgresStore,
    ledger: &Ledger,
    after: &mut Option<Position>,
) -> Result<bool, StoreError> {
    let query = after.map_or_else(|| LogQuery::all(500), |position| LogQuery::after(position, 500));
    let page = store.read_log(query).await?;
    for event in &page.events {
        if let Some(number) = field(&event.payload, "number") {
            ledger.read(event.position, number);
        }
    }
    *after = page.scanned_to.or(page.events.last().map(|event| event.position)).or(*after);
    Ok(!page.end)
}

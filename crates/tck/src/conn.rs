//! Connection type of the cases: the store, with short methods for frequent requests.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use tidelock_core::key::Key;
use tidelock_core::store::{
    Batch, Claim, ClaimDenied, Event, Grant, LogQuery, Receipt, Refusal, Store, StoredDocument, StreamQuery,
    WorkFilter, WorkRow, limits,
};

use crate::builders::{TTL, owner, queue_name};

/// A connection to the database under test.
#[derive(Clone, Debug)]
pub struct Conn(pub Arc<dyn Store>);

impl Deref for Conn {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl Conn {
    /// Applies a batch that must be accepted.
    pub async fn done(&self, batch: Batch) -> Receipt {
        match self.apply(batch).await {
            Ok(receipt) => receipt,
            Err(error) => panic!("expected the batch to be applied, got {error:?}"),
        }
    }

    /// Applies a batch that must be rejected.
    pub async fn refused(&self, batch: Batch) -> Refusal {
        crate::expect::refusal(self.apply(batch).await)
    }

    /// Claims up to `limit` due rows of a queue.
    pub async fn claim_lane(&self, who: &str, lane_name: &str, limit: usize) -> Vec<Grant> {
        let claim = Claim::queues(&owner(who), [queue_name(lane_name)], limit, TTL);
        self.claim(claim).await.expect("the store answers").grants
    }

    /// Claims one due row of the jobs queue, if there is one.
    pub async fn next_job(&self, who: &str) -> Option<Grant> {
        self.claim_lane(who, "jobs", 1).await.pop()
    }

    /// Claims one due row of the jobs queue; there must be one.
    pub async fn take_job(&self, who: &str) -> Grant {
        self.next_job(who).await.expect("a job is due")
    }

    /// Claims a row by name and creates it if it does not exist: a named lock.
    pub async fn lock(&self, who: &str, key: &Key) -> Result<Grant, ClaimDenied> {
        one(self
            .claim(Claim::named(&owner(who), key, &queue_name("locks"), TTL))
            .await
            .expect("the store answers"))
    }

    /// Claims an existing row by name.
    pub async fn take(&self, who: &str, key: &Key) -> Result<Grant, ClaimDenied> {
        one(self.claim(Claim::existing(&owner(who), key, TTL)).await.expect("the store answers"))
    }

    /// Returns a document.
    pub async fn doc(&self, key: &Key) -> Option<StoredDocument> {
        self.document(key).await.expect("the store answers")
    }

    /// Returns the value of a document.
    pub async fn value(&self, key: &Key) -> Option<Value> {
        self.doc(key).await.map(|document| document.value.parse().expect("a payload is JSON"))
    }

    /// Returns a work row that must exist.
    pub async fn row(&self, key: &Key) -> WorkRow {
        self.find_row(key).await.expect("the row exists")
    }

    /// Returns a work row.
    pub async fn find_row(&self, key: &Key) -> Option<WorkRow> {
        self.work(key).await.expect("the store answers")
    }

    /// Returns all events of a stream.
    pub async fn history(&self, stream: &Key) -> Vec<Event> {
        let query = StreamQuery::forward(stream, limits::PAGE_ROWS);
        self.read_stream(query).await.expect("the store answers").events
    }

    /// Returns all events of the log.
    pub async fn log(&self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        loop {
            let mut query = LogQuery::all(1_000);
            query.after = all.last().map(|event| event.position);
            let page = self.read_log(query).await.expect("the store answers");
            let end = page.end || page.events.is_empty();
            let (last, first) = (all.last(), page.events.first());
            assert!(
                last.is_none() || first.is_none() || last.map(|e| e.position) < first.map(|e| e.position),
                "the log leads back: a reader would never end"
            );
            all.extend(page.events);
            if end {
                return all;
            }
        }
    }

    /// Returns the number of matching rows.
    pub async fn count(&self, filter: &WorkFilter) -> u64 {
        self.count_work(filter).await.expect("the store answers")
    }
}

fn one(claimed: tidelock_core::store::Claimed) -> Result<Grant, ClaimDenied> {
    match (claimed.grants.into_iter().next(), claimed.denied) {
        (Some(grant), None) => Ok(grant),
        (None, Some(denied)) => Err(denied),
        other => panic!("a claim by name is granted or denied, got {other:?}"),
    }
}

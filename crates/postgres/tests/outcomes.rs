//! D1: the outcome of a batch whose connection fails between PgBouncer and the server.
//!
//! A pooler reports a lost server connection with its own message. Every batch is applied at most once, no applied
//! batch is reported as not applied, and callers wait while the pooler cannot reach the server.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

#[path = "common/bouncer.rs"]
mod bouncer;
mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;
#[path = "common/proxy.rs"]
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bouncer::{Bouncer, BouncerConfig};
use load::{check_streams, event, key, whole_log};
use parking_lot::Mutex;
use poll::{in_time, until};
use proxy::{Proxy, Trap};
use tidelock_core::error::Outcome;
use tidelock_core::id::OpId;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{ApplyError, Batch, Delta, Expect, Receipt, Store as _};
use tidelock_postgres::tokio_postgres::Config;
use tidelock_postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinHandle;

/// A store behind PgBouncer, with a proxy between PgBouncer and the server. The schema is also the application name of
/// the store's connections.
struct Site {
    store: PostgresStore,
    bouncer: Bouncer,
    proxy: Proxy,
    schema: String,
}

impl Site {
    /// Opens a store. `None` where there is no PgBouncer.
    async fn open(options: PostgresOptions) -> Option<Self> {
        Self::with(options, "").await
    }

    /// Opens a store with further settings of PgBouncer.
    async fn with(options: PostgresOptions, more: &str) -> Option<Self> {
        let server: Config = common::url().parse().unwrap();
        let proxy = Proxy::before(server.get_ports().first().copied().unwrap_or(5432)).await;
        let place = BouncerConfig { server: &common::url(), proxy: Some(proxy.port()), more };
        let bouncer = Bouncer::start(place)?;
        let schema = common::fresh_schema();
        let address = bouncer.address(&schema, &format!("&pooler=transaction&application_name={schema}"));
        let store = PostgresStore::open(&address, options).await.unwrap();
        Some(Self { store, bouncer, proxy, schema })
    }

    /// Opens a store that bypasses the proxy and PgBouncer.
    async fn witness(&self) -> PostgresStore {
        PostgresStore::open(&common::address(&self.schema), common::options()).await.unwrap()
    }
}

/// One call, which changes a counter of its key. An event identifies the call exactly, but its id would also prevent a
/// second application. So some calls have no event.
#[derive(Clone)]
struct Call {
    key: Key,
    id: OpId,
    with_event: bool,
    with_id: bool,
}

impl Call {
    fn on(key: &Key) -> Self {
        Self { key: key.clone(), id: OpId::new(), with_event: false, with_id: false }
    }

    fn batch(&self) -> Batch {
        let batch = Batch::new().merge_or_create(&self.key, Payload::of(&0).unwrap(), [Delta::inc("", 1)]);
        let marker = event(&self.id.to_string());
        let batch = if self.with_event { batch.append(&self.key, Expect::Any, [marker]) } else { batch };
        if self.with_id { batch.op_id(self.id) } else { batch }
    }

    async fn send(self, store: PostgresStore, ledger: Arc<Ledger>) {
        let answer = store.apply(self.batch()).await;
        ledger.record(self, outcome(&answer));
    }

    /// Sends the call. It is queued or in flight when this returns.
    async fn start(self, store: &PostgresStore, ledger: &Arc<Ledger>) -> JoinHandle<()> {
        let mut sending = Box::pin(self.send(store.clone(), Arc::clone(ledger)));
        tokio::select! {
            biased;
            () = &mut sending => panic!("it was answered at once"),
            () = std::future::ready(()) => {}
        }
        tokio::spawn(sending)
    }
}

fn outcome(answer: &Result<Receipt, ApplyError>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Applied,
        Err(ApplyError::Store { outcome, .. }) => *outcome,
        Err(refused) => panic!("nothing can be refused here: {refused}"),
    }
}

/// The outcomes that the callers learned, by call.
#[derive(Default)]
struct Ledger(Mutex<Vec<(Call, Outcome)>>);

impl Ledger {
    fn record(&self, call: Call, outcome: Outcome) {
        self.0.lock().push((call, outcome));
    }

    fn count(&self, wanted: impl Fn(&Call, Outcome) -> bool) -> u64 {
        self.0.lock().iter().filter(|(call, outcome)| wanted(call, *outcome)).count() as u64
    }

    fn applied(&self) -> u64 {
        self.count(|_, outcome| outcome == Outcome::Applied)
    }

    fn unknown(&self) -> u64 {
        self.count(|_, outcome| is_unknown(outcome))
    }

    fn summary(&self) -> String {
        let failed = self.count(|_, outcome| outcome == Outcome::NotApplied);
        format!("{} applied, {} unknown, {failed} not applied", self.applied(), self.unknown())
    }

    /// Compares the results with the database: every call at most once, an acknowledged one exactly once, one that was
    /// not applied never.
    async fn check(&self, witness: &PostgresStore) {
        let log = whole_log(witness).await;
        check_streams(&log);
        let mut events: BTreeMap<String, usize> = BTreeMap::new();
        for event in &log {
            *events.entry(event.payload.parse().unwrap()).or_default() += 1;
        }
        let calls = self.0.lock().clone();
        for (call, outcome) in calls.iter().filter(|(call, _)| call.with_event) {
            let times = events.remove(&call.id.to_string()).unwrap_or(0);
            match outcome {
                Outcome::Applied => assert_eq!(times, 1, "acknowledged"),
                Outcome::NotApplied => assert_eq!(times, 0, "not applied"),
                _ => assert!(times <= 1, "unknown: {times} times"),
            }
        }
        assert!(events.is_empty(), "events that no call sent: {events:?}");
        let keys: BTreeSet<Key> = calls.iter().map(|(call, _)| call.key.clone()).collect();
        for key in keys {
            let found = witness.document(&key).await.unwrap();
            let counted: u64 = found.map_or(0, |found| found.value.parse().unwrap());
            let applied = self.count(|call, outcome| call.key == key && outcome == Outcome::Applied);
            let unknown = self.count(|call, outcome| call.key == key && is_unknown(outcome));
            let allowed = applied..=applied + unknown;
            assert!(allowed.contains(&counted), "{key}: {counted} increments, {allowed:?} are possible");
        }
    }
}

fn is_unknown(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Unknown(_))
}

/// A lone batch is committed, and PgBouncer loses the response of the server.
#[tokio::test(flavor = "multi_thread")]
async fn d1_a_batch_whose_answer_the_pooler_lost_is_unknown() {
    let Some(site) = Site::open(common::options()).await else { return };
    let ledger = Arc::new(Ledger::default());
    for trap in [Trap::Answer, Trap::Before, Trap::Behind] {
        for with_id in [false, true] {
            let (before, call) =
                (Call::on(&key("s")), Call { with_event: true, with_id, ..Call::on(&key("s")) });
            // Twice, so that the next is decided on cached rows and sent as one statement.
            for _ in 0..2 {
                let before = Call { id: OpId::new(), with_event: true, ..before.clone() };
                before.send(site.store.clone(), Arc::clone(&ledger)).await;
            }
            site.proxy.trap(&call.id.to_string(), trap);
            let answer = in_time("an answer", site.store.apply(call.batch())).await;
            assert!(site.proxy.sprung());
            let unknown = Outcome::Unknown(with_id.then_some(call.id));
            assert_eq!(outcome(&answer), unknown, "{trap:?}: {answer:?}");
            ledger.record(call, unknown);
        }
    }
    ledger.check(&site.witness().await).await;
}

/// A whole group is committed, and PgBouncer loses the response of the server: the group must not be applied again.
#[tokio::test(flavor = "multi_thread")]
async fn d1_a_group_whose_answer_the_pooler_lost_is_applied_once() {
    let options = PostgresOptions { committers: 1, ..common::options() };
    let Some(site) = Site::open(options).await else { return };
    let ledger = Arc::new(Ledger::default());
    let calls: Vec<Call> = (0..40).map(|n| Call::on(&key(&format!("s-{n}")))).collect();
    for call in &calls {
        call.clone().send(site.store.clone(), Arc::clone(&ledger)).await;
    }
    // While the network is blocked, all of them queue behind the first and become one group.
    site.proxy.hold();
    let batches = site.store.stats().batches;
    let first = Call::on(&key("first")).start(&site.store, &ledger).await;
    until("the first is in flight", async || site.store.stats().batches > batches).await;
    let mut group = Vec::new();
    for call in &calls {
        group.push(call.clone().start(&site.store, &ledger).await);
    }
    site.proxy.trap("s-39", Trap::Answer);
    site.proxy.pass();
    for call in group.into_iter().chain([first]) {
        in_time("an answer", call).await.unwrap();
    }
    assert!(site.proxy.sprung());
    assert!(ledger.unknown() > 1, "no group was lost: {}", ledger.summary());
    ledger.check(&site.witness().await).await;
}

/// The faults of connections behind a pooler.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The network between PgBouncer and the server is cut.
    Cut,
    /// The server terminates its processes.
    Terminate,
    /// An operator makes PgBouncer close its connections to the server.
    Reconnect,
    /// An operator makes PgBouncer close all connections.
    Kill,
}

impl Fault {
    async fn inject(self, site: &Site, admin: &tidelock_postgres::tokio_postgres::Client) {
        match self {
            Self::Cut => site.proxy.cut().await,
            Self::Terminate => {
                let sql =
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
                admin.query(sql, &[&site.schema]).await.unwrap();
            }
            Self::Reconnect => site.bouncer.command("RECONNECT").await,
            Self::Kill => {
                site.bouncer.command("KILL").await;
                site.bouncer.command("RESUME").await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_connections_cut_in_mid_commit_behind_the_pooler_apply_every_batch_at_most_once() {
    let Some(site) = Site::open(common::options()).await else { return };
    let (ledger, done) = (Arc::new(Ledger::default()), Arc::new(AtomicBool::new(false)));
    let writer = |n: usize| {
        let (store, ledger, done) = (site.store.clone(), Arc::clone(&ledger), Arc::clone(&done));
        tokio::spawn(async move {
            let key = key(&format!("s-{n}"));
            while !done.load(Ordering::SeqCst) {
                let call =
                    Call { with_event: n.is_multiple_of(2), with_id: n.is_multiple_of(4), ..Call::on(&key) };
                call.send(store.clone(), Arc::clone(&ledger)).await;
            }
        })
    };
    let writers: Vec<JoinHandle<()>> = (0..24).map(writer).collect();
    let admin = common::client().await;
    for _ in 0..12 {
        for fault in [Fault::Cut, Fault::Terminate, Fault::Reconnect, Fault::Kill] {
            let applied = ledger.applied();
            until(&format!("the writers continue after {fault:?}"), async || {
                ledger.applied() >= applied + 30
            })
            .await;
            fault.inject(&site, &admin).await;
        }
    }
    done.store(true, Ordering::SeqCst);
    for writer in writers {
        in_time("a writer ends", writer).await.unwrap();
    }
    assert!(ledger.unknown() > 0, "no call was in flight at a fault: {}", ledger.summary());
    ledger.check(&site.witness().await).await;
}

/// The pooler responds while the server is unavailable. Nothing was sent to the server, so callers wait.
#[tokio::test(flavor = "multi_thread")]
async fn d1_callers_wait_while_the_pooler_cannot_reach_the_server() {
    let options = PostgresOptions { patience: Duration::from_secs(60), ..common::options() };
    // The pooler gives up on a caller after a second.
    let Some(site) = Site::with(options, "query_wait_timeout = 1").await else { return };
    let ledger = Arc::new(Ledger::default());
    let keys: Vec<Key> = (0..20).map(|n| key(&format!("s-{n}"))).collect();
    for key in &keys {
        Call::on(key).send(site.store.clone(), Arc::clone(&ledger)).await;
    }
    site.proxy.refuse(true);
    site.proxy.cut().await;
    // The first call may be sent as one statement, and it is unknown how far the pooler forwarded it.
    Call::on(&key("s-0")).send(site.store.clone(), Arc::clone(&ledger)).await;
    let mut calls = Vec::new();
    for _ in 0..5 {
        for key in &keys {
            calls.push(Call::on(key).start(&site.store, &ledger).await);
        }
    }
    let reader = site.store.clone();
    let reading = tokio::spawn(async move { reader.document(&key("s-0")).await });
    let refused = site.proxy.accepted();
    until("the pooler tries again", async || site.proxy.accepted() > refused + 2).await;
    assert!(calls.iter().all(|call| !call.is_finished()), "a call failed: {}", ledger.summary());
    assert!(!reading.is_finished(), "a read failed while it could wait");
    site.proxy.refuse(false);
    for call in calls {
        in_time("a caller that waited", call).await.unwrap();
    }
    in_time("a reader that waited", reading).await.unwrap().unwrap().unwrap();
    assert!(ledger.unknown() <= 1 && ledger.applied() >= 120, "{}", ledger.summary());
    ledger.check(&site.witness().await).await;
}

//! Consistency of snapshots, caches, units of work and subscriptions with the log (E1–E7 and O1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidelock_core::events::{
    Aggregate, AsOf, Events, EventsError, EventsOptions, ExecuteError, StartFrom, SubscriptionFilter, Tag,
};

use crate::fault_proxy::{Detour, Gate};
use crate::ledger::{Booked, Ledger, Shelf, book, closing, engine, here, stream, there};
use crate::prelude::*;
use crate::reacting::until;

/// The number of bookings of a hall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Bookings {
    count: u32,
}

/// The number of refunds of a hall: another fold of the same stream, whose state decodes like the other one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Refunds {
    count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum HallEvent {
    Sold,
    Refunded,
}
use HallEvent::{Refunded, Sold};

impl Aggregate for Bookings {
    const KIND: &'static str = "hall";
    type Event = HallEvent;

    fn apply(&mut self, event: &HallEvent) {
        self.count += u32::from(*event == Sold);
    }
}

impl Aggregate for Refunds {
    const KIND: &'static str = "hall";
    type Event = HallEvent;

    fn apply(&mut self, event: &HallEvent) {
        self.count += u32::from(*event == Refunded);
    }
}

impl Bookings {
    fn sell(&self) -> Result<Vec<HallEvent>, String> {
        if self.count < 12 { Ok(vec![Sold]) } else { Err("sold out".to_owned()) }
    }
}

fn plain(conn: &Conn) -> Events {
    Events::new(Arc::clone(&conn.0))
}

/// Waits until a snapshot of an aggregate at a version is stored.
async fn snapshot_at(env: &Env, stream: &Key, version: u64) {
    let k = stream.beside("snapshot").unwrap();
    until("a snapshot is written", async || {
        let value = env.other.value(&k).await.unwrap_or_default();
        value.to_string().contains(&format!("\"version\":{version}"))
    })
    .await;
}

/// Two aggregates that fold one stream have two snapshots. Neither loads the other's, and a rule of one holds.
pub async fn e5_two_aggregates_on_one_stream_keep_two_snapshots(env: &Env) {
    let stream = Bookings::stream("e5-hall").unwrap();
    let writer = plain(&env.store).snapshots::<Bookings>(4).snapshots::<Refunds>(4);
    for _ in 0..12 {
        writer.execute("e5-hall", Bookings::sell).await.unwrap();
    }
    snapshot_at(env, &stream, 11).await;
    for _ in 0..4 {
        writer.execute("e5-hall", |_: &Refunds| Ok::<_, String>([Refunded])).await.unwrap();
    }
    snapshot_at(env, &stream, 15).await;
    let fresh = || plain(&env.other).snapshots::<Bookings>(4).snapshots::<Refunds>(4);
    assert_eq!(fresh().load::<Bookings>("e5-hall").await.unwrap().state.count, 12);
    assert_eq!(fresh().load::<Refunds>("e5-hall").await.unwrap().state.count, 4);
    let refused = fresh().execute("e5-hall", Bookings::sell).await.unwrap_err();
    assert_eq!(refused.to_string(), "sold out", "the 13th does not pass");
    let version = AsOf::Version(StreamVersion(15));
    assert_eq!(fresh().as_of::<Bookings>("e5-hall", version).await.unwrap().state.count, 12);
}

/// The base state that replaces removed events of one aggregate is never used for another.
pub async fn e7_a_base_replaces_its_own_aggregate_only(env: &Env) {
    let events = plain(&env.store).snapshots::<Bookings>(1_000).snapshots::<Refunds>(1_000);
    let stream = Bookings::stream("e7-hall").unwrap();
    events.append::<Bookings>("e7-hall", vec![Sold; 5]).await.unwrap();
    let closing =
        |events: &Events| tidelock_core::archive::Archiver::new(events.clone()).close(&stream).discard();
    closing(&events).keep_last::<Bookings>(2).await.unwrap();
    let fresh = || plain(&env.other).snapshots::<Bookings>(1_000).snapshots::<Refunds>(1_000);
    assert_eq!(fresh().load::<Bookings>("e7-hall").await.unwrap().state.count, 5);
    let error = fresh().load::<Refunds>("e7-hall").await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0810", "{error}");
    closing(&events).restart::<Bookings>().await.unwrap();
    assert_eq!(fresh().load::<Bookings>("e7-hall").await.unwrap().state.count, 5);
    let error = fresh().load::<Refunds>("e7-hall").await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0803", "{error}");
}

/// A unit of work reads its uncommitted events, whether it loaded before or not, through every aggregate of the stream.
pub async fn e4_a_unit_reads_its_own_emits(env: &Env) {
    let events = plain(&env.store);
    events.append::<Bookings>("e4-own", [Sold]).await.unwrap();
    let seen = events.together(|unit| async move {
        unit.emit::<Bookings>("e4-own", [Sold, Refunded])?;
        let first =
            (unit.load::<Bookings>("e4-own").await?.count, unit.load::<Refunds>("e4-own").await?.count);
        unit.emit::<Bookings>("e4-own", [Sold])?;
        unit.emit::<Bookings>("e4-new", [Sold])?;
        let then =
            (unit.load::<Bookings>("e4-own").await?.count, unit.load::<Refunds>("e4-own").await?.count);
        Ok::<_, EventsError>((first, then, unit.load::<Bookings>("e4-new").await?.count))
    });
    assert_eq!(seen.await.unwrap(), ((2, 1), (3, 1), 1));
    assert_eq!(plain(&env.other).load::<Bookings>("e4-own").await.unwrap().state.count, 3);
    // A load after an emit is a precondition of the commit, like a load before it.
    let between = &plain(&env.other);
    let runs = &std::sync::atomic::AtomicU32::new(0);
    let sold = events.together(|unit| async move {
        unit.emit::<Bookings>("e4-own", [Sold])?;
        let count = unit.load::<Bookings>("e4-own").await?.count;
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            between.append::<Bookings>("e4-own", [Sold]).await?;
        }
        Ok::<_, EventsError>(count)
    });
    assert_eq!((sold.await.unwrap(), runs.load(Ordering::SeqCst)), (5, 2));
}

/// A name is taken once, even if one unit requests it twice.
pub async fn e2_a_tag_is_taken_once_within_one_unit(env: &Env) {
    let events = plain(&env.store);
    let register = async |unit: &tidelock_core::events::UnitOfWork, user: &str| {
        let name = Tag::new("name:alice");
        if !unit.tagged(&name).await?.is_empty() {
            return Ok::<_, EventsError>(false);
        }
        unit.emit_tagged::<Bookings>(user, &[name], [Sold])?;
        Ok(true)
    };
    let register = &register;
    let both = events.together(|unit| async move {
        Ok::<_, EventsError>((register(&unit, "u-1").await?, register(&unit, "u-2").await?))
    });
    assert_eq!(both.await.unwrap(), (true, false));
    let tag = &Tag::new("name:alice");
    let taken = events.together(|unit| async move { unit.tagged(tag).await }).await.unwrap();
    let streams: Vec<_> = taken.iter().map(|event| event.stream.clone()).collect();
    assert_eq!(streams, [Bookings::stream("u-1").unwrap()]);
}

/// A unit that reads a tag twice is committed only if no event followed its first read.
pub async fn e2_the_first_look_at_a_tag_is_the_condition(env: &Env) {
    let (events, tag) = (plain(&env.store), Tag::new("seat:7"));
    let (runs, between) = (&std::sync::atomic::AtomicU32::new(0), &plain(&env.other));
    let tag = &tag;
    let sell = async |events: &Events, id: &str| {
        let id = &id.to_owned();
        events
            .together(|unit| async move {
                unit.emit_tagged::<Bookings>(id.as_str(), std::slice::from_ref(tag), [Sold])?;
                Ok::<_, EventsError>(())
            })
            .await
            .unwrap();
    };
    let sell = &sell;
    let sold = events.together(|unit| async move {
        let free = unit.tagged(tag).await?.is_empty();
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            sell(between, "seat-b").await;
        }
        unit.tagged(tag).await?;
        if free {
            unit.emit_tagged::<Bookings>("seat-a", std::slice::from_ref(tag), [Sold])?;
        }
        Ok::<_, EventsError>(free)
    });
    assert!(!sold.await.unwrap(), "another unit has sold the seat");
    let taken = events.together(|unit| async move { unit.tagged(tag).await }).await.unwrap();
    assert_eq!(taken.len(), 1, "a seat is sold once");
}

/// After a tombstone no cache and no late snapshot restores the state, in any process.
pub async fn e7_nothing_brings_a_tombstoned_state_back(env: &Env) {
    let gate = Arc::new(Gate::default());
    let late = Events::new(Detour::over(Arc::clone(&gate), &env.store.0)).snapshots::<Ledger>(3);
    let warm = there(env);
    book(&here(env), "gone", 5).await;
    assert_eq!(warm.load::<Ledger>("gone").await.unwrap().state.sum, 15);
    // The load writes a snapshot in the background, which arrives after the stream is closed.
    gate.close();
    assert_eq!(late.load::<Ledger>("gone").await.unwrap().state.sum, 15);
    gate.arrived().await;
    closing(&here(env), &stream("gone"), &Shelf::default()).tombstone().await.unwrap();
    gate.open();
    let gone = async |events: &Events| {
        let loaded = events.load::<Ledger>("gone").await.unwrap();
        assert_eq!((loaded.state.sum, loaded.version), (0, None));
        let as_of = events.as_of::<Ledger>("gone", AsOf::Version(StreamVersion(4))).await.unwrap();
        assert_eq!(as_of.state.sum, 0);
    };
    gone(&warm).await;
    gone(&late).await;
    // Another write through the same connection: the late one has arrived before it, or is rejected.
    late.append::<Ledger>("beside", [Booked { n: 1 }]).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        gone(&Events::new(Arc::clone(&env.other.0)).snapshots::<Ledger>(3)).await;
    }
    until("nothing is kept beside it", async || {
        env.other.value(&stream("gone").beside("snapshot").unwrap()).await.is_none()
    })
    .await;
    let decided = warm.decide("gone", |_: &Ledger| Ok::<_, String>([Booked { n: 1 }])).await.unwrap();
    let refused = env.store.refused(decided).await;
    assert!(matches!(refused, Refusal::StreamClosed { .. }), "{refused:?}");
    let unit = warm.together(|unit| async move {
        unit.load::<Ledger>("gone").await?;
        unit.emit::<Ledger>("gone", [Booked { n: 1 }])
    });
    let error = unit.await.unwrap_err();
    assert!(matches!(error, EventsError::Closed { .. }), "{error}");
}

/// A restart leaves no earlier snapshot, even if one was in flight.
pub async fn e7_a_restart_leaves_no_older_snapshot(env: &Env) {
    let gate = Arc::new(Gate::default());
    let late = Events::new(Detour::over(Arc::clone(&gate), &env.store.0)).snapshots::<Ledger>(3);
    book(&here(env), "fresh", 5).await;
    gate.close();
    late.load::<Ledger>("fresh").await.unwrap();
    gate.arrived().await;
    let opening = |ledger: &Ledger| Ledger { sum: ledger.sum, bookings: Vec::new() };
    closing(&here(env), &stream("fresh"), &Shelf::default()).restart_with(opening).await.unwrap();
    gate.open();
    late.append::<Ledger>("beside", [Booked { n: 1 }]).await.unwrap();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        let kept = env.other.value(&stream("fresh").beside("snapshot").unwrap()).await;
        let bookings = kept.is_some_and(|kept| kept.to_string().contains("bookings"));
        assert!(!bookings, "the bookings were to go");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let state = late.load::<Ledger>("fresh").await.unwrap().state;
    assert_eq!(*state, Ledger { sum: 15, bookings: Vec::new() });
    book(&here(env), "fresh", 3).await;
    assert_eq!(late.load::<Ledger>("fresh").await.unwrap().state.sum, 21);
    snapshot_at(env, &stream("fresh"), 8).await;
}

/// Events were removed without a base state. Every way to load the state is an error, with and without a snapshot or a
/// cache.
pub async fn e7_a_missing_base_is_an_error_everywhere(env: &Env) {
    for (id, before, kept) in [("no-base-some", 4, 7), ("no-base-all", 7, 7), ("no-base-old", 7, 3)] {
        let writer = Events::new(Arc::clone(&env.store.0)).snapshots::<Ledger>(kept);
        let warm = there(env);
        for n in 1..=7 {
            writer.execute(id, |_: &Ledger| Ok::<_, String>([Booked { n }])).await.unwrap();
        }
        snapshot_at(env, &stream(id), if kept == 7 { 6 } else { 5 }).await;
        assert_eq!(warm.load::<Ledger>(id).await.unwrap().state.sum, 28);
        env.store.done(Batch::new().truncate(&stream(id), StreamVersion(before))).await;
        let fresh = || Events::new(Arc::clone(&env.other.0)).snapshots::<Ledger>(kept);
        for events in [warm, fresh(), there(env), Events::new(Arc::clone(&env.other.0))] {
            let base = |error: &EventsError| assert_eq!(error.code().as_str(), "TL0810", "{id}: {error}");
            base(&events.load::<Ledger>(id).await.unwrap_err());
            let no = |_: &Ledger| Err::<Vec<_>, _>("no".to_owned());
            let ExecuteError::Events(error) = events.execute(id, no).await.unwrap_err() else {
                panic!("{id}: it decided on half of the events")
            };
            base(&error);
            let yes = |_: &Ledger| Ok::<_, String>([Booked { n: 1 }]);
            let ExecuteError::Events(error) = events.decide(id, yes).await.unwrap_err() else {
                panic!("{id}: it decided on half of the events")
            };
            base(&error);
            let unit = events.together(|unit| async move { unit.load::<Ledger>(id).await.map(drop) });
            base(&unit.await.unwrap_err());
        }
        let cold = there(env).execute(id, |_: &Ledger| Ok::<_, String>([Booked { n: 1 }])).await;
        assert!(matches!(cold, Err(ExecuteError::Events(EventsError::Base { .. }))), "{id}");
    }
}

/// The state as of a time is the same with and without snapshots, even if the clock of the store went backwards.
pub async fn e6_the_state_as_of_a_time_does_not_depend_on_snapshots(env: &Env) {
    let writer = Events::new(Arc::clone(&env.store.0)).snapshots::<Ledger>(3);
    let start = env.now().after(secs(1_000));
    let mut moments = Vec::new();
    for (n, second) in [(1, 10), (2, 20), (3, 5), (4, 25)] {
        env.clock.set(start.after(secs(second)));
        writer.execute("back", |_: &Ledger| Ok::<_, String>([Booked { n }])).await.unwrap();
        moments.push(second);
    }
    snapshot_at(env, &stream("back"), 2).await;
    let kept = || Events::new(Arc::clone(&env.other.0)).snapshots::<Ledger>(3);
    for second in [4, 5, 7, 10, 12, 20, 22, 25, 30] {
        let moment = AsOf::Time(start.after(secs(second)));
        let with = kept().as_of::<Ledger>("back", moment).await.unwrap();
        let without = plain(&env.other).as_of::<Ledger>("back", moment).await.unwrap();
        assert_eq!((&with.state, with.version), (&without.state, without.version), "{second}");
    }
}

/// `now` on a subscription returns an event that was committed before the call.
pub async fn o1_committed_events_are_visible_to_now(env: &Env) {
    let (here, there) = (here(env), there(env));
    for what in [SubscriptionFilter::all(), SubscriptionFilter::stream(&stream("now"))] {
        let mut subscription = there.subscribe(what, StartFrom::Now).await.unwrap();
        for n in 0..5 {
            here.append::<Ledger>("now", [Booked { n }]).await.unwrap();
            assert!(subscription.now().await.unwrap().is_some(), "event {n} is committed");
        }
        assert!(subscription.now().await.unwrap().is_none());
    }
}

/// A subscription to a stream reports once that events were archived before it read them, and continues after them.
pub async fn o1_a_subscription_reports_a_gap(env: &Env) {
    let (here, there, shelf) = (here(env), there(env), Shelf::default());
    book(&here, "gap", 6).await;
    let what = || SubscriptionFilter::stream(&stream("gap"));
    let mut subscription = there.subscribe(what(), StartFrom::Beginning).await.unwrap();
    // It reads ahead. Events read before the removal are not lost.
    let first = subscription.next().await.unwrap();
    let mut later = there.subscribe(what(), StartFrom::After(first.position)).await.unwrap();
    let mut fresh = there.subscribe(what(), StartFrom::Beginning).await.unwrap();
    closing(&here, &stream("gap"), &shelf).keep_last::<Ledger>(2).await.unwrap();
    for (missing, subscription) in [(1, &mut later), (0, &mut fresh)] {
        let error = subscription.next().await.unwrap_err();
        assert_eq!(error.code().as_str(), "TL0811", "{error}");
        assert!(error.to_string().contains(&format!("{missing} to 3")), "{error}");
        let versions =
            [subscription.next().await.unwrap().version.0, subscription.next().await.unwrap().version.0];
        assert_eq!(versions, [4, 5]);
        assert!(subscription.now().await.unwrap().is_none());
    }
    let mut read = Vec::new();
    while let Some(event) = subscription.now().await.unwrap() {
        read.push(event.version.0);
    }
    assert_eq!(read, [1, 2, 3, 4, 5], "it had read them");
    book(&here, "gap", 1).await;
    closing(&here, &stream("gap"), &shelf).tombstone().await.unwrap();
    let error = later.now().await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0811", "{error}");
    assert!(later.now().await.unwrap().is_none());
}

/// A store that applies the first append, removes its events at once, and loses the reply.
#[derive(Debug)]
struct Truncating {
    store: SharedStore,
    stream: Key,
    armed: AtomicBool,
}

#[async_trait]
impl tidelock_core::store::layer::StoreLayer for Truncating {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        if !self.armed.swap(false, Ordering::SeqCst) {
            return self.store.apply(batch).await;
        }
        let id = batch.id();
        let receipt = self.store.apply(batch).await?;
        let head = receipt.appended.first().map_or(StreamVersion(0), |appended| appended.last_version.next());
        self.store.apply(Batch::new().truncate(&self.stream, head)).await?;
        let lost = StoreError::new(StoreErrorKind::Unreachable, "a case", "the reply is lost");
        Err(ApplyError::unknown(lost, id))
    }
}

/// An append or a command whose reply is lost is not applied twice, even if its events were archived before the retry.
pub async fn e1_nothing_is_doubled_after_a_truncation(env: &Env) {
    for command in [false, true] {
        let id = format!("twice-{command}");
        let stream = stream(&id);
        book(&here(env), &id, 2).await;
        let store = Truncating {
            store: Arc::clone(&env.store.0),
            stream: stream.clone(),
            armed: AtomicBool::new(false),
        };
        let store = Arc::new(store);
        let events = engine(&(store.clone() as SharedStore));
        events.load::<Ledger>(id.as_str()).await.unwrap();
        store.armed.store(true, Ordering::SeqCst);
        if command {
            let done = events.execute(id.as_str(), |_: &Ledger| Ok::<_, String>([Booked { n: 3 }])).await;
            assert!(done.is_err(), "the outcome is unknown, because the event is gone");
        } else {
            events.append::<Ledger>(id.as_str(), [Booked { n: 3 }]).await.unwrap();
        }
        let head = env.other.stream(&stream).await.unwrap().unwrap().head;
        assert_eq!(head, Some(StreamVersion(2)), "{id}: it was appended once");
    }
}

/// The timeout of a command includes its wait for the previous command.
pub async fn e1_the_wait_for_a_turn_counts(env: &Env) {
    let gate = Arc::new(Gate::default());
    let options = EventsOptions { limit: Duration::from_millis(100), ..EventsOptions::default() };
    let events = Events::with_options(Detour::over(Arc::clone(&gate), &env.store.0), options);
    book(&here(env), "turn", 1).await;
    let command = |_: &Ledger| Ok::<_, String>([Booked { n: 1 }]);
    gate.close();
    let first = {
        let events = events.clone();
        tokio::spawn(async move { events.execute("turn", command).await.is_ok() })
    };
    gate.arrived().await;
    let second = tokio::time::timeout(secs(60), events.execute("turn", command)).await;
    let Ok(Err(ExecuteError::Events(error))) = second else {
        panic!("the command has a time limit: {second:?}")
    };
    assert_eq!((error.code().as_str(), error.outcome()), ("TL0812", Outcome::NotApplied), "{error}");
    gate.open();
    assert!(first.await.unwrap());
}

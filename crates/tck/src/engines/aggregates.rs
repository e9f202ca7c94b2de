//! Aggregates (E1–E9 through `tidelock_core::events`): commands, snapshots, time travel, tags and subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use tidelock_core::events::{
    Aggregate, AsOf, EventMetadata, EventSchema, Events, EventsError, EventsOptions, ExecuteError, StartFrom,
    SubscriptionFilter, Tag, UnknownEvents, types_of,
};
use tidelock_core::id::EventType;

use crate::env::ONE_AND_TWO;
use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::until;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stock {
    left: u32,
    orders: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StockEvent {
    Received { count: u32 },
    Reserved { order: String, count: u32 },
    Counted,
}
use StockEvent::{Counted, Received, Reserved};

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            Received { count } => self.left += count,
            Reserved { order, count } => {
                self.left -= count;
                self.orders.push(order.clone());
            }
            Counted => {}
        }
    }
}

impl Stock {
    fn reserve(&self, order: &str, count: u32) -> Result<Vec<StockEvent>, String> {
        if self.left < count {
            return Err(format!("{} left", self.left));
        }
        Ok(vec![Reserved { order: order.to_owned(), count }])
    }

    /// A stock can only be created once.
    fn begin(&self, count: u32) -> Result<Vec<StockEvent>, String> {
        if *self == Self::default() { Ok(vec![Received { count }]) } else { Err("it is there".to_owned()) }
    }
}

fn events(conn: &Conn) -> Events {
    Events::new(Arc::clone(&conn.0))
}

async fn receive(events: &Events, id: &str, count: u32) {
    events.append::<Stock>(id, [Received { count }]).await.unwrap();
}

fn concurrency<A, E>(done: Result<A, ExecuteError<Stock, E>>) -> (Expect<StreamVersion>, StreamFound) {
    match done {
        Err(ExecuteError::Events(EventsError::Concurrency { expected, actual, .. })) => (expected, actual),
        Err(ExecuteError::Events(other)) => panic!("{other}"),
        _ => panic!("it should meet a newer version"),
    }
}

/// A stale pinned version is rejected with both versions, and the command is not decided again.
pub async fn e1_a_pinned_version_is_not_decided_again(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "e1", 5).await;
    let loaded = here.load::<Stock>("e1").await.unwrap();
    receive(&there, "e1", 1).await;
    let runs = AtomicU32::new(0);
    let pinned = here.execute_at("e1", loaded.version, |stock: &Stock| {
        runs.fetch_add(1, Ordering::SeqCst);
        stock.reserve("o", 1)
    });
    let met = concurrency(pinned.await);
    assert_eq!(met, (Expect::Exact(StreamVersion(0)), StreamFound::At(StreamVersion(1))));
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a version that is not the newest decides nothing");
    let new = here.execute_at("e1", None, |stock: &Stock| stock.begin(1)).await;
    assert_eq!(concurrency(new), (Expect::Absent, StreamFound::At(StreamVersion(1))));
    let newest = Some(StreamVersion(1));
    let done = here.execute_at("e1", newest, |stock: &Stock| stock.reserve("o", 6)).await.unwrap();
    assert_eq!((done.version, done.state.left), (Some(StreamVersion(2)), 0));
}

/// Commands that race on one stream all see each other: reservations never exceed the stock.
pub async fn e1_racing_commands_never_oversell(env: &Env) {
    for connections in ONE_AND_TWO {
        let id = format!("e1-race-{connections}");
        receive(&events(&env.store), &id, 20).await;
        let engines = [events(&env.store), events(&env.other)];
        let work = |i: usize, _: Conn| {
            let (events, id) = (engines[i % connections].clone(), id.clone());
            async move {
                events.execute(id.as_str(), |stock: &Stock| stock.reserve(&i.to_string(), 1)).await.is_ok()
            }
        };
        let won = env.race(connections, 32, work).await.into_iter().filter(|won| *won).count();
        let stock = events(&env.other).load::<Stock>(id.as_str()).await.unwrap();
        assert_eq!((won, stock.state.left, stock.state.orders.len()), (20, 0, 20));
        assert_eq!(stock.version, Some(StreamVersion(20)));
    }
}

/// A command whose answer is lost, and that cannot be retried, has an unknown outcome. The error must not claim that
/// nothing was written.
pub async fn e1_a_doubt_is_not_cleared_by_a_failure(env: &Env) {
    let wire = Wire::to(&env.store.0);
    let store: SharedStore = wire.clone();
    let events = Events::new(store);
    receive(&events, "e1-doubt", 5).await;
    wire.cut_behind_the_next();
    let done = events.execute("e1-doubt", |stock: &Stock| stock.reserve("o", 1)).await;
    let Err(ExecuteError::Events(error)) = done else { panic!("the wire is cut") };
    assert!(matches!(error.outcome(), Outcome::Unknown(_)), "{error}");
    wire.mend();
    assert_eq!(events.load::<Stock>("e1-doubt").await.unwrap().state.left, 4, "it was written");
}

/// Of racing creations of one new stream, exactly one wins. The others receive the state that they lost to.
pub async fn e2_one_creation_wins(env: &Env) {
    for connections in ONE_AND_TWO {
        for round in 0..5 {
            let id = format!("e2-{connections}-{round}");
            let engines = [events(&env.store), events(&env.other)];
            let work = |i: usize, _: Conn| {
                let (events, id) = (engines[i % connections].clone(), id.clone());
                async move {
                    match events.execute(id.as_str(), |stock: &Stock| stock.begin(i as u32 + 1)).await {
                        Ok(_) => true,
                        Err(ExecuteError::Refused { version, state, .. }) => {
                            assert_eq!(version, Some(StreamVersion(0)));
                            assert!(state.left > 0);
                            false
                        }
                        Err(ExecuteError::Events(error)) => panic!("{error}"),
                    }
                }
            };
            let won = env.race(connections, 8, work).await.into_iter().filter(|won| *won).count();
            assert_eq!(won, 1);
        }
    }
}

/// A cached belief that a stream is new does not create it a second time.
pub async fn e2_a_stale_memory_creates_nothing(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    assert_eq!(here.load::<Stock>("e2-stale").await.unwrap().version, None);
    there.execute("e2-stale", |stock: &Stock| stock.begin(5)).await.unwrap();
    let second = here.execute("e2-stale", |stock: &Stock| stock.begin(7)).await;
    assert_eq!(second.unwrap_err().to_string(), "it is there");
    assert_eq!(there.load::<Stock>("e2-stale").await.unwrap().state.left, 5);
}

/// A decision is a batch that the caller sends later. It is rejected if the stream has changed since then, even if the
/// decision was empty.
pub async fn e3_a_late_decision_is_rejected(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "e3-late", 1).await;
    let reserve = |stock: &Stock| stock.reserve("late", 1);
    let batch = here.decide("e3-late", reserve).await.unwrap();
    let nothing = here.decide("e3-late", |_: &Stock| Ok::<_, String>([])).await.unwrap();
    there.execute("e3-late", |stock: &Stock| stock.reserve("early", 1)).await.unwrap();
    for late in [batch, nothing] {
        let error = env.store.apply(late).await.unwrap_err();
        assert!(matches!(error.refusal(), Some(Refusal::Stream { .. })), "{error}");
    }
    assert_eq!(here.decide("e3-late", reserve).await.unwrap_err().to_string(), "0 left");
    receive(&there, "e3-late", 1).await;
    env.store.done(here.decide("e3-late", reserve).await.unwrap()).await;
    assert_eq!(there.load::<Stock>("e3-late").await.unwrap().state.orders, ["early", "late"]);
}

/// A rejection or an empty decision always refers to the newest state, whatever the cache contains.
pub async fn e3_a_stale_cache_decides_nothing(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "e3", 1).await;
    here.execute("e3", |stock: &Stock| stock.reserve("first", 1)).await.unwrap();
    receive(&there, "e3", 1).await;
    let done = here.execute("e3", |stock: &Stock| stock.reserve("second", 1)).await.unwrap();
    assert_eq!((done.state.left, done.version), (0, Some(StreamVersion(3))));
    receive(&there, "e3", 7).await;
    let restock = |stock: &Stock| Ok::<_, String>(if stock.left == 7 { vec![Counted] } else { vec![] });
    let done = here.execute("e3", restock).await.unwrap();
    assert_eq!(done.appended, 1, "the empty decision was made on an older state");
}

/// Several streams and a document change in one commit or not at all. Streams that were only read must be unchanged.
pub async fn e4_streams_change_together_or_not_at_all(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "a", 3).await;
    receive(&here, "b", 0).await;
    let runs = AtomicU32::new(0);
    let (runs, between) = (&runs, &there);
    let moved = here.together(|unit| async move {
        let (a, b) = (unit.load::<Stock>("a").await?, unit.load::<Stock>("b").await?);
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            receive(between, "b", 1).await;
        }
        unit.emit::<Stock>("a", a.reserve("b", 2).unwrap())?;
        unit.emit::<Stock>("b", [Received { count: 2 }])?;
        unit.also(Batch::new().put(&key("e4-done"), Expect::Any, number(1)));
        assert_eq!(unit.load::<Stock>("a").await?.left, 1, "a unit sees what it emitted");
        Ok::<_, EventsError>(b.left)
    });
    assert_eq!(
        (moved.await.unwrap(), runs.load(Ordering::SeqCst)),
        (1, 2),
        "it decided again on the newer state"
    );
    let left = async |id: &str| there.load::<Stock>(id).await.unwrap().state.left;
    assert_eq!((left("a").await, left("b").await), (1, 3));
    assert!(env.other.value(&key("e4-done")).await.is_some());
    let few = Events::with_options(
        Arc::clone(&env.store.0),
        EventsOptions { attempts: 2, ..EventsOptions::default() },
    );
    let refused = few.together(|unit| async move {
        unit.emit::<Stock>("a", [Received { count: 9 }])?;
        unit.also(Batch::new().put(&key("e4-done"), Expect::Absent, number(2)));
        Ok::<_, EventsError>(())
    });
    assert_eq!(refused.await.unwrap_err().outcome(), Outcome::NotApplied);
    assert_eq!(left("a").await, 1, "nothing of it was appended");
}

/// A stream that a unit only read must be unchanged at the commit, whether the unit succeeds or fails.
pub async fn e4_streams_that_were_only_read_are_guarded(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "read", 1).await;
    for no in [false, true] {
        let runs = AtomicU32::new(0);
        let (runs, between) = (&runs, &there);
        let decided = here.together(|unit| async move {
            let seen = unit.load::<Stock>("read").await?.left;
            if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                receive(between, "read", 1).await;
            }
            if no {
                return Err(EventsError::Name(InvalidInput::Payload { reason: seen.to_string() }));
            }
            unit.emit::<Stock>("written", [Received { count: seen }])?;
            Ok(seen)
        });
        let seen = decided.await.map_err(|error| error.to_string());
        let newest = if no { Err("the payload does not fit: 3".to_owned()) } else { Ok(2) };
        assert_eq!((seen, runs.load(Ordering::SeqCst)), (newest, 2));
    }
    assert_eq!(there.load::<Stock>("written").await.unwrap().state.left, 2);
}

/// Many transfers between accounts run at once. The sum is constant, and no account becomes negative.
pub async fn e4_racing_transfers_keep_the_sum(env: &Env) {
    for id in ["x", "y", "z"] {
        receive(&events(&env.store), id, 10).await;
    }
    let engines = [events(&env.store), events(&env.other)];
    let work = |i: usize, _: Conn| {
        let events = engines[i % 2].clone();
        async move {
            let (from, to) = (["x", "y", "z"][i % 3], ["y", "z", "x"][i % 3]);
            let moved = events.together(|unit| async move {
                let stock = unit.load::<Stock>(from).await?;
                unit.load::<Stock>(to).await?;
                let Ok(taken) = stock.reserve(to, 3) else { return Ok(false) };
                unit.emit::<Stock>(from, taken)?;
                unit.emit::<Stock>(to, [Received { count: 3 }])?;
                Ok::<_, EventsError>(true)
            });
            moved.await.unwrap()
        }
    };
    env.race(2, 24, work).await;
    let mut sum = 0;
    for id in ["x", "y", "z"] {
        sum += events(&env.other).load::<Stock>(id).await.unwrap().state.left;
    }
    assert_eq!(sum, 30);
}

/// Waits for the snapshot, which is written in the background.
async fn snapshot_at(env: &Env, id: &str, version: u64) {
    let k = Stock::stream(id).unwrap().beside("snapshot").unwrap();
    until(&format!("a snapshot of {id} at version {version}"), async || {
        env.other.value(&k).await.is_some_and(|value| value["states"][0]["version"] == json!(version))
    })
    .await;
}

/// For every version, the state from a snapshot and the tail equals the fold of all events. A snapshot of another fold,
/// or an undecodable one, is not used.
pub async fn e5_a_snapshot_and_the_tail_are_the_fold(env: &Env) {
    let writer = events(&env.store).snapshots::<Stock>(4);
    let plain = Events::with_options(
        Arc::clone(&env.other.0),
        EventsOptions { cached: 0, ..EventsOptions::default() },
    );
    let snapshotting = plain.clone().snapshots::<Stock>(1_000);
    for i in 0..14_u32 {
        let receive = |_: &Stock| Ok::<_, String>([Received { count: i }]);
        writer.execute("e5", receive).await.unwrap();
        if i % 4 == 3 {
            snapshot_at(env, "e5", u64::from(i)).await;
        }
        let (all, from_snapshot) = (plain.load::<Stock>("e5").await, snapshotting.load::<Stock>("e5").await);
        let (all, from_snapshot) = (all.unwrap(), from_snapshot.unwrap());
        assert_eq!((&all.state, all.version), (&from_snapshot.state, from_snapshot.version));
        assert_eq!(all.state.left, (0..=i).sum::<u32>());
    }
    let k = Stock::stream("e5").unwrap().beside("snapshot").unwrap();
    let taken = env.store.value(&k).await.unwrap();
    let mut changed = taken["states"][0]["state"].clone();
    changed["left"] = json!(1_000);
    // A snapshot of another fold, an undecodable one and one that was changed by hand are not used.
    for change in [("fold", json!(2)), ("state", json!("?")), ("state", changed)] {
        let mut other = taken.clone();
        other["states"][0][change.0] = change.1;
        env.store.done(Batch::new().put(&k, Expect::Any, payload(other))).await;
        assert_eq!(snapshotting.load::<Stock>("e5").await.unwrap().state.left, (0..14).sum::<u32>());
    }
}

/// The state as of a version, a position or a time is correct, with and without snapshots.
pub async fn e6_the_state_as_it_was(env: &Env) {
    let writer = events(&env.store).snapshots::<Stock>(3);
    let mut moments = Vec::new();
    for i in 1..=7_u32 {
        env.pass(secs(10));
        let done = writer.execute("e6", |_: &Stock| Ok::<_, String>([Received { count: i }])).await.unwrap();
        moments.push((done.version.unwrap(), done.position.unwrap(), env.now(), done.state.left));
        receive(&writer, "e6-other", 1).await;
    }
    snapshot_at(env, "e6", 5).await;
    for engine in [events(&env.other), events(&env.other).snapshots::<Stock>(3)] {
        for (version, position, at, left) in &moments {
            for moment in [AsOf::Version(*version), AsOf::Position(*position), AsOf::Time(*at)] {
                let was = engine.as_of::<Stock>("e6", moment).await.unwrap();
                assert_eq!((was.state.left, was.version), (*left, Some(*version)), "{moment:?}");
            }
        }
        let before = engine.as_of::<Stock>("e6", AsOf::Time(Timestamp::EPOCH)).await.unwrap();
        assert_eq!((before.state.left, before.version), (0, None));
        let later = engine.as_of::<Stock>("e6", AsOf::Version(StreamVersion(99))).await.unwrap();
        assert_eq!(later.state.left, 28);
    }
}

/// A closed stream rejects commands and appends alike, with its last version.
pub async fn e7_a_closed_stream_refuses_commands(env: &Env) {
    let engine = events(&env.store);
    receive(&engine, "e7", 5).await;
    engine.load::<Stock>("e7").await.unwrap();
    let stream = Stock::stream("e7").unwrap();
    env.other.done(Batch::new().close(&stream, Expect::Exact(StreamVersion(0)))).await;
    let done = engine.execute("e7", |stock: &Stock| stock.reserve("o", 1)).await;
    let Err(ExecuteError::Events(EventsError::Closed { head, .. })) = done else { panic!("it is closed") };
    assert_eq!(head, Some(StreamVersion(0)));
    let error = engine.append::<Stock>("e7", [Counted]).await.unwrap_err();
    assert!(matches!(error, EventsError::Closed { .. }), "{error}");
}

/// The current stock type. `Received` was once called `Bought` and had no unit; `Counted` is unknown now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Today(Vec<String>);

#[derive(Clone, Debug, Serialize, Deserialize)]
enum TodayEvent {
    Received { count: u32, unit: String },
}

fn today_schema() -> EventSchema {
    EventSchema::new().renamed("Bought", "Received").then("Received", |mut first| {
        first["unit"] = json!("kg");
        Ok(first)
    })
}

macro_rules! today {
    ($name:ident, $unknown:expr) => {
        #[derive(Clone, Default)]
        struct $name(Today);
        impl Aggregate for $name {
            const KIND: &'static str = "stock";
            type Event = TodayEvent;
            fn apply(&mut self, event: &TodayEvent) {
                let TodayEvent::Received { count, unit } = event;
                self.0.0.push(format!("{count} {unit}"));
            }
            fn schema() -> EventSchema {
                today_schema().unknown($unknown)
            }
        }
    };
}
today!(Strict, UnknownEvents::Refuse);
today!(Lenient, UnknownEvents::Skip);

/// Old events fold through new code. An unknown type is an error or is skipped, as the schema says. A payload that does
/// not fit is always an error.
pub async fn e8_old_events_fold_through_new_code(env: &Env) {
    let engine = events(&env.store);
    let stream = Stock::stream("e8").unwrap();
    let old = |name: &str, value| NewEvent::new(EventType::new(name).unwrap(), payload(value));
    let bought = [old("Bought", json!({"count": 1})), old("Received", json!({"count": 2}))];
    env.other.done(Batch::new().append(&stream, Expect::Absent, bought)).await;
    let new = TodayEvent::Received { count: 3, unit: "t".to_owned() };
    engine.append::<Strict>("e8", [new.clone()]).await.unwrap();
    let today = engine.load::<Strict>("e8").await.unwrap();
    assert_eq!(today.state.0.0, ["1 kg", "2 kg", "3 t"], "a new event is not taken for an old one");
    env.other.done(Batch::new().append(&stream, Expect::Any, [old("Counted", json!(null))])).await;
    let Err(EventsError::Undecodable { version, event_type, .. }) = engine.load::<Strict>("e8").await else {
        panic!("the type is unknown")
    };
    assert_eq!((version, event_type.as_str()), (StreamVersion(3), "Counted"));
    assert_eq!(engine.load::<Lenient>("e8").await.unwrap().state.0.0.len(), 3);
    env.other.done(Batch::new().append(&stream, Expect::Any, [old("Received", json!({"count": "?"}))])).await;
    let Err(error) = engine.load::<Lenient>("e8").await else { panic!("the payload does not fit") };
    assert!(matches!(error, EventsError::Undecodable { version: StreamVersion(4), .. }), "{error}");
    assert_eq!(types_of::<StockEvent>(), ["Received", "Reserved", "Counted"]);
}

/// A rule that fails returns the state that it saw, and nothing is written.
pub async fn e9_a_rule_that_fails_carries_the_state(env: &Env) {
    let engine = events(&env.store);
    receive(&engine, "e9", 2).await;
    let refused = engine.execute("e9", |stock: &Stock| stock.reserve("o", 3)).await.unwrap_err();
    assert_eq!(refused.to_string(), "2 left");
    let ExecuteError::Refused { state, version, .. } = refused else { panic!("a rule said no") };
    assert_eq!((state.left, version), (2, Some(StreamVersion(0))));
    let head = env.other.stream(&Stock::stream("e9").unwrap()).await.unwrap().unwrap().head;
    assert_eq!(head, Some(StreamVersion(0)));
}

/// A rule over a tag: a user name is taken once, however many accounts are opened at once, over however many streams.
pub async fn e2_a_tag_is_taken_once(env: &Env) {
    let tag = Tag::new("name:alice");
    let engines = [events(&env.store), events(&env.other)];
    let work = |i: usize, _: Conn| {
        let (events, tag) = (engines[i % 2].clone(), tag.clone());
        async move {
            let tag = &tag;
            let opened = events.together(|unit| async move {
                let taken = unit.tagged(tag).await?;
                if taken.iter().any(|event| event.event_type.as_str() == "Received") {
                    return Ok(false);
                }
                unit.emit_tagged::<Stock>(
                    format!("tag-{i}").as_str(),
                    std::slice::from_ref(tag),
                    [Received { count: 1 }],
                )?;
                Ok::<_, EventsError>(true)
            });
            opened.await.unwrap()
        }
    };
    let won = env.race(2, 12, work).await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
    let found = engines[0]
        .together(|unit| {
            let tag = tag.clone();
            async move { unit.tagged(&tag).await }
        })
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].decode::<Stock>().unwrap(), Received { count: 1 });
    let original = engines[1].load::<Stock>(found[0].stream.args()[0].clone()).await.unwrap();
    assert_eq!(original.state.left, 1);
}

/// The correlation, the cause, the trace and notes are stored with events, and are passed on to the next ones.
pub async fn e1_the_context_is_handed_on(env: &Env) {
    let engine = events(&env.store);
    let context = EventMetadata::correlated("c-1").trace("00-ab-cd-01").note("by", "ann");
    let within = engine.within(context.clone());
    within.execute("context", |stock: &Stock| stock.begin(1)).await.unwrap();
    let stream = Stock::stream("context").unwrap();
    let first = env.other.read_stream(StreamQuery::forward(&stream, 9)).await.unwrap().events.remove(0);
    assert_eq!(EventMetadata::of(&first), context);
    let next = engine.within(EventMetadata::caused_by(&first));
    next.append::<Stock>("context", [Counted]).await.unwrap();
    let second = env.other.read_stream(StreamQuery::forward(&stream, 9)).await.unwrap().events.remove(1);
    let handed_on = EventMetadata::of(&second);
    assert_eq!((handed_on.correlation(), handed_on.causation()), (Some("c-1"), Some(first.id)));
    assert_eq!((handed_on.traceparent(), handed_on.notes().len()), (Some("00-ab-cd-01"), 0));
}

/// A subscription delivers past events and then new ones: every event once and in order, also after a restart from a
/// position. It covers one stream, one type, or all events except the internal ones of Tidelock.
pub async fn o1_a_subscription_misses_nothing(env: &Env) {
    let (here, there) = (events(&env.store), events(&env.other));
    receive(&here, "sub", 1).await;
    here.append::<Stock>("other", [Counted]).await.unwrap();
    let internal = NewEvent::new(EventType::new("tidelock.test").unwrap(), payload(json!(1)));
    env.store.done(Batch::new().append(&key("internal"), Expect::Any, [internal])).await;
    let mut all = there.subscribe(SubscriptionFilter::all(), StartFrom::Beginning).await.unwrap();
    let counted = SubscriptionFilter::all().types([EventType::new("Counted").unwrap()]);
    let mut typed = there.subscribe(counted, StartFrom::Beginning).await.unwrap();
    let stream = SubscriptionFilter::stream(&Stock::stream("sub").unwrap());
    let mut one = there.subscribe(stream.clone(), StartFrom::Beginning).await.unwrap();
    let mut later = there.subscribe(SubscriptionFilter::all(), StartFrom::Now).await.unwrap();
    let writing = {
        let here = here.clone();
        tokio::spawn(async move {
            for i in 0..50 {
                here.append::<Stock>(if i % 2 == 0 { "sub" } else { "other" }, [Received { count: i }])
                    .await
                    .unwrap();
            }
        })
    };
    let mut seen = Vec::new();
    while seen.len() < 52 {
        let event = all.next().await.unwrap();
        assert!(seen.last().is_none_or(|last: &Event| last.position < event.position));
        assert!(!event.event_type.as_str().starts_with("tidelock."));
        seen.push(event);
        if seen.len() == 30 {
            let from = StartFrom::After(all.position().unwrap());
            all = here.subscribe(SubscriptionFilter::all(), from).await.unwrap();
        }
    }
    writing.await.unwrap();
    assert_eq!(all.now().await.unwrap(), None);
    assert_eq!(typed.now().await.unwrap().unwrap().stream, Stock::stream("other").unwrap());
    assert_eq!(typed.now().await.unwrap(), None);
    let mut versions = Vec::new();
    while let Some(event) = one.now().await.unwrap() {
        versions.push(event.version.0);
    }
    assert_eq!(versions, (0..26).collect::<Vec<_>>());
    let again = there
        .subscribe(stream, StartFrom::After(one.position().unwrap()))
        .await
        .unwrap()
        .now()
        .await
        .unwrap();
    assert_eq!(again, None);
    let mut count = 0;
    while later.now().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 50, "from now on");
}

//! Operator actions while programs run (R13). None loses an event or lets one be handled twice, and large ones take
//! several commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_core::failure::Failure;
use tidelock_core::projections::{Projection, Projections, ProjectionsError, ReadModel};
use tidelock_core::reactions::{
    Effects, Operator, OperatorVerb, Quiescence, Reaction, ReactionFilter, ReactionsError, WhenExhausted,
};

use crate::prelude::*;
use crate::reacting::*;

async fn append(conn: &Conn, stream: &Key, n: i64) {
    conn.done(Batch::new().append(stream, Expect::Any, [event("Happened", n)])).await;
}

fn operator(env: &Env) -> Operator {
    Operator::new(Arc::clone(&env.other.0))
}

/// Returns the row of a reaction for a key.
fn row_of(reaction: &str, stream: &Key) -> Key {
    let mut args = vec![Arg::from(reaction), Arg::Str(stream.kind())];
    args.extend(stream.args());
    Key::of("tidelock.reaction", &args).unwrap()
}

/// Returns a reaction that fails on the number 1 until it is mended.
fn failing_on_one(name: &'static str, mended: &Arc<AtomicBool>) -> Reaction {
    let mended = Arc::clone(mended);
    reaction(name).streams(KeyPrefix::kind(name)).each(move |turn, event| {
        let mended = Arc::clone(&mended);
        async move {
            if n(&event) == 1 && !mended.load(Ordering::SeqCst) {
                return Err(Failure::permanent("1 is bad"));
            }
            Ok(Effects::from(note(turn.reaction(), turn.key(), &event)))
        }
    })
}

/// A reset of chosen keys also handles their parked events: an inbox holds only events that were not handled.
pub async fn r13_a_reset_keeps_parked_events_of_chosen_keys(env: &Env) {
    let (name, mended) = ("r13-reset", Arc::new(AtomicBool::new(false)));
    let by = Key::new("r13-by", [0]).unwrap();
    let chosen = by.clone();
    let parks = failing_on_one(name, &mended).to(move |_| Some(chosen.clone()));
    let running = start(&env.store, parks.when_exhausted(WhenExhausted::Park)).await;
    for n in 0..3 {
        append(&env.store, &Key::new(name, ["a"]).unwrap(), n).await;
    }
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 });
    mended.store(true, Ordering::SeqCst);
    assert_eq!(operator(env).reset(&ReactionFilter::of(name)).await.unwrap(), 1);
    assert_eq!(quiesce_in_time(env, &running).await, Quiescence::default());
    assert_eq!(noted(&env.store, name, &by).await, [0, 2, 1]);
    running.shutdown().await;
}

/// Pending requests of an operator, or of the key itself, do not survive a reset.
pub async fn r13_wishes_do_not_survive_a_reset(env: &Env) {
    let (name, mended) = ("r13-wish", Arc::new(AtomicBool::new(false)));
    let stream = Key::new(name, ["a"]).unwrap();
    append(&env.store, &stream, 1).await;
    let running = start(&env.store, failing_on_one(name, &mended)).await;
    assert_eq!(running.quiesce().await.unwrap().blocked, 1);
    running.shutdown().await;
    // No process runs the reaction, so the request is still pending at the reset. The row is at the start both times.
    operator(env).reset(&ReactionFilter::of(name)).await.unwrap();
    env.store
        .done(Batch::new().operate(Selection::Keys(vec![row_of(name, &stream)]), Operation::Reset))
        .await;
    let blocked = start(&env.store, failing_on_one(name, &mended)).await;
    assert_eq!(blocked.quiesce().await.unwrap().blocked, 1);
    blocked.shutdown().await;
    assert_eq!(operator(env).park(&ReactionFilter::of(name)).await.unwrap(), 1);
    assert_eq!(operator(env).reset(&ReactionFilter::of(name)).await.unwrap(), 1);
    mended.store(true, Ordering::SeqCst);
    let running = start(&env.store, failing_on_one(name, &mended)).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    assert_eq!(noted(&env.store, name, &stream).await, [1]);
    running.shutdown().await;
}

/// A deleted reaction stays deleted beside a program that still runs it, although its router was not leased.
pub async fn r13_an_ended_reaction_stays_ended_beside_its_program(env: &Env) {
    let name = "r13-end";
    let stream = Key::new(name, ["a"]).unwrap();
    for n in 0..10 {
        append(&env.store, &stream, n).await;
    }
    let running = start(&env.store, noting(name).streams(KeyPrefix::kind(name))).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    // The router loses its row and cannot claim it again, like a blocked one.
    let router = Key::new("tidelock.router", [name]).unwrap();
    env.pass(LEASE);
    env.pass(LEASE);
    let grant = loop {
        if let Ok(grant) = env.other.take("r13", &router).await {
            break grant;
        }
        env.pass(LEASE);
    };
    env.other.done(Batch::new().block(&grant.lease(), "r13")).await;
    assert_eq!(operator(env).end_reaction(name).await.unwrap(), 1);
    let other = start(&env.other, noting("r13-beside").streams(KeyPrefix::kind(name))).await;
    append(&env.store, &stream, 10).await;
    other.quiesce().await.unwrap();
    // Long enough for the program to poll many times.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(noted(&env.store, name, &stream).await, (0..10).collect::<Vec<_>>());
    let names: Vec<_> =
        operator(env).reactions().await.unwrap().into_iter().map(|reaction| reaction.name).collect();
    assert_eq!(names, ["r13-beside"]);
    running.shutdown().await;
    other.shutdown().await;
}

fn counting(name: &str, version: u32, mended: &Arc<AtomicBool>) -> Projection {
    let (mended, kind) = (Arc::clone(mended), name.to_owned());
    Projection::new(name, version, move |fact, rows| {
        if version == 2 && !mended.load(Ordering::SeqCst) {
            return Err("not yet".into());
        }
        rows.merge([fact.stream.to_string()], &json!(0), [Delta::inc("", 1)])?;
        Ok(())
    })
    .streams(KeyPrefix::kind(&kind))
}

fn projections(conn: &Conn) -> Projections {
    Projections::new(Arc::clone(&conn.0)).poll_interval(Duration::from_millis(5))
}

/// A version that never caught up is removed when a later one goes live, and delays nothing.
pub async fn r13_a_version_that_was_never_read_is_deleted(env: &Env) {
    let (name, bad) = ("r13-never", Arc::new(AtomicBool::new(false)));
    let stream = Key::new(name, ["a"]).unwrap();
    append(&env.store, &stream, 0).await;
    let first = projections(&env.store).with(counting(name, 1, &bad)).start().await.unwrap();
    first.quiesce().await.unwrap();
    let second = projections(&env.store).with(counting(name, 2, &bad)).start().await.unwrap();
    until("the second is stuck", async || {
        let blocked = ReactionFilter::of(format!("projection:{name}/v2")).blocked_only();
        operator(env).keys(&blocked, Page::first(9)).await.is_ok_and(|page| !page.rows.is_empty())
    })
    .await;
    second.shutdown().await;
    let third = projections(&env.store).with(counting(name, 3, &bad)).start().await.unwrap();
    let model = ReadModel::new(Arc::clone(&env.other.0), name);
    until("the third is read", async || model.version().await.unwrap() == 3).await;
    until("only the third is left", async || {
        let left: Vec<_> =
            operator(env).reactions().await.unwrap().into_iter().map(|view| view.name).collect();
        left == [format!("projection:{name}/v3")]
    })
    .await;
    let pending = operator(env).pending(&stream, StreamVersion(1)).await.unwrap();
    assert_eq!(pending, []);
    first.shutdown().await;
    third.shutdown().await;
}

/// A deleted version is not restored by a program that was suspended during the deletion.
pub async fn r13_a_deleted_version_does_not_come_back(env: &Env) {
    let (name, mended) = ("r13-back", Arc::new(AtomicBool::new(true)));
    let stream = Key::new(name, ["a"]).unwrap();
    append(&env.store, &stream, 0).await;
    let old = projections(&env.store).with(counting(name, 1, &mended)).start().await.unwrap();
    old.quiesce().await.unwrap();
    // The program is suspended from here on: it does nothing, and its leases expire.
    let asleep = crate::partition::Wire::to(&env.store.0);
    asleep.cut();
    let shared: SharedStore = asleep.clone();
    old.shutdown().await;
    let sleeper =
        Projections::new(shared).poll_interval(Duration::from_millis(5)).with(counting(name, 1, &mended));
    let sleeper = sleeper.start().await.unwrap();
    let new = projections(&env.other).with(counting(name, 2, &mended)).start().await.unwrap();
    let model = ReadModel::new(Arc::clone(&env.other.0), name);
    until("the second is read", async || model.version().await.unwrap() == 2).await;
    let rows = KeyPrefix::kind(&format!("{name}/v1"));
    until("the first is gone", async || {
        env.pass(secs(1));
        let gone = env.store.documents(&rows, Page::first(1)).await.unwrap().rows.is_empty();
        gone && operator(env).reactions().await.unwrap().len() == 1
    })
    .await;
    asleep.mend();
    append(&env.store, &stream, 1).await;
    new.quiesce().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(env.store.documents(&rows, Page::first(1)).await.unwrap().rows, []);
    assert_eq!(operator(env).reactions().await.unwrap().len(), 1);
    sleeper.shutdown().await;
    new.shutdown().await;
}

/// Waiting for a rebuild returns an error if the new version cannot go live because it is blocked.
pub async fn r13_a_blocked_rebuild_is_reported(env: &Env) {
    let (name, bad) = ("r13-behind", Arc::new(AtomicBool::new(false)));
    append(&env.store, &Key::new(name, ["a"]).unwrap(), 0).await;
    let first = projections(&env.store).with(counting(name, 1, &bad)).start().await.unwrap();
    first.quiesce().await.unwrap();
    let second = projections(&env.other).with(counting(name, 2, &bad)).start().await.unwrap();
    let settled = second.quiesce().await;
    assert!(matches!(settled, Err(ProjectionsError::Behind { version: 2, live: 1, .. })), "{settled:?}");
    first.shutdown().await;
    second.shutdown().await;
}

/// A reset of a whole reaction leaves nothing in its inboxes.
pub async fn r13_a_reset_reaction_leaves_no_inbox(env: &Env) {
    let (name, mended) = ("r13-inbox", Arc::new(AtomicBool::new(false)));
    let blocks = failing_on_one(name, &mended).to(|event| Some(event.stream.beside("r13-by").unwrap()));
    for n in 0..4 {
        append(&env.store, &Key::new(name, ["a"]).unwrap(), n).await;
    }
    let running = start(&env.store, blocks).await;
    assert_eq!(running.quiesce().await.unwrap().blocked, 1);
    mended.store(true, Ordering::SeqCst);
    assert_eq!(operator(env).reset_reaction(name).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    let inboxes = env.store.streams(&KeyPrefix::kind("tidelock.inbox"), Page::first(9)).await.unwrap().rows;
    assert!(inboxes.iter().all(|inbox| inbox.first.is_none()), "{inboxes:?}");
    running.shutdown().await;
}

/// Thousands of parked events are replayed and dropped, in several commits.
pub async fn r13_many_parked_events_are_changed_in_steps(env: &Env) {
    const MANY: u64 = 12_000;
    let (name, mended) = ("r13-many", Arc::new(AtomicBool::new(false)));
    let stream = Key::new(name, ["a"]).unwrap();
    append(&env.store, &stream, 1).await;
    let parks = failing_on_one(name, &mended).when_exhausted(WhenExhausted::Park);
    let running = start(&env.store, parks).await;
    assert_eq!(running.quiesce().await.unwrap().parked, 1);
    running.shutdown().await;
    let all = KeyPrefix::kind("tidelock.parked");
    let first = env.store.documents(&all, Page::first(1)).await.unwrap().rows.remove(0);
    let copies: Vec<u64> = (1..MANY).collect();
    for some in copies.chunks(4_000) {
        let batch = some.iter().fold(Batch::new(), |batch, n| {
            let mut args = first.key.args();
            let last = args.pop();
            let Some(Arg::Int(position)) = last else { panic!("a parked event has a position: {last:?}") };
            args.push(Arg::Int(position + *n as i64));
            batch.put(&Key::of("tidelock.parked", &args).unwrap(), Expect::Absent, first.value.clone())
        });
        env.store.done(batch).await;
    }
    assert_eq!(operator(env).replay_parked(&ReactionFilter::of(name)).await.unwrap(), MANY);
    let mut plan = operator(env).plan(OperatorVerb::DropParked, &ReactionFilter::of(name)).await.unwrap();
    let (steps, mut dropped, mut made) = (plan.steps_left(), 0, 0);
    assert!(steps > 2, "{steps} steps");
    while let Some(more) = operator(env).apply_step(&mut plan).await.unwrap() {
        (dropped, made) = (dropped + more, made + 1);
        assert_eq!(plan.steps_left(), steps - made, "what is done is not done again");
    }
    assert_eq!(dropped, MANY);
    assert_eq!(env.store.documents(&all, Page::first(1)).await.unwrap().rows, []);
    let unknown = operator(env).drop_parked(&ReactionFilter::of("r13-none")).await;
    assert!(matches!(unknown, Err(ReactionsError::Unknown { .. })));
}

/// More keys than one commit may change are reset, individually and as a whole.
pub async fn r13_many_keys_are_reset_in_steps(env: &Env) {
    const MANY: u64 = 100_500;
    let name = "r13-keys";
    start(&env.store, noting(name)).await.shutdown().await;
    let numbers: Vec<u64> = (0..MANY).collect();
    for some in numbers.chunks(10_000) {
        let rows = some.iter().map(|n| {
            let row = row_of(name, &Key::new(name, [*n as i64]).unwrap());
            NewWork { position: Some(Position(9)), ..NewWork::standing(row, queue_name("reaction.r13-keys")) }
        });
        env.store.done(rows.fold(Batch::new(), Batch::enqueue)).await;
    }
    assert_eq!(operator(env).reset(&ReactionFilter::of(name)).await.unwrap(), MANY);
    let row = env.store.row(&row_of(name, &Key::new(name, [100_499]).unwrap())).await;
    assert_eq!(row.position, Some(Position(0)));
    assert_eq!(operator(env).reset_reaction(name).await.unwrap(), MANY);
    let left = WorkFilter { queue: Some(queue_name("reaction.r13-keys")), ..WorkFilter::default() };
    assert_eq!(env.store.count(&left).await, 0);
}

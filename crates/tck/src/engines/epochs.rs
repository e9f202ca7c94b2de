//! Cut database histories (D2 and D3): a restore loses everything after a copy, while connections are open.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock_core::events::{Aggregate, Events, EventsError, StartFrom, SubscriptionFilter};
use tidelock_core::reactions::Quiescence;
use tidelock_core::state::{State, StateRegistry};

use crate::prelude::*;
use crate::reacting::{noted, noting, start};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally(i64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TallyEvent {
    Added { count: i64 },
}

impl Aggregate for Tally {
    const KIND: &'static str = "tally";
    type Event = TallyEvent;

    fn apply(&mut self, TallyEvent::Added { count }: &TallyEvent) {
        self.0 += count;
    }
}

async fn add(events: &Events, count: i64) -> Tally {
    let added = events.execute("d2", move |_: &Tally| Ok::<_, String>([TallyEvent::Added { count }]));
    (*added.await.unwrap().state).clone()
}

async fn append(conn: &Conn, stream: &Key, n: i64) -> Position {
    let receipt = conn.done(Batch::new().append(stream, Expect::Any, [event("Happened", n)])).await;
    receipt.appended[0].last_position
}

async fn after(conn: &Conn, position: Position) -> Result<Vec<Event>, StoreError> {
    conn.read_log(LogQuery::after(position, 1_000)).await.map(|page| page.events)
}

/// An idle process drops its cached rows: its merge sees the value of the new history, not the lost one. Documents
/// only.
pub async fn d2_a_merge_sees_the_current_value_after_a_cut(env: &Env) {
    let k = key("d2-merge");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
    if !env.backup().await {
        return;
    }
    env.store.done(Batch::new().merge(&k, [Delta::inc("/n", 10)])).await;
    env.restore().await;
    env.other.done(Batch::new().merge(&k, [Delta::inc("/n", 5)])).await;
    env.store.done(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
    assert_eq!(env.other.value(&k).await, Some(json!({ "n": 6 })), "the lost 10 do not come back");
}

/// A holder from the lost history is fenced, and the holder from the new one is not.
pub async fn d2_a_fence_of_the_lost_history_is_stale(env: &Env) {
    env.store.done(enqueue(job("d2-fence"))).await;
    if !env.backup().await {
        return;
    }
    let lost = env.store.take_job("a").await;
    env.restore().await;
    let good = env.other.take_job("b").await;
    assert!(good.fence > lost.fence, "{} is not above {}", good.fence, lost.fence);
    fenced(env.store.refused(Batch::new().ack(&lost.lease())).await);
    env.other.done(Batch::new().ack(&good.lease())).await;
}

/// A fence is valid only together with its owner, because holders in two histories may have the same fence.
pub async fn d2_a_lease_is_compared_by_fence_and_owner(env: &Env) {
    let grant = env.store.lock("a", &key("d2-owner")).await.unwrap();
    let other = Lease { owner: Some(owner("b")), ..grant.lease() };
    assert_eq!(
        fenced(env.other.refused(Batch::new().renew(&other, TTL)).await),
        Holder::Held(grant.row.lease.clone().unwrap())
    );
    env.store.done(Batch::new().ack(&grant.lease())).await;
}

/// A batch based on a version of the lost history is rejected, although the new one has that version. Documents only.
pub async fn d2_a_version_of_the_lost_history_is_refused(env: &Env) {
    let k = key("d2-version");
    env.store.done(Batch::new().put(&k, Expect::Absent, number(0))).await;
    if !env.backup().await {
        return;
    }
    let before = env.store.epoch();
    env.store.done(Batch::new().put(&k, doc_at(1), number(10))).await;
    env.restore().await;
    // Without an exact version: this connection need not know of the cut.
    env.other.done(Batch::new().put(&k, Expect::Exists, number(5))).await;
    let stale = Batch::new().put(&k, doc_at(2), number(11)).observed_in(before);
    let refusal = env.store.refused(stale.clone()).await;
    assert_eq!((refusal.code().as_str(), refusal.retry()), ("TL0212", Retry::Now), "{refusal}");
    let now = env.store.epoch();
    assert!(matches!(refusal, Refusal::Epoch { observed, current } if observed == before && current == now));
    assert_eq!(env.other.value(&k).await, Some(json!({ "n": 5 })), "nothing was applied");
    env.store.done(Batch::new().put(&k, doc_at(2), number(6)).observed_in(now)).await;
    assert_eq!(env.store.info().await.unwrap().epoch, now);
}

/// A container drops its cached value. Documents only.
pub async fn d2_a_container_drops_its_cached_value(env: &Env) {
    let container =
        |conn: &Conn| -> State<i64> { StateRegistry::new(Arc::clone(&conn.0)).at(key("d2-state")) };
    let (here, there) = (container(&env.store), container(&env.other));
    here.set(0).await.unwrap();
    if !env.backup().await {
        return;
    }
    here.mutate(|value| *value += 10).await.unwrap();
    env.restore().await;
    there.mutate(|value| *value += 5).await.unwrap();
    here.mutate(|value| *value += 1).await.unwrap();
    assert_eq!(there.get().await.unwrap(), 6);
}

/// A cached aggregate is loaded again, and a command decides on the new history.
pub async fn d2_a_cached_aggregate_is_loaded_again(env: &Env) {
    let (here, there) = (Events::new(Arc::clone(&env.store.0)), Events::new(Arc::clone(&env.other.0)));
    add(&here, 100).await;
    if !env.backup().await {
        return;
    }
    add(&here, 10).await;
    env.restore().await;
    add(&there, 5).await;
    assert_eq!(add(&here, 1).await, Tally(106), "the command did not see the lost event");
    assert_eq!(*here.load::<Tally>("d2").await.unwrap().state, Tally(106));
}

/// Positions and fences of the lost history are never issued again, even if one copy is restored twice.
pub async fn d3_positions_and_fences_never_repeat(env: &Env) {
    let stream = key("d3-repeat");
    append(&env.store, &stream, 0).await;
    env.store.done(enqueue(standing("d3-row"))).await;
    if !env.backup().await {
        return;
    }
    let (mut positions, mut fences) = (Vec::new(), Vec::new());
    for round in 0..3 {
        for n in 0..5 {
            let conn = if (n + round) % 2 == 0 { &env.store } else { &env.other };
            positions.push(append(conn, &stream, n).await);
            let grant = conn.take("w", &key("d3-row")).await.unwrap();
            fences.push(grant.fence);
            conn.done(Batch::new().release(&grant.lease())).await;
        }
        env.restore().await;
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(env.other.log().await.len(), 1, "the copy is what is left");
}

/// A reader that has seen lost events gets a typed error with the position to continue from. From there it misses
/// nothing.
pub async fn d3_a_reader_of_the_lost_history_gets_an_error(env: &Env) {
    let stream = key("d3-reader");
    let kept = append(&env.store, &stream, 0).await;
    if !env.backup().await {
        return;
    }
    let mut lost = kept;
    for n in 1..10 {
        lost = append(&env.store, &stream, n).await;
    }
    env.restore().await;
    for n in 10..60 {
        append(&env.other, &stream, n).await;
    }
    for conn in [&env.store, &env.other] {
        let error = after(conn, lost).await.expect_err("the reader has seen what is not there");
        assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::PositionLost, "TL0310"), "{error}");
        assert_eq!(error.continue_after, Some(kept));
        assert_eq!(after(conn, kept).await.unwrap().len(), 50, "a reader at the cut sees everything");
    }
    let newest = env.other.log().await.last().unwrap().position;
    assert_eq!(after(&env.store, newest).await, Ok(Vec::new()));
    let backward = LogQuery { direction: Direction::Backward, ..LogQuery::after(lost, 10) };
    assert_eq!(env.store.read_log(backward).await.unwrap().events.len(), 1, "backwards nothing is skipped");
}

/// A position that no event ever had is an error, not the end of the log.
pub async fn d3_a_position_beyond_the_log_is_an_error(env: &Env) {
    let last = append(&env.store, &key("d3-beyond"), 0).await;
    assert_eq!(after(&env.other, last).await, Ok(Vec::new()));
    let error = after(&env.other, Position(last.0 + 1_000)).await.expect_err("it is beyond the log");
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::PositionBeyond, "TL0311"), "{error}");
}

/// Subscriptions that have returned lost events fail. Those that have not reached the cut continue.
pub async fn d3_subscriptions_fail_after_lost_events_and_continue_before(env: &Env) {
    let stream = key("d3-subscription");
    let kept = append(&env.store, &stream, 0).await;
    if !env.backup().await {
        return;
    }
    let events = Events::new(Arc::clone(&env.store.0));
    for what in [SubscriptionFilter::all(), SubscriptionFilter::stream(&stream)] {
        let mut behind = events.subscribe(what.clone(), StartFrom::Beginning).await.unwrap();
        let mut ahead = events.subscribe(what.clone(), StartFrom::Beginning).await.unwrap();
        append(&env.store, &stream, 1).await;
        behind.next().await.unwrap();
        ahead.next().await.unwrap();
        let lost = ahead.next().await.unwrap();
        env.restore().await;
        let new = append(&env.store, &stream, 2).await;
        let is_lost = |error: EventsError| assert_eq!(error.code().as_str(), "TL0310", "{error}");
        is_lost(ahead.next().await.expect_err("it has returned a lost event"));
        is_lost(
            events.subscribe(what.clone(), StartFrom::After(lost.position)).await.expect_err("it is lost"),
        );
        assert_eq!(behind.next().await.unwrap().position, new);
        let mut resumed = events.subscribe(what, StartFrom::After(kept)).await.unwrap();
        assert_eq!(resumed.next().await.unwrap().position, new);
        env.restore().await;
    }
}

/// Reactions handle each event of the new history once. Events handled before the cut are not handled again.
pub async fn d3_reactions_continue_in_the_new_history(env: &Env) {
    let stream = key("d3-reaction");
    let here = start(&env.store, noting("d3")).await;
    append(&env.store, &stream, 0).await;
    assert_eq!(here.quiesce().await.unwrap(), Quiescence::default());
    if !env.backup().await {
        return here.abort().await;
    }
    for n in 1..5 {
        append(&env.store, &stream, n).await;
    }
    assert_eq!(here.quiesce().await.unwrap(), Quiescence::default());
    env.restore().await;
    for n in 10..13 {
        append(&env.other, &stream, n).await;
    }
    // Leases of the lost history expire.
    env.pass(secs(600));
    assert_eq!(here.quiesce().await.unwrap(), Quiescence::default());
    assert_eq!(noted(&env.other, "d3", &stream).await, [0, 10, 11, 12]);
    here.abort().await;
}

/// A declared cut without a loss is harmless: readers, receipts and leases continue, and earlier leases stay valid.
pub async fn d3_a_false_alarm_is_harmless(env: &Env) {
    let (stream, id) = (key("d3-alarm"), OpId::new());
    let named = Batch::new().append(&stream, Expect::Any, [event("Happened", 0)]).op_id(id);
    let first = env.store.done(named.clone()).await;
    let last = append(&env.store, &stream, 1).await;
    let held = env.store.lock("w", &key("d3-lock")).await.unwrap();
    let before = env.store.epoch();
    env.pass(secs(1));
    let cut = env.other.declare_cut("a test").await.unwrap();
    assert_eq!((cut.previous, cut.cut_after, cut.reason.as_str()), (before, last, "a test"));
    assert!(cut.epoch > before && cut.resumes_at > last && cut.fence > held.fence, "{cut:?}");
    let new = append(&env.store, &stream, 2).await;
    assert!(new >= cut.resumes_at);
    assert_eq!(env.store.epoch(), cut.epoch);
    assert_eq!(after(&env.store, last).await.unwrap().len(), 1);
    assert_eq!(env.store.done(named).await.appended, first.appended, "the operation is still known");
    env.store.done(Batch::new().renew(&held.lease(), TTL)).await;
}

//! Idempotency keys (I1–I5). Their HTTP side, for example a missing key, is tested in the HTTP crate.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::error::{Explain as _, Outcome};
use tidelock_core::idempotency::{
    Fingerprint, Idempotency, IdempotencyError, IdempotencyKeyState, InFlight, Reservation, ReserveOutcome,
    StorePolicy, StoredResponse,
};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::env::ONE_AND_TWO;
use crate::fault_proxy::{Blink, Detour};
use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::{LEASE, until};

/// Time to live of stored responses.
const LASTS: Duration = Duration::from_secs(3_600);
/// Timeout of waiting requests: longer than any case takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn keys(store: &Arc<dyn Store>) -> Idempotency {
    Idempotency::new(store).lease_ttl(LEASE).ttl(LASTS)
}

fn request(text: &str) -> Fingerprint {
    Fingerprint::of(["POST", "/orders", text])
}

/// Returns the effect of a request, which counts its applications.
fn effect(name: &str) -> Batch {
    Batch::new().merge_or_create(&key(name), number(0), [Delta::inc("/n", 1)])
}

async fn effects(conn: &Conn, name: &str) -> i64 {
    conn.value(&key(name)).await.map_or(0, |value| value["n"].as_i64().unwrap())
}

fn answer() -> StoredResponse {
    StoredResponse::new(201)
        .header("location", "/orders/1")
        .header("link", "a")
        .header("link", "b")
        .text("made")
}

async fn reserve(conn: &Conn, name: &str) -> ReserveOutcome {
    keys(&conn.0).reserve("shop", name, &request("a")).await.unwrap()
}

#[track_caller]
fn run(reserved: ReserveOutcome) -> Reservation {
    match reserved {
        ReserveOutcome::Run(reservation) => reservation,
        other => panic!("expected to run, got {other:?}"),
    }
}

#[track_caller]
fn in_flight(reserved: ReserveOutcome) -> InFlight {
    match reserved {
        ReserveOutcome::InFlight(found) => found,
        other => panic!("expected it to be in flight, got {other:?}"),
    }
}

#[track_caller]
fn stored(reserved: ReserveOutcome) -> StoredResponse {
    match reserved {
        ReserveOutcome::Stored(answer) => answer,
        other => panic!("expected a stored answer, got {other:?}"),
    }
}

/// Of concurrent requests with one key, one runs. The others learn that it is in flight, by which process and since
/// when.
pub async fn i1_one_of_many_requests_runs(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("i1-{connections}");
        let work = |_: usize, conn: Conn| {
            let name = name.clone();
            async move { reserve(&conn, &name).await }
        };
        let (won, lost): (Vec<_>, Vec<_>) = env
            .race(connections, 8, work)
            .await
            .into_iter()
            .partition(|one| matches!(one, ReserveOutcome::Run(_)));
        assert_eq!((won.len(), lost.len()), (1, 7), "{lost:?}");
        for loser in lost {
            let found = in_flight(loser);
            assert_eq!((found.since, found.until), (env.now(), env.now().after(LEASE)));
            assert!(!found.by.is_empty() && !found.by.contains('#'), "{found:?}");
        }
    }
}

/// Of concurrent requests with one key that wait, one runs, and all receive its response.
pub async fn i1_a_waiter_gets_the_response_of_the_request_in_flight(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("i1-waits-{connections}");
        let work = |_: usize, conn: Conn| {
            let name = name.clone();
            async move {
                let reserved = keys(&conn.0).reserve_within("shop", &name, &request("a"), PATIENCE).await;
                match reserved.unwrap() {
                    ReserveOutcome::Run(reservation) => {
                        reservation.commit(effect(&name), answer()).await.unwrap();
                        (true, answer())
                    }
                    other => (false, stored(other)),
                }
            }
        };
        let answers = env.race(connections, 20, work).await;
        assert_eq!(answers.iter().filter(|(ran, _)| *ran).count(), 1);
        assert!(answers.iter().all(|(_, heard)| *heard == answer()));
        assert_eq!(effects(&env.other, &name).await, 1);
    }
}

/// A request that waits for a failing one runs after it. A request that stops waiting learns that the first one is in
/// flight.
pub async fn i1_a_waiter_runs_when_the_first_request_fails(env: &Env) {
    let first = run(reserve(&env.store, "i1-fails").await);
    let soon = Duration::from_millis(5);
    in_flight(keys(&env.other.0).reserve_within("shop", "i1-fails", &request("a"), soon).await.unwrap());
    let others = keys(&env.other.0);
    let waiting =
        tokio::spawn(async move { others.reserve_within("shop", "i1-fails", &request("a"), PATIENCE).await });
    first.release().await;
    let second = run(waiting.await.unwrap().unwrap());
    assert!(second.fence() > first.fence());
}

/// A request ends after another one has read the record and before that one claims it. The other one does not run.
pub async fn i1_an_end_between_the_look_and_the_claim_is_noticed(env: &Env) {
    let first = run(reserve(&env.store, "blink").await);
    let blink = Blink::closed();
    let others = keys(&Detour::over(Arc::clone(&blink), &env.other.0));
    let second = tokio::spawn(async move { others.reserve("shop", "blink", &request("a")).await });
    blink.arrived().await;
    first.commit(effect("blink"), answer()).await.unwrap();
    blink.open();
    assert_eq!(stored(second.await.unwrap().unwrap()), answer());
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0, "it let the row go");
}

/// A request may take longer than its lease, which is renewed while its process lives.
pub async fn i1_a_request_in_flight_is_renewed(env: &Env) {
    // Long enough for a busy machine: a holder that cannot renew in time must give up.
    let short = keys(&env.store.0).lease_ttl(Duration::from_secs(3));
    let reservation = run(short.reserve("shop", "slow", &request("a")).await.unwrap());
    let first = in_flight(reserve(&env.other, "slow").await).until;
    env.pass(Duration::from_millis(1_500));
    until("it is renewed", async || in_flight(reserve(&env.other, "slow").await).until > first).await;
    reservation.complete(answer()).await.unwrap();
    assert_eq!(stored(reserve(&env.other, "slow").await), answer());
}

/// A finished request returns status, headers and body again, with unchanged bytes, from another instance and after a
/// restart. The row of the reservation is gone.
pub async fn i2_the_response_is_repeated_everywhere(env: &Env) {
    let bytes = StoredResponse::new(200).body(vec![0, 159, 255]);
    let empty = StoredResponse::new(204);
    for (name, answer) in [("text", answer()), ("bytes", bytes.clone()), ("empty", empty.clone())] {
        let reservation = run(reserve(&env.store, name).await);
        assert!(reservation.commit(effect("i2"), answer.clone()).await.unwrap().is_some());
        assert_eq!(reservation.committed(), Some(StorePolicy::Whole(answer.clone())));
        assert_eq!(stored(reserve(&env.store, name).await), answer);
        assert_eq!(stored(reserve(&env.other, name).await), answer);
    }
    let large = run(reserve(&env.store, "large").await);
    large.complete_with_status(200).await.unwrap();
    assert!(matches!(reserve(&env.other, "large").await, ReserveOutcome::StatusOnly { status: 200 }));
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0, "nothing is left of what ended");
    if env.capabilities().durable {
        let again = env.restart().await;
        assert_eq!(stored(reserve(&again, "text").await), answer());
        assert_eq!(stored(reserve(&again, "bytes").await), bytes);
        assert_eq!(effects(&again, "i2").await, 3);
    }
}

/// A reservation ends once: calls after its commit change nothing.
pub async fn i2_a_reservation_ends_once(env: &Env) {
    let reservation = run(reserve(&env.store, "ends").await);
    let (one, two) = (reservation.clone(), reservation.clone());
    let (one, two) = tokio::join!(
        one.commit(effect("ends"), answer()),
        two.commit(effect("ends"), StoredResponse::new(500))
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let over = one.and(two).unwrap_err();
    assert!(matches!(over, IdempotencyError::Over { how: "committed", .. }), "{over:?}");
    reservation.release().await;
    assert!(matches!(reservation.guard(Batch::new()), Err(IdempotencyError::Over { .. })));
    let kept = stored(reserve(&env.other, "ends").await);
    assert_eq!(reservation.committed(), Some(StorePolicy::Whole(kept)));
    assert_eq!(effects(&env.other, "ends").await, 1);
}

/// The same key with another payload does not run, neither in flight nor later. In another scope it does.
pub async fn i3_another_payload_does_not_run(env: &Env) {
    let other = async |scope: &str| keys(&env.other.0).reserve(scope, "i3", &request("b")).await.unwrap();
    let reservation = run(reserve(&env.store, "i3").await);
    assert!(matches!(other("shop").await, ReserveOutcome::OtherPayload));
    reservation.commit(effect("i3"), answer()).await.unwrap();
    assert!(matches!(other("shop").await, ReserveOutcome::OtherPayload));
    assert_eq!(stored(reserve(&env.other, "i3").await), answer());
    drop(run(other("another shop").await));
    drop(run(other("").await));
}

/// Invalid keys are rejected before anything is written.
pub async fn i3_a_key_has_a_form(env: &Env) {
    for bad in ["", "a\nb", &"k".repeat(256)] {
        let refused = keys(&env.store.0).reserve("shop", bad, &request("a")).await.unwrap_err();
        assert!(matches!(refused, IdempotencyError::BadKey { .. }), "{refused:?}");
    }
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0);
}

/// If the handler failed before any effect, the key is usable again at once, after a release or a drop.
pub async fn i4_a_failed_request_leaves_its_key_free(env: &Env) {
    let first = run(reserve(&env.store, "i4").await);
    first.release().await;
    let second = run(reserve(&env.other, "i4").await);
    assert!(matches!(first.commit(effect("i4"), answer()).await, Err(IdempotencyError::Over { .. })));
    drop(second);
    until("it is free again", async || match reserve(&env.store, "i4").await {
        ReserveOutcome::Run(third) => third.commit(effect("i4"), answer()).await.is_ok(),
        _ => false,
    })
    .await;
    assert_eq!(effects(&env.other, "i4").await, 1);
}

/// A rejected batch changes nothing, and its request stays open: it can decide again.
pub async fn i4_a_refused_batch_does_not_end_the_request(env: &Env) {
    let reservation = run(reserve(&env.store, "refused").await);
    let wrong = effect("refused").guard_document(&key("never"), Expect::Exists);
    let refused = reservation.commit(wrong, answer()).await.unwrap_err();
    assert!(
        matches!(refused, IdempotencyError::Write(_)) && refused.outcome() == Outcome::NotApplied,
        "{refused:?}"
    );
    in_flight(reserve(&env.other, "refused").await);
    assert_eq!(effects(&env.other, "refused").await, 0);
    reservation.commit(effect("refused"), answer()).await.unwrap();
    assert_eq!(
        (stored(reserve(&env.other, "refused").await), effects(&env.other, "refused").await),
        (answer(), 1)
    );
}

/// A process returns after its lease has expired. Neither its effect nor its response is written.
pub async fn i4_a_dead_process_leaves_its_key_free(env: &Env) {
    let late = run(reserve(&env.store, "late").await);
    env.pass(LEASE - TICK);
    in_flight(reserve(&env.other, "late").await);
    env.pass(TICK);
    let next = run(reserve(&env.other, "late").await);
    let lost = late.commit(effect("late"), StoredResponse::new(500)).await.unwrap_err();
    assert!(matches!(lost, IdempotencyError::Lost { .. }), "{lost:?}");
    assert_eq!(effects(&env.store, "late").await, 0, "no effect without its record");
    in_flight(reserve(&env.store, "late").await);
    next.commit(effect("late"), answer()).await.unwrap();
    assert_eq!((stored(reserve(&env.store, "late").await), effects(&env.store, "late").await), (answer(), 1));
}

/// A request that is repeated until it has an answer.
struct RepeatedRequest;

#[async_trait(?Send)]
impl Scenario for RepeatedRequest {
    async fn live(&self, process: &Process) {
        match keys(&process.store).reserve("shop", "key", &request("a")).await.unwrap() {
            ReserveOutcome::Run(reservation) => {
                drop(reservation.commit(effect("key"), answer()).await.unwrap())
            }
            ReserveOutcome::Stored(heard) => assert_eq!(heard, answer()),
            other => panic!("the key is free after its lease: {other:?}"),
        }
    }

    async fn end(&self, env: &Env, _: &Outside) -> Value {
        assert_eq!(stored(reserve(&env.other, "key").await), answer());
        json!({ "effects": effects(&env.other, "key").await })
    }
}

/// The process crashes at every point of a request. Either the effect and the response are stored, or neither is and the key is
/// free after its lease.
pub async fn i4_every_crash_point_of_a_request(env: &Env) {
    every_crash_point("a request", env, RepeatedRequest).await;
}

/// The answer of the store to the commit is lost. The commit retries and learns from the record that it was applied.
pub async fn i4_a_lost_answer_is_found_again(env: &Env) {
    let wire = Wire::to(&env.store.0);
    let store: Arc<dyn Store> = Arc::clone(&wire) as _;
    let reservation = run(keys(&store).reserve("shop", "lost", &request("a")).await.unwrap());
    wire.cut_behind_the_next();
    let committing = tokio::spawn(async move { reservation.commit(effect("lost"), answer()).await });
    until("it is applied", async || effects(&env.other, "lost").await == 1).await;
    wire.mend();
    assert_eq!(committing.await.unwrap().unwrap(), None, "the receipt is lost, and nothing else");
    assert_eq!((stored(reserve(&env.other, "lost").await), effects(&env.other, "lost").await), (answer(), 1));
}

/// After the time to live, the request runs again.
pub async fn i5_after_its_time_a_request_runs_again(env: &Env) {
    run(reserve(&env.store, "i5").await).commit(effect("i5"), answer()).await.unwrap();
    env.pass(LASTS - TICK);
    assert_eq!(stored(reserve(&env.other, "i5").await), answer());
    env.pass(TICK);
    let again = run(reserve(&env.other, "i5").await);
    again.commit(effect("i5"), StoredResponse::new(200)).await.unwrap();
    assert_eq!((stored(reserve(&env.store, "i5").await).status, effects(&env.store, "i5").await), (200, 2));
}

/// Operators list the keys of all scopes or of one, page by page, and delete finished ones, but never those in flight.
pub async fn i2_operators_list_show_and_forget(env: &Env) {
    let all = keys(&env.store.0);
    let mut held = Vec::new();
    for (scope, name) in [("", "z"), ("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")] {
        let reservation = run(all.reserve(scope, name, &request("a")).await.unwrap());
        match name {
            "2" => held.push(reservation),
            _ => reservation.complete(answer()).await.unwrap(),
        }
    }
    let listed = async |scope: Option<&str>, limit: usize| {
        let (mut seen, mut page) = (Vec::new(), Page::first(limit));
        loop {
            let found = keys(&env.other.0).list(scope, page).await.unwrap();
            seen.extend(found.rows.into_iter().map(|view| format!("{}/{}", view.scope, view.key)));
            match found.next {
                Some(next) => page = Page::after(&next, limit),
                None => return seen,
            }
        }
    };
    for limit in [1, 2, 3, 100] {
        assert_eq!(listed(None, limit).await, ["/z", "a/1", "a/2", "a/3", "b/1"], "{limit}");
        assert_eq!(listed(Some("a"), limit).await, ["a/1", "a/2", "a/3"], "{limit}");
        assert_eq!(listed(Some(""), limit).await, ["/z"], "{limit}");
    }
    let (view, kept) = all.show("a", "1").await.unwrap();
    let expires_at = Some(env.now().after(LASTS));
    let state = IdempotencyKeyState::Stored { status: 201, body_bytes: Some(4), at: env.now(), expires_at };
    assert_eq!(
        (view.state, kept, view.request),
        (state, Some(StorePolicy::Whole(answer())), request("a").hex())
    );
    let (view, kept) = all.show("a", "2").await.unwrap();
    assert!(matches!(view.state, IdempotencyKeyState::InFlight { .. }) && kept.is_none(), "{view:?}");

    assert!(matches!(all.forget("a", "2").await, Err(IdempotencyError::InFlight { .. })));
    assert!(matches!(all.forget("a", "4").await, Err(IdempotencyError::Unknown { .. })));
    all.forget("a", "1").await.unwrap();
    assert!(matches!(all.show("a", "1").await, Err(IdempotencyError::Unknown { .. })));
    drop(run(keys(&env.other.0).reserve("a", "1", &request("another")).await.unwrap()));
}

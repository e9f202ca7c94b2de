//! Attribution of failures to the events that cause them (R14). A lost race is no failure, events beside a deadly one
//! are healthy, and an event that cannot be routed delays no key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidelock_core::reactions::{Effects, Operator, Quiescence, Reaction, ReactionFilter};

use crate::prelude::*;
use crate::reacting::*;

async fn append(conn: &Conn, stream: &Key, n: i64) {
    conn.done(Batch::new().append(stream, Expect::Any, [event("Happened", n)])).await;
}

fn operator(env: &Env) -> Operator {
    Operator::new(Arc::clone(&env.other.0))
}

/// A handler that decides on a document with constant concurrent writes loses many races, but no attempt because of
/// them.
pub async fn r14_a_lost_race_is_no_failure(env: &Env) {
    const RACES: usize = 40;
    let (hot, calls) = (key("r14-hot"), Arc::new(AtomicUsize::new(0)));
    env.store.done(Batch::new().put(&hot, Expect::Absent, number(0))).await;
    let (counted, decided_on) = (Arc::clone(&calls), hot.clone());
    let racing = reaction("r14-race").retry(at_once(2)).each(move |turn, event| {
        let (calls, hot) = (Arc::clone(&counted), decided_on.clone());
        async move {
            let seen = turn.store().document(&hot).await?.expect("it is there");
            if calls.fetch_add(1, Ordering::SeqCst) < RACES {
                // Another program is faster.
                turn.store().apply(Batch::new().put(&hot, Expect::Any, number(1))).await?;
            }
            let batch = note(turn.reaction(), turn.key(), &event);
            Ok(batch.put(&hot, Expect::Exact(seen.version), number(2)))
        }
    });
    append(&env.store, &key("r14-race"), 0).await;
    let running = start(&env.store, racing).await;
    assert_eq!(quiesce_in_time(env, &running).await, Quiescence::default());
    assert_eq!(noted(&env.store, "r14-race", &key("r14-race")).await, [0]);
    assert_eq!(running.shutdown().await.reactions["r14-race"].failed, 0);
}

/// A refusal that repeats although no other process wrote is a failure like any other.
pub async fn r14_a_refusal_without_a_race_counts(env: &Env) {
    let taken = key("r14-taken");
    env.store.done(Batch::new().put(&taken, Expect::Absent, number(0))).await;
    let refused = reaction("r14-refused").retry(at_once(3)).each(move |_, _| {
        let taken = taken.clone();
        async move { Ok(Batch::new().put(&taken, Expect::Absent, number(1))) }
    });
    append(&env.store, &key("r14-refused"), 0).await;
    let running = start(&env.store, refused).await;
    assert_eq!(quiesce_in_time(env, &running).await, Quiescence { blocked: 1, parked: 0 });
    running.shutdown().await;
}

/// One event repeatedly kills its process while others run beside it. It is blocked, and they are handled.
pub async fn r14_a_deadly_event_does_not_blame_its_neighbours(env: &Env) {
    const NEIGHBOURS: i64 = 7;
    let (name, dies) = ("r14-deadly", Arc::new(AtomicBool::new(false)));
    let deadly = |dies: &Arc<AtomicBool>| -> Reaction {
        let dies = Arc::clone(dies);
        reaction(name).streams(KeyPrefix::kind(name)).each(move |turn, event| {
            let dies = Arc::clone(&dies);
            async move {
                if n(&event) == 3 {
                    dies.store(true, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                // If the process dies, it is dead by then.
                while dies.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(Effects::from(note(turn.reaction(), turn.key(), &event)))
            }
        })
    };
    for n in 0..=NEIGHBOURS {
        append(&env.store, &Key::new(name, [n]).unwrap(), n).await;
    }
    let mut settled = None;
    for _ in 0..40 {
        dies.store(false, Ordering::SeqCst);
        let running = reactions(&env.store).concurrency(16).with(deadly(&dies)).start().await.unwrap();
        tokio::select! {
            all = quiesce_in_time(env, &running) => settled = Some(all),
            () = until("it dies", async || dies.load(Ordering::SeqCst)) => {}
        }
        running.abort().await;
        if settled.is_some() {
            break;
        }
        env.pass(LEASE);
    }
    assert_eq!(settled, Some(Quiescence { blocked: 1, parked: 0 }), "only the deadly one is blocked");
    for n in (0..=NEIGHBOURS).filter(|n| *n != 3) {
        assert_eq!(noted(&env.store, name, &Key::new(name, [n]).unwrap()).await, [n]);
    }
}

/// An event that cannot be routed is parked, whatever the reaction does with failing events, and other keys continue. A
/// replay routes it to the key that is then chosen for it.
pub async fn r14_an_event_that_cannot_be_routed_stops_no_key(env: &Env) {
    let (name, mended) = ("r14-route", Arc::new(AtomicBool::new(false)));
    let choosing = Arc::clone(&mended);
    let chosen = noting(name).streams(KeyPrefix::kind(name)).to(move |event| {
        assert!(n(event) != 1 || choosing.load(Ordering::SeqCst), "1 has no key");
        Some(key("r14-all"))
    });
    for n in 0..3 {
        append(&env.store, &Key::new(name, [n]).unwrap(), n).await;
    }
    let running = start(&env.store, chosen).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 });
    assert_eq!(noted(&env.store, name, &key("r14-all")).await, [0, 2]);
    let parked = operator(env).parked(name, Page::first(9)).await.unwrap().rows;
    assert!(parked[0].error.contains("1 has no key"), "{parked:?}");
    assert_eq!(operator(env).replay_parked(&ReactionFilter::of(name)).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 }, "it still has no key");
    mended.store(true, Ordering::SeqCst);
    assert_eq!(operator(env).replay_parked(&ReactionFilter::of(name)).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    assert_eq!(noted(&env.store, name, &key("r14-all")).await, [0, 2, 1]);
    running.shutdown().await;
}

//! Crashes of reaction workers (R7 and R12 through `tidelock_core::reactions`). Wherever a worker dies, every event is
//! routed and handled once.

use std::collections::BTreeMap;

use tidelock_core::clock::SystemClock;
use tidelock_core::reactions::Quiescence;

use crate::prelude::*;
use crate::process::{Process, Task};
use crate::reacting::*;
use crate::rng::Rng;

const STREAMS: i64 = 6;

fn stream(n: i64) -> Key {
    Key::new("shop", [n % STREAMS]).unwrap()
}

async fn append(conn: &Conn, n: i64) {
    conn.done(Batch::new().append(&stream(n), Expect::Any, [event("Happened", n)])).await;
}

/// Checks that both reactions of [`shop`] handled every event once and in the order of its key.
async fn all_handled(conn: &Conn, total: i64) {
    for i in 0..STREAMS {
        let expected: Vec<i64> = (0..total).filter(|n| n % STREAMS == i).collect();
        assert_eq!(noted(conn, PROJECT, &stream(i)).await, expected, "{PROJECT}, {}", stream(i));
    }
    let log: Vec<Event> =
        conn.log().await.into_iter().filter(|event| event.stream.kind() == "shop").collect();
    let mut gathered: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
    for event in &log {
        gathered.entry(gather_key(event)).or_default().push(n(event));
    }
    assert_eq!(log.len() as i64, total);
    for (key, expected) in gathered {
        assert_eq!(noted(conn, GATHER, &key).await, expected, "{GATHER}, {key}: in the order of the log");
    }
}

/// Checks that every event was copied to an inbox once, and that all inboxes are empty again.
async fn all_routed(conn: &Conn, total: i64) {
    let range = KeyPrefix::kind("tidelock.inbox");
    let inboxes = crate::dump::pages(async |page| conn.streams(&range, page).await).await;
    let copies: u64 = inboxes.iter().map(|inbox| inbox.head.unwrap().0 + 1).sum();
    assert_eq!(copies as i64, total, "no event is left out, and none is routed twice");
    assert!(inboxes.iter().all(|inbox| inbox.first.is_none()), "what was handled is not kept: {inboxes:?}");
}

/// Reactions are repeatedly dropped at any point. Effects and progress are one commit, so the result is the fold of the
/// log. No event is skipped on the way to a row, or routed twice.
pub async fn r7_dropped_anywhere_everything_is_done_once(env: &Env) {
    let seed = crate::run::seed();
    crate::run::say(&format!("r7: seed {seed}"));
    let mut rng = Rng::new(seed);
    let mut total = 0;
    for round in 0..30 {
        let conn = if round % 2 == 0 { &env.store } else { &env.other };
        let running = shop(&conn.0, LEASE).start().await.unwrap();
        let more = 1 + rng.below(8);
        for _ in 0..more {
            append(&env.store, total).await;
            total += 1;
        }
        let enough = rng.below(2 * more + 1) as u64;
        until("some are routed and handled", async || {
            running.stats().reactions.values().map(|done| done.handled + done.routed).sum::<u64>() >= enough
        })
        .await;
        // Simulates a crash: the tasks are gone, and the leases stay until they expire.
        running.abort().await;
        env.pass(LEASE);
    }
    let running = shop(&env.store.0, LEASE).start().await.unwrap();
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    all_handled(&env.other, total).await;
    all_routed(&env.other, total).await;
    running.shutdown().await;
}

/// Processes are killed while they route and handle: as above, with real crashes.
pub async fn r12_killed_processes_leave_nothing_out_and_do_nothing_twice(env: &Env) {
    let address = if env.capabilities().processes { env.address().await } else { None };
    let Some(address) = address else { return };
    let seed = crate::run::seed();
    crate::run::say(&format!("r12: seed {seed}"));
    let mut rng = Rng::new(seed);
    let conn = Conn(env.backend.attach(&address, SystemClock::shared()).await);
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(worker(env, &address).await);
    }
    let mut total = 0;
    for round in 0..8 {
        for _ in 0..20 {
            append(&conn, total).await;
            total += 1;
        }
        // Somewhere in the middle of these events.
        let some = total - 1 - i64::try_from(rng.below(20)).unwrap();
        until("some of it is handled", async || {
            noted(&conn, PROJECT, &stream(some)).await.contains(&some) || round % 2 == 1
        })
        .await;
        // This sleep waits for no condition. It moves the kill to another point between two commits.
        tokio::time::sleep(Duration::from_micros(rng.below(5_000) as u64)).await;
        workers[round % 2].kill().await;
        workers[round % 2] = worker(env, &address).await;
    }
    for worker in &mut workers {
        worker.kill().await;
    }
    let survivor = Conn(env.backend.attach(&address, SystemClock::shared()).await);
    let running = shop(&survivor.0, secs(1)).start().await.unwrap();
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default(), "seed {seed}");
    all_handled(&conn, total).await;
    all_routed(&conn, total).await;
    running.shutdown().await;
}

/// Starts a process that runs the reactions until it is killed.
async fn worker(env: &Env, address: &str) -> Process {
    let mut process = Process::start(env.backend.as_ref(), address, Task::React).await;
    process.go().await;
    assert_eq!(process.hear::<String>().await.as_deref(), Some("running"));
    process
}

/// The worker that routes dies. Another one continues from the same position when the lease has expired.
pub async fn r12_another_router_takes_over(env: &Env) {
    let first = shop(&env.store.0, LEASE).start().await.unwrap();
    append(&env.store, 0).await;
    first.quiesce().await.unwrap();
    let second = shop(&env.other.0, LEASE).start().await.unwrap();
    let router = Key::new("tidelock.router", [PROJECT]).unwrap();
    let held = env.store.row(&router).await.lease.unwrap();
    assert_eq!(&held.owner, first.owner(), "one of them routes");
    first.abort().await;
    append(&env.store, 1).await;
    env.pass(LEASE - TICK);
    assert_eq!(
        env.store.row(&router).await.lease.unwrap().fence,
        held.fence,
        "not before the lease has ended"
    );
    env.pass(TICK);
    assert_eq!(second.quiesce().await.unwrap(), Quiescence::default());
    all_handled(&env.store, 2).await;
    all_routed(&env.store, 2).await;
    let taken = async || {
        env.store.row(&router).await.lease.is_some_and(|l| l.owner == *second.owner() && l.fence > held.fence)
    };
    until("the second one routes", taken).await;
    second.shutdown().await;
    assert_eq!(env.store.row(&router).await.lease, None, "the polite way hands it back");
}

/// Events of many streams for one key are copied in log order, and the handler sees them unchanged.
pub async fn r12_events_for_a_chosen_key_are_seen_as_they_were(env: &Env) {
    let all = key("r12-all");
    let chosen = all.clone();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seeing = seen.clone();
    let gathering = reaction("r12-chosen")
        .to(move |event| (event.event_type.as_str() != "Ignored").then(|| chosen.clone()))
        .batch(move |turn, events| {
            assert_eq!(*turn.key(), key("r12-all"));
            seeing.lock().unwrap().extend(events);
            async { Ok(()) }
        });
    let mut noted = event("Happened", 1);
    noted.meta = payload(json!({ "note": "kept" }));
    noted.correlation = Some("conversation".to_owned());
    env.store.done(Batch::new().append(&key("r12-a"), Expect::Any, [noted, event("Ignored", 2)])).await;
    let running = start(&env.store, gathering).await;
    for n in 3..10 {
        let stream = key(if n % 2 == 0 { "r12-a" } else { "r12-b" });
        env.other.done(Batch::new().append(&stream, Expect::Any, [event("Happened", n)])).await;
    }
    running.quiesce().await.unwrap();
    let expected: Vec<Event> =
        env.store.log().await.into_iter().filter(|e| e.event_type.as_str() == "Happened").collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    running.shutdown().await;
}

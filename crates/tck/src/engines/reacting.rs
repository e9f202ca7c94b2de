//! Reactions (R1–R11 through `tidelock_core::reactions`) with handlers on real tasks. The clock of the store advances
//! only when a case advances it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidelock_core::failure::Failure;
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::reactions::{Effects, Quiescence, StartFrom};

use crate::env::ONE_AND_TWO;
use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::*;

/// Returns the row of a reaction for a key.
fn row_of(reaction: &str, stream: &Key) -> Key {
    let mut args = vec![Arg::from(reaction), Arg::Str(stream.kind())];
    args.extend(stream.args());
    Key::of("tidelock.reaction", &args).unwrap()
}

fn numbers(count: i64) -> Vec<i64> {
    (0..count).collect()
}

async fn append(conn: &Conn, stream: &Key, n: i64) {
    conn.done(Batch::new().append(stream, Expect::Any, [event("Happened", n)])).await;
}

/// Workers on two connections handle each key one at a time and in order, and skip nothing.
pub async fn r1_handlers_see_each_key_in_order_one_at_a_time(env: &Env) {
    const KEYS: i64 = 5;
    const EVENTS: i64 = 12;
    for connections in ONE_AND_TWO {
        let name = format!("r1-{connections}");
        let turnstile = Turnstile::default();
        let reaction = || {
            let turnstile = turnstile.clone();
            let mine = KeyPrefix::starting("tck", &[], &name);
            reaction(&name).streams(mine).events_per_grant(3).each(move |turn, event| {
                let turnstile = turnstile.clone();
                async move {
                    turnstile.pass(turn.key()).await;
                    Ok(note(turn.reaction(), turn.key(), &event))
                }
            })
        };
        let here = start(&env.store, reaction()).await;
        let there = start(if connections == 1 { &env.store } else { &env.other }, reaction()).await;
        let stream = |i: i64| key(&format!("{name}-{i}"));
        for n in 0..EVENTS {
            for i in 0..KEYS {
                append(if n % 2 == 0 { &env.store } else { &env.other }, &stream(i), n).await;
            }
        }
        assert_eq!(here.quiesce().await.unwrap(), Quiescence::default());
        assert_eq!(there.quiesce().await.unwrap(), Quiescence::default());
        for i in 0..KEYS {
            assert_eq!(noted(&env.other, &name, &stream(i)).await, numbers(EVENTS), "key {i}");
        }
        assert_eq!(turnstile.passed() as i64, KEYS * EVENTS, "each event was handled once");
        let (here, there) = (here.shutdown().await, there.shutdown().await);
        let handled = here.reactions[&name].handled + there.reactions[&name].handled;
        assert_eq!(handled as i64, KEYS * EVENTS);
        let held = WorkFilter { leased: Some(true), ..WorkFilter::default() };
        assert_eq!(env.store.count(&held).await, 0, "what was held is handed back");
    }
}

/// The effects of one event are visible to the next: a handler that reads and then writes loses nothing. Events handled
/// together are handled separately after a conflict among them.
pub async fn r1_effects_of_one_event_are_visible_to_the_next(env: &Env) {
    let stream = key("r1-count");
    for n in 0..20 {
        append(&env.store, &stream, n).await;
    }
    for (name, together, exact) in [("r1-any", 1, false), ("r1-exact", 7, true)] {
        let counter = Key::new("counter", [name]).unwrap();
        let counts = counter.clone();
        let counting = reaction(name).together(together).each(move |turn, _| {
            let counter = counts.clone();
            async move {
                let before = turn.store().document(&counter).await?;
                let count = before.as_ref().map_or(0, |document| document.value.parse::<i64>().unwrap());
                let expect = match before {
                    _ if !exact => Expect::Any,
                    Some(document) => Expect::Exact(document.version),
                    None => Expect::Absent,
                };
                Ok(Batch::new().put(&counter, expect, payload(json!(count + 1))))
            }
        });
        let running = start(&env.store, counting).await;
        assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
        assert_eq!(env.other.value(&counter).await, Some(json!(20)), "{name}");
        assert_eq!(running.shutdown().await.reactions[name].failed, 0, "{name}: nothing of it is a failure");
    }
}

/// A reaction sees the events of its types and streams, from its start position.
pub async fn r1_a_reaction_sees_its_types_and_streams(env: &Env) {
    let (mine, other) = (key("r1-mine"), Key::new("else", ["r1-other"]).unwrap());
    let internal = NewEvent::new(event_type("tidelock.internal"), number(9));
    append(&env.store, &mine, 0).await;
    env.store.done(Batch::new().append(&mine, Expect::Any, [event("Other", 1), internal])).await;
    append(&env.store, &other, 2).await;
    let late = noting("r1-late").start_from(StartFrom::Now);
    let typed = noting("r1-typed").on(["Happened", "Unheard"]);
    let ranged = noting("r1-ranged").streams(all_keys());
    let after = reactions(&env.store).with(late).with(typed).with(ranged).with(noting("r1-all"));
    let running = after.start().await.unwrap();
    append(&env.other, &mine, 3).await;
    running.quiesce().await.unwrap();
    for (name, expected, elsewhere) in [
        ("r1-late", vec![3], vec![]),
        ("r1-typed", vec![0, 3], vec![2]),
        ("r1-ranged", vec![0, 1, 3], vec![]),
        ("r1-all", vec![0, 1, 3], vec![2]),
    ] {
        assert_eq!(noted(&env.store, name, &mine).await, expected, "{name}");
        assert_eq!(noted(&env.store, name, &other).await, elsewhere, "{name}");
    }
    running.shutdown().await;
}

/// A handler fails in the middle of a batch. The effects of the earlier events are kept, in one commit with the
/// failure. The other events are retried after the delay, which is persisted in the store.
pub async fn r2_a_failure_keeps_the_prefix_and_its_wait(env: &Env) {
    let (stream, wait) = (key("r2"), secs(60));
    let ready = Arc::new(AtomicBool::new(false));
    let failing = ready.clone();
    let policy = RetryPolicy { max_attempts: 5, base: wait, ..RetryPolicy::default() };
    let reaction = reaction("r2").together(10).retry(policy).each(move |turn, event| {
        let ready = failing.clone();
        async move {
            if n(&event) == 2 && !ready.load(Ordering::SeqCst) {
                return Err(Failure::retry(format!("2 is bad at attempt {}", turn.attempt())));
            }
            Ok(Effects::from(note("r2", turn.key(), &event)))
        }
    });
    env.store.done(Batch::new().append(&stream, Expect::Any, events(5))).await;
    let history = env.store.history(&stream).await;
    let running = start(&env.store, reaction).await;
    until("it fails", async || running.stats().reactions["r2"].failed == 1).await;
    assert_eq!(
        running.stats().reactions["r2"].batches,
        1,
        "the prefix, the progress and the failure are one commit"
    );
    assert_eq!(noted(&env.other, "r2", &stream).await, [0, 1]);
    let row = env.other.row(&row_of("r2", &stream)).await;
    assert_eq!((row.position, row.attempts, row.lease), (Some(history[1].position), 1, None));
    assert_eq!(row.last_error.as_deref(), Some("2 is bad at attempt 1"));
    let due = row.due.unwrap();
    assert!(due >= env.now() && due <= env.now().after(wait), "the wait is kept in the store: {due}");
    append(&env.store, &stream, 5).await;
    until("the new event is routed", async || running.stats().reactions["r2"].routed == 6).await;
    assert_eq!(
        env.other.row(&row_of("r2", &stream)).await.due,
        Some(due),
        "a new event does not cut the wait short"
    );
    ready.store(true, Ordering::SeqCst);
    env.pass(wait);
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.other, "r2", &stream).await, numbers(6), "nothing twice, nothing left out");
    running.shutdown().await;
}

/// A deferred event is retried at the requested time and not before, whatever else happens to the key. The attempt does
/// not count.
pub async fn r2_a_deferred_event_returns_at_its_due_time(env: &Env) {
    let stream = key("r2-defer");
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let start_at = env.now();
    let reaction = reaction("r2-defer").retry(at_once(1)).each(move |turn, event| {
        let calls = counted.clone();
        async move {
            calls.fetch_add(1, Ordering::SeqCst);
            assert_eq!(turn.attempt(), 1);
            if turn.store().now().await? < start_at.after(secs(30)) {
                return Err(Failure::defer(Due::After(secs(30))));
            }
            Ok(Effects::from(note("r2-defer", turn.key(), &event)))
        }
    });
    let running = start(&env.store, reaction).await;
    append(&env.store, &stream, 0).await;
    until("it puts itself off", async || running.stats().reactions["r2-defer"].deferred == 1).await;
    for n in 1..4 {
        append(&env.other, &stream, n).await;
    }
    let row = row_of("r2-defer", &stream);
    until("the new events have woken the row", async || {
        running.stats().reactions["r2-defer"].routed == 4
            && env.store.row(&row).await.due == Some(start_at.after(secs(30)))
    })
    .await;
    env.pass(secs(30) - TICK);
    env.store.done(enqueue(standing("r2-noise"))).await;
    assert_eq!((calls.load(Ordering::SeqCst), env.store.row(&row).await.attempts), (1, 0));
    env.pass(TICK);
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.store, "r2-defer", &stream).await, numbers(4));
    running.shutdown().await;
}

/// A key that exhausts its attempts is blocked with the error, and others continue. A panic is a failure like any
/// other.
pub async fn r3_spent_attempts_block_the_key_with_the_error(env: &Env) {
    let (bad, worse) = (key("r3-bad"), key("r3-worse"));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let reaction = reaction("r3").retry(at_once(3)).each(move |turn, event| {
        let calls = counted.clone();
        async move {
            if *turn.key() == key("r3-bad") {
                calls.fetch_add(1, Ordering::SeqCst);
                return Err(Failure::retry("it is bad"));
            }
            assert_ne!(*turn.key(), key("r3-worse"), "it is worse");
            Ok(Effects::from(note("r3", turn.key(), &event)))
        }
    });
    let running = start(&env.store, reaction).await;
    for n in 0..3 {
        append(&env.store, &bad, n).await;
        append(&env.store, &worse, n).await;
        append(&env.other, &key("r3-good"), n).await;
    }
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 2, parked: 0 });
    assert_eq!(calls.load(Ordering::SeqCst), 3, "as often as the budget allows");
    let row = env.other.row(&row_of("r3", &bad)).await;
    assert_eq!(row.blocked.unwrap().reason, "gave up after 3 attempts: it is bad");
    assert_eq!((row.attempts, row.lease), (3, None));
    let reason = env.other.row(&row_of("r3", &worse)).await.blocked.unwrap().reason;
    assert!(reason.contains("the handler panicked") && reason.contains("it is worse"), "{reason}");
    assert_eq!(noted(&env.store, "r3", &key("r3-good")).await, numbers(3));
    running.shutdown().await;
}

/// Workers die each time they claim the row. The key is blocked before the handler runs once more.
pub async fn r4_workers_that_die_use_up_the_attempts(env: &Env) {
    let stream = key("r4");
    append(&env.store, &stream, 0).await;
    for attempt in 1..=3 {
        let gate = Gate::closed();
        let waiting = gate.clone();
        let deadly = reaction("r4").retry(at_once(3)).each(move |_, _| {
            let gate = waiting.clone();
            async move {
                gate.pass().await;
                Ok(())
            }
        });
        let running = start(if attempt == 2 { &env.other } else { &env.store }, deadly).await;
        gate.reached_by(1).await;
        assert_eq!(env.store.row(&row_of("r4", &stream)).await.attempts, attempt);
        // Simulates a crash: the tasks are gone, and the leases stay until they expire.
        running.abort().await;
        env.pass(LEASE);
    }
    let running = start(&env.store, noting("r4").retry(at_once(3))).await;
    assert_eq!(running.quiesce().await.unwrap().blocked, 1);
    let row = env.store.row(&row_of("r4", &stream)).await;
    assert!(row.blocked.unwrap().reason.contains("gave up after 3 attempts"));
    assert!(noted(&env.store, "r4", &stream).await.is_empty(), "the handler did not run again");
    running.shutdown().await;
}

/// A non-retryable failure blocks at the first attempt, even if the event arrived in a batch.
pub async fn r5_a_permanent_failure_blocks_at_once(env: &Env) {
    let stream = key("r5");
    let refuse = |event: &Event| {
        if n(event) == 2 { Err(Failure::permanent("never again")) } else { Ok(()) }
    };
    let each = reaction("r5-each").each(async move |turn, event| {
        refuse(&event)?;
        Ok(note("r5-each", turn.key(), &event))
    });
    let batch = reaction("r5-batch").batch(async move |turn, events| {
        events.iter().try_for_each(refuse)?;
        let batch = Batch::new();
        Ok(events.iter().fold(batch, |batch, event| batch.and(note("r5-batch", turn.key(), event))))
    });
    env.store.done(Batch::new().append(&stream, Expect::Any, events(5))).await;
    let running = reactions(&env.store).with(each).with(batch).start().await.unwrap();
    assert_eq!(running.quiesce().await.unwrap().blocked, 2);
    for name in ["r5-each", "r5-batch"] {
        let row = env.other.row(&row_of(name, &stream)).await;
        assert_eq!((row.blocked.unwrap().reason.as_str(), row.attempts), ("never again", 1), "{name}");
        assert_eq!(noted(&env.store, name, &stream).await, [0, 1], "{name}: those before it are done");
    }
    running.shutdown().await;
}

/// A handler that runs longer than its lease keeps it through renewal.
pub async fn r8_a_slow_handler_keeps_its_lease(env: &Env) {
    // Long enough for a machine that is busy with other tests: a holder that cannot renew in time must give up.
    let (stream, ttl) = (key("r8-slow"), Duration::from_secs(3));
    let gate = Gate::closed();
    let waiting = gate.clone();
    let slow = reaction("r8-slow").lease_ttl(ttl).each(move |turn, event| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            Ok(note("r8-slow", turn.key(), &event))
        }
    });
    let running = start(&env.store, slow).await;
    append(&env.store, &stream, 0).await;
    gate.reached_by(1).await;
    let row = row_of("r8-slow", &stream);
    let fence = env.store.row(&row).await.lease.unwrap().fence;
    // Half of the TTL at a time: a renewal in flight while the clock moves must leave its holder time for the next one.
    for _ in 0..4 {
        env.pass(ttl / 2);
        let until_then = env.now().after(ttl * 3 / 4);
        let renewed = async || env.other.row(&row).await.lease.unwrap().until > until_then;
        until("the lease is renewed", renewed).await;
    }
    gate.let_through(1);
    running.quiesce().await.unwrap();
    let row = env.other.row(&row).await;
    assert_eq!((row.takeovers, row.attempts), (0, 0), "no other owner has had it since {fence}");
    assert_eq!((noted(&env.other, "r8-slow", &stream).await, gate.came()), (numbers(1), 1));
    running.shutdown().await;
}

/// A handler without connection to the store is cancelled before another worker can lease its row, and it writes
/// nothing.
pub async fn r8_a_handler_without_its_store_is_aborted(env: &Env) {
    struct CalledFlag(Arc<AtomicBool>);
    impl Drop for CalledFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (stream, ttl) = (key("r8-cut"), Duration::from_millis(600));
    let wire = Wire::to(&env.store.0);
    let (gate, dropped, token_fired) =
        (Gate::closed(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (waiting, told, fired) = (gate.clone(), dropped.clone(), token_fired.clone());
    let cut_off = reaction("r8-cut").lease_ttl(ttl).each(move |turn, event| {
        let (gate, told, fired) = (waiting.clone(), CalledFlag(told.clone()), fired.clone());
        let token = turn.cancelled().clone();
        tokio::spawn(async move {
            token.cancelled().await;
            fired.store(true, Ordering::SeqCst);
        });
        async move {
            let _told = told;
            gate.pass().await;
            Ok(note("r8-cut", turn.key(), &event))
        }
    });
    let wired: SharedStore = wire.clone();
    let running = over(&wired).with(cut_off).start().await.unwrap();
    append(&env.store, &stream, 0).await;
    gate.reached_by(1).await;
    wire.cut();
    until("the handler is aborted", async || dropped.load(Ordering::SeqCst)).await;
    until("the work that it started elsewhere is cancelled", async || token_fired.load(Ordering::SeqCst))
        .await;
    let lease = env.other.row(&row_of("r8-cut", &stream)).await.lease.unwrap();
    assert!(!lease.until.has_come(env.now()), "before another worker can claim the row");
    gate.let_through(9);
    env.pass(ttl * 2);
    let other = start(&env.other, noting("r8-cut").lease_ttl(LEASE)).await;
    other.quiesce().await.unwrap();
    wire.mend();
    assert_eq!(
        noted(&env.other, "r8-cut", &stream).await,
        numbers(1),
        "once, by the worker that took it over"
    );
    assert_eq!(running.stats().reactions["r8-cut"].handled, 0);
    running.abort().await;
    other.shutdown().await;
}

/// A commit to a stream whose events are being handled succeeds, and the reaction handles it later.
pub async fn r9_commits_do_not_wait_for_handlers(env: &Env) {
    let stream = key("r9");
    let gate = Gate::closed();
    let waiting = gate.clone();
    let slow = reaction("r9").each(move |turn, event| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            Ok(note("r9", turn.key(), &event))
        }
    });
    let running = start(&env.store, slow).await;
    append(&env.store, &stream, 0).await;
    gate.reached_by(1).await;
    env.other.done(Batch::new().append(&stream, at(0), [event("Happened", 1)])).await;
    let row = row_of("r9", &stream);
    until("the row is woken while it is held", async || env.store.row(&row).await.woken.is_some()).await;
    gate.let_through(2);
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.store, "r9", &stream).await, numbers(2));
    running.shutdown().await;
}

/// 100 keys fail at the head and one hangs. The other keys are handled all the same.
pub async fn r10_bad_and_slow_keys_delay_no_other_key(env: &Env) {
    for i in 0..100 {
        append(&env.store, &key(&format!("r10-bad-{i}")), 0).await;
    }
    append(&env.store, &key("r10-slow"), 0).await;
    for i in 0..10 {
        append(&env.store, &key(&format!("r10-good-{i}")), 0).await;
    }
    let policy = RetryPolicy { max_attempts: 99, base: Duration::from_hours(1), ..RetryPolicy::default() };
    let mixed = reaction("r10").retry(policy).each(async |turn, event| {
        let name = turn.key().to_string();
        if name.contains("bad") {
            return Err(Failure::retry("it is bad"));
        }
        if name.contains("slow") {
            std::future::pending::<()>().await;
        }
        Ok(Effects::from(note("r10", turn.key(), &event)))
    });
    let running = reactions(&env.store).with(mixed).concurrency(2).prefetch(2).start().await.unwrap();
    until("the good keys are handled", async || running.stats().reactions["r10"].handled == 10).await;
    for i in 0..10 {
        assert_eq!(noted(&env.other, "r10", &key(&format!("r10-good-{i}"))).await, [0]);
    }
    running.abort().await;
}

/// `quiesce` returns only when nothing is pending: no follow-up events, and no rows in backoff.
pub async fn r11_quiesce_returns_only_when_nothing_is_pending(env: &Env) {
    let stream = key("r11");
    // A chain of three reactions; the last one fails once.
    let next = |name: &'static str, on: &'static str, then: &'static str| {
        reaction(name).on([on]).each(async move |turn, event| {
            let follow_up = turn.follow_up(&event, self::event(then, n(&event)))?;
            Ok(Batch::new().append(&Key::new("r11", [then]).unwrap(), Expect::Any, [follow_up]))
        })
    };
    let policy = RetryPolicy { max_attempts: 9, base: secs(60), ..RetryPolicy::default() };
    let last = reaction("r11-last").on(["Third"]).retry(policy).each(async |turn, event| {
        if turn.attempt() == 1 {
            return Err(Failure::retry("once"));
        }
        Ok(Effects::from(note("r11-last", turn.key(), &event)))
    });
    let chain =
        reactions(&env.store).with(next("r11-a", "First", "Second")).with(next("r11-b", "Second", "Third"));
    let running = Arc::new(chain.with(last).start().await.unwrap());
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default(), "nothing has happened yet");
    env.store.done(Batch::new().append(&stream, Expect::Any, [event("First", 7)])).await;
    let settling = tokio::spawn({
        let running = running.clone();
        async move { running.quiesce().await }
    });
    until("the last one failed", async || running.stats().reactions["r11-last"].failed == 1).await;
    let third = Key::new("r11", ["Third"]).unwrap();
    let due = env.other.row(&row_of("r11-last", &third)).await.due.unwrap();
    assert!(due > env.now(), "it backs off");
    // `quiesce` checks after every change; this change has no effect on it.
    append(&env.store, &key("r11-other"), 0).await;
    assert!(!settling.is_finished(), "what backs off is pending");
    env.pass(secs(60));
    assert_eq!(settling.await.unwrap().unwrap(), Quiescence::default());
    assert_eq!(noted(&env.other, "r11-last", &third).await, [7], "settled: it is there");
    let first = env.store.history(&stream).await[0].id.to_string();
    for event in env.store.log().await.into_iter().filter(|event| event.stream.kind() == "r11") {
        assert_eq!(event.correlation, Some(first.clone()), "what follows belongs together");
    }
}

/// Idle workers sleep. They poll when something changes, and not because other workers poll.
pub async fn r11_idle_reactions_do_not_poll(env: &Env) {
    let idle =
        |conn: &Conn| reactions(conn).with(noting("r11-idle")).poll_interval(Duration::from_hours(1)).start();
    let (here, there) = (idle(&env.store).await.unwrap(), idle(&env.other).await.unwrap());
    append(&env.store, &key("r11-idle"), 0).await;
    until("it is handled", async || noted(&env.store, "r11-idle", &key("r11-idle")).await == [0]).await;
    here.quiesce().await.unwrap();
    let claims = || here.stats().claims + there.stats().claims;
    // Workers that wake each other would never become idle.
    until("they come to rest", async || {
        let before = claims();
        tokio::time::sleep(Duration::from_millis(50)).await;
        claims() == before
    })
    .await;
    here.shutdown().await;
    there.shutdown().await;
}

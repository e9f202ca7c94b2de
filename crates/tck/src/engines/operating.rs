//! Operator actions on reactions (R6 and parking through `tidelock_core::reactions`): views and commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidelock_core::failure::Failure;
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::reactions::{
    DefinitionState, Effects, Operator, Quiescence, Reaction, ReactionEngine, ReactionFilter, ReactionsError,
    WhenExhausted,
};
use tidelock_core::worker::WorkerHandle;

use crate::prelude::*;
use crate::reacting::*;

async fn append(conn: &Conn, stream: &Key, n: i64) {
    conn.done(Batch::new().append(stream, Expect::Any, [event("Happened", n)])).await;
}

/// Returns a reaction that fails on the number 1 until it is mended.
fn failing_on_one(name: &'static str, mended: &Arc<AtomicBool>) -> Reaction {
    let mended = Arc::clone(mended);
    reaction(name).retry(at_once(2)).each(move |turn, event| {
        let mended = Arc::clone(&mended);
        async move {
            if n(&event) == 1 && !mended.load(Ordering::SeqCst) {
                return Err(Failure::retry("1 is bad"));
            }
            Ok(Effects::from(note(turn.reaction(), turn.key(), &event)))
        }
    })
}

/// Creates three keys with the numbers 0 to 2, all blocked before 1.
async fn blocked(
    env: &Env,
    name: &'static str,
    mended: &Arc<AtomicBool>,
) -> (WorkerHandle<ReactionEngine>, [Key; 3]) {
    let streams = ["a", "b", "c"].map(|letter| Key::new(name, [letter]).unwrap());
    for stream in &streams {
        env.store.done(Batch::new().append(stream, Expect::Any, events(3))).await;
    }
    let only = KeyPrefix::kind(name);
    let running = start(&env.store, failing_on_one(name, mended).streams(only)).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 3, parked: 0 });
    (running, streams)
}

fn operator(env: &Env) -> Operator {
    Operator::new(Arc::clone(&env.other.0))
}

/// Unblock resumes where a key stopped: by names, by pattern, or all blocked keys without a condition. A dry run
/// returns the count and changes nothing.
pub async fn r6_unblocked_keys_resume_where_they_stopped(env: &Env) {
    let mended = Arc::new(AtomicBool::new(false));
    let (running, streams) = blocked(env, "r6-unblock", &mended).await;
    let operator = operator(env);
    let before = Dump::of(&env.store).await;
    for (which, count) in [
        (ReactionFilter::blocked(), 3),
        (ReactionFilter::of("r6-unblock"), 3),
        (ReactionFilter::of("r6-unblock").keys([streams[0].clone(), key("never seen")]), 1),
        (ReactionFilter::of("r6-unblock").matching("^r6-unblock .$"), 3),
        (ReactionFilter::of("r6-unblock").matching(" b"), 1),
    ] {
        assert_eq!(operator.clone().dry_run().unblock(&which).await.unwrap(), count, "{which:?}");
    }
    assert_eq!(Dump::of(&env.store).await, before, "a dry run changes nothing");
    mended.store(true, Ordering::SeqCst);
    let first = ReactionFilter::of("r6-unblock").keys([streams[0].clone()]);
    assert_eq!(operator.unblock(&first).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap().blocked, 2);
    assert_eq!(operator.unblock(&ReactionFilter::of("r6-unblock").matching("b$")).await.unwrap(), 1);
    assert_eq!(operator.unblock(&ReactionFilter::blocked()).await.unwrap(), 1);
    assert_eq!(operator.unblock(&ReactionFilter::blocked()).await.unwrap(), 0, "only what changed counts");
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    for stream in &streams {
        assert_eq!(noted(&env.store, "r6-unblock", stream).await, [0, 1, 2], "nothing twice");
    }
    running.shutdown().await;
}

/// Reset restarts the selected keys, and no others, at their first event.
pub async fn r6_reset_keys_begin_again(env: &Env) {
    let mended = Arc::new(AtomicBool::new(false));
    let (running, streams) = blocked(env, "r6-reset", &mended).await;
    mended.store(true, Ordering::SeqCst);
    let which = ReactionFilter::of("r6-reset").keys([streams[1].clone()]);
    assert_eq!(operator(env).dry_run().reset(&which).await.unwrap(), 1);
    assert_eq!(operator(env).reset(&which).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap().blocked, 2);
    assert_eq!(noted(&env.store, "r6-reset", &streams[1]).await, [0, 0, 1, 2]);
    assert_eq!(noted(&env.store, "r6-reset", &streams[0]).await, [0]);
    running.shutdown().await;
}

/// A reset of a whole reaction routes and handles everything again, exactly once, even with chosen keys. A handler that
/// was in flight commits nothing.
pub async fn r6_a_reaction_begins_again_as_a_whole(env: &Env) {
    for (name, chosen) in [("r6-streams", false), ("r6-chosen", true)] {
        let streams = ["a", "b"].map(|letter| Key::new(name, [letter]).unwrap());
        for n in 0..6 {
            append(&env.store, &streams[n as usize % 2], n).await;
        }
        let gate = Gate::closed();
        let waiting = gate.clone();
        let held = reaction(name).streams(KeyPrefix::kind(name)).each(move |turn, event| {
            let gate = waiting.clone();
            async move {
                if n(&event) >= 4 {
                    gate.pass().await;
                }
                Ok(note(turn.reaction(), turn.key(), &event))
            }
        });
        let held = if chosen { held.to(|event| Some(Key::new("by", [n(event) % 2]).unwrap())) } else { held };
        let running = start(&env.store, held).await;
        let keys = if chosen { [0, 1].map(|n| Key::new("by", [n]).unwrap()) } else { streams };
        gate.reached_by(2).await;
        for key in &keys {
            // A projection is cleared first; the reset itself undoes nothing.
            env.store.done(Batch::new().delete(&notes(name, key), Expect::Any)).await;
        }
        assert_eq!(operator(env).dry_run().reset_reaction(name).await.unwrap(), 2);
        assert_eq!(operator(env).reset_reaction(name).await.unwrap(), 2);
        gate.let_through(9);
        assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
        assert_eq!(noted(&env.other, name, &keys[0]).await, [0, 2, 4], "{name}");
        assert_eq!(noted(&env.other, name, &keys[1]).await, [1, 3, 5], "{name}");
        running.shutdown().await;
    }
}

/// An operator can retry waiting keys at once, including those that deferred themselves. The priority can be changed.
pub async fn r6_waiting_keys_are_tried_at_once(env: &Env) {
    let policy = RetryPolicy { max_attempts: 5, base: Duration::from_hours(99), ..RetryPolicy::default() };
    let waiting = reaction("r6-wait").retry(policy).each(async |turn, event| {
        let again = Arc::clone(turn.store()).document(&key("r6-again")).await?.is_some();
        match n(&event) {
            _ if again => Ok(note("r6-wait", turn.key(), &event)),
            0 => Err(Failure::retry("not yet")),
            _ => Err(Failure::defer(Due::After(Duration::from_hours(99)))),
        }
    });
    append(&env.store, &key("r6-failed"), 0).await;
    append(&env.store, &key("r6-put-off"), 1).await;
    let running = start(&env.store, waiting).await;
    let done = || running.stats().reactions["r6-wait"];
    until("both wait", async || done().failed == 1 && done().deferred == 1).await;
    env.store.done(Batch::new().put(&key("r6-again"), Expect::Absent, number(1))).await;
    let which = ReactionFilter::of("r6-wait");
    let operator = operator(env);
    assert_eq!(operator.prioritize(&which, Priority::FIRST).await.unwrap(), 2);
    assert_eq!(operator.clone().dry_run().retry_now(&which).await.unwrap(), 2);
    assert_eq!(operator.retry_now(&which).await.unwrap(), 2);
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.store, "r6-wait", &key("r6-failed")).await, [0]);
    assert_eq!(noted(&env.store, "r6-wait", &key("r6-put-off")).await, [1]);
    running.shutdown().await;
}

/// All rows can be viewed without a lease: position, lag, owner and error.
pub async fn r6_rows_are_seen_without_leasing_them(env: &Env) {
    let mended = Arc::new(AtomicBool::new(false));
    let (running, streams) = blocked(env, "r6-view", &mended).await;
    env.pass(secs(40));
    env.store.done(Batch::new().append(&streams[0], Expect::Any, [event("Happened", 3)])).await;
    until("it is routed", async || running.stats().reactions["r6-view"].routed == 10).await;
    env.pass(secs(2));
    let before = Dump::of(&env.store).await;
    let (operator, which) = (operator(env), ReactionFilter::of("r6-view"));
    let first = operator.keys(&which, Page::first(2)).await.unwrap();
    let next = operator.keys(&which, Page::after(&first.next.clone().unwrap(), 2)).await.unwrap();
    let all: Vec<_> = first.rows.iter().chain(&next.rows).collect();
    assert_eq!(all.iter().map(|view| view.key.clone()).collect::<Vec<_>>(), streams);
    let view = all[0];
    let history = env.store.history(&streams[0]).await;
    assert_eq!((view.reaction.as_str(), view.position), ("r6-view", Some(history[0].position)));
    assert_eq!((view.lag.events, view.lag.at_least, view.lag.behind), (3, false, secs(42)));
    assert_eq!((view.attempts, view.owner.clone(), view.fence), (2, None, None));
    assert_eq!(view.blocked.as_ref().unwrap().reason, "gave up after 2 attempts: 1 is bad");
    assert_eq!(all[1].lag.events, 2);
    let reaction = operator.reactions().await.unwrap().pop().unwrap();
    assert_eq!((reaction.name.as_str(), reaction.keys, reaction.blocked_keys), ("r6-view", 3, 3));
    assert_eq!((reaction.lag.events, reaction.owner.as_ref()), (0, Some(running.owner())));
    assert_eq!(Dump::of(&env.store).await, before);
    let unknown = operator.unblock(&ReactionFilter::of("r6-veiw")).await.unwrap_err();
    assert!(matches!(&unknown, ReactionsError::Unknown { known, .. } if known == &["r6-view"]), "{unknown}");
    assert!(
        operator.unblock(&ReactionFilter::blocked().matching("^a")).await.is_err(),
        "a pattern of which reaction?"
    );
    running.shutdown().await;
}

/// With parking, an event that exhausts its attempts is set aside and its key continues. The event can be replayed,
/// here first without success and then with success.
pub async fn r6_a_parked_event_is_replayed(env: &Env) {
    let mended = Arc::new(AtomicBool::new(false));
    let parking = failing_on_one("r6-park", &mended).when_exhausted(WhenExhausted::Park);
    let stream = key("r6-park");
    env.store.done(Batch::new().append(&stream, Expect::Any, events(4))).await;
    let running = start(&env.store, parking).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 });
    assert_eq!(noted(&env.store, "r6-park", &stream).await, [0, 2, 3], "the key continues");
    let operator = operator(env);
    let parked = operator.parked("r6-park", Page::first(9)).await.unwrap().rows;
    assert_eq!((parked.len(), &parked[0].key, parked[0].attempts), (1, &stream, 2));
    assert_eq!(parked[0].event, env.store.history(&stream).await[1]);
    assert_eq!((parked[0].error.as_str(), parked[0].at), ("gave up after 2 attempts: 1 is bad", env.now()));
    env.pass(secs(5));
    let which = ReactionFilter::of("r6-park");
    assert_eq!(operator.clone().dry_run().replay_parked(&which).await.unwrap(), 1);
    assert_eq!(operator.replay_parked(&which).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap().parked, 1, "it failed again");
    let parked = operator.parked("r6-park", Page::first(9)).await.unwrap().rows;
    assert_eq!((parked[0].error.as_str(), parked[0].replays, parked[0].at), ("1 is bad", 1, env.now()));
    mended.store(true, Ordering::SeqCst);
    let position = parked[0].event.position;
    assert_eq!(operator.replay_parked(&which.clone().at([Position(position.0 + 1)])).await.unwrap(), 0);
    assert_eq!(operator.replay_parked(&which.at([position])).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    assert_eq!(noted(&env.store, "r6-park", &stream).await, [0, 2, 3, 1]);
    running.shutdown().await;
}

/// While a parked event is replayed, no other worker handles its key.
pub async fn r6_a_replay_has_its_key_to_itself(env: &Env) {
    let stream = key("r6-alone");
    let (turnstile, mended) = (Turnstile::default(), Arc::new(AtomicBool::new(false)));
    let (passing, ready) = (turnstile.clone(), mended.clone());
    let parking = reaction("r6-alone").when_exhausted(WhenExhausted::Park).each(move |turn, event| {
        let (turnstile, mended) = (passing.clone(), ready.clone());
        async move {
            turnstile.pass(turn.key()).await;
            if !mended.load(Ordering::SeqCst) {
                return Err(Failure::permanent("not yet"));
            }
            Ok(Effects::from(note(turn.reaction(), turn.key(), &event)))
        }
    });
    env.store.done(Batch::new().append(&stream, Expect::Any, events(10))).await;
    let running = start(&env.store, parking).await;
    assert_eq!(running.quiesce().await.unwrap().parked, 10);
    mended.store(true, Ordering::SeqCst);
    assert_eq!(operator(env).replay_parked(&ReactionFilter::of("r6-alone")).await.unwrap(), 10);
    for n in 10..20 {
        append(&env.store, &stream, n).await;
    }
    // A replay that finds its key leased is retried shortly after.
    assert_eq!(quiesce_in_time(env, &running).await, Quiescence::default());
    let mut seen = noted(&env.store, "r6-alone", &stream).await;
    seen.sort_unstable();
    assert_eq!((seen, turnstile.passed()), ((0..20).collect(), 30));
    running.shutdown().await;
}

/// An operator parks the event that blocks a key, and the key continues. A dropped event is gone.
pub async fn r6_an_operator_parks_and_drops(env: &Env) {
    let mended = Arc::new(AtomicBool::new(false));
    let (running, streams) = blocked(env, "r6-drop", &mended).await;
    let operator = operator(env);
    let two = ReactionFilter::of("r6-drop").keys([streams[0].clone(), streams[1].clone()]);
    assert_eq!(operator.clone().dry_run().park(&two).await.unwrap(), 2);
    assert_eq!(operator.park(&two).await.unwrap(), 2);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 1, parked: 2 });
    assert_eq!(noted(&env.store, "r6-drop", &streams[0]).await, [0, 2]);
    let parked = operator.parked("r6-drop", Page::first(1)).await.unwrap();
    assert_eq!(parked.rows[0].error, "gave up after 2 attempts: 1 is bad");
    assert!(parked.next.is_some());
    assert_eq!(operator.drop_parked(&ReactionFilter::of("r6-drop").matching("a$")).await.unwrap(), 1);
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 1, parked: 1 });
    mended.store(true, Ordering::SeqCst);
    assert_eq!(operator.reset(&ReactionFilter::of("r6-drop").keys([streams[1].clone()])).await.unwrap(), 1);
    assert_eq!(
        running.quiesce().await.unwrap(),
        Quiescence { blocked: 1, parked: 0 },
        "handled again, so not parked"
    );
    assert_eq!(noted(&env.store, "r6-drop", &streams[1]).await, [0, 2, 0, 1, 2]);
    running.shutdown().await;
}

/// An event that kills its worker is parked, and not the one before it.
pub async fn r4_the_event_that_kills_its_worker_is_parked(env: &Env) {
    let stream = key("r4-park");
    env.store.done(Batch::new().append(&stream, Expect::Any, events(4))).await;
    let reached = Arc::new(AtomicUsize::new(0));
    for attempt in 1..=3 {
        let reaching = reached.clone();
        // The events arrive in a batch, so that the culprit is not known at first.
        let deadly = reaction("r4-park").retry(at_once(3)).when_exhausted(WhenExhausted::Park).batch(
            move |turn, events| {
                let reached = reaching.clone();
                async move {
                    if events.iter().any(|event| n(event) == 2) {
                        reached.fetch_add(1, Ordering::SeqCst);
                        std::future::pending::<()>().await;
                    }
                    let noted = events.iter().map(|event| note("r4-park", turn.key(), event));
                    Ok(noted.fold(Batch::new(), Batch::and))
                }
            },
        );
        let running = start(&env.store, deadly).await;
        until("it kills its worker", async || reached.load(Ordering::SeqCst) == attempt).await;
        running.abort().await;
        env.pass(LEASE);
    }
    // The first batch had four events, so the two before the culprit were handled later.
    assert_eq!(noted(&env.store, "r4-park", &stream).await, [0, 1]);
    let last = noting("r4-park").retry(at_once(2)).when_exhausted(WhenExhausted::Park);
    let running = start(&env.store, last).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 });
    assert_eq!(noted(&env.store, "r4-park", &stream).await, [0, 1, 3]);
    running.shutdown().await;
}

/// A reaction without workers can be deleted as a whole: rows, inboxes, parked events and its name. Restarted with the
/// same definition it does nothing; with another definition it starts at the first event.
pub async fn r6_an_ended_reaction_leaves_nothing(env: &Env) {
    let (name, chosen) = ("r6-end", |event: &Event| Some(Key::new("r6-hall", [n(event) % 2]).unwrap()));
    let make = || {
        let parks =
            reaction(name).streams(KeyPrefix::kind(name)).to(chosen).when_exhausted(WhenExhausted::Park);
        parks.each(async |turn, event| {
            if n(&event) == 1 {
                return Err(Failure::permanent("1 is bad"));
            }
            Ok(note(turn.reaction(), turn.key(), &event))
        })
    };
    let stream = Key::new(name, ["a"]).unwrap();
    env.store.done(Batch::new().append(&stream, Expect::Any, events(5))).await;
    let running = start(&env.store, make()).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence { blocked: 0, parked: 1 });
    let operator = operator(env);
    assert_eq!(operator.behind(name).await.unwrap(), Some("events are parked"));
    let busy = operator.end_reaction(name).await;
    assert!(matches!(&busy, Err(ReactionsError::Running { .. })), "{busy:?}");
    running.shutdown().await;
    assert_eq!(operator.clone().dry_run().end_reaction(name).await.unwrap(), 2);
    assert_eq!(operator.end_reaction(name).await.unwrap(), 2);
    assert!(matches!(operator.end_reaction(name).await, Err(ReactionsError::Unknown { .. })));
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0);
    let inboxes = env.store.streams(&KeyPrefix::kind("tidelock.inbox"), Page::first(9)).await.unwrap().rows;
    assert_eq!(inboxes.len(), 2);
    assert!(inboxes.iter().all(|inbox| inbox.first.is_none()), "{inboxes:?}");
    let parked = env.store.documents(&KeyPrefix::kind("tidelock.parked"), Page::first(9)).await.unwrap();
    assert_eq!(parked.rows, []);
    let even = Key::new("r6-hall", [0]).unwrap();
    assert_eq!(noted(&env.store, name, &even).await, [0, 2, 4]);
    let ended = start(&env.store, make()).await;
    assert_eq!(ended.stats().reactions[name].standing, DefinitionState::Ended);
    let running = start(&env.other, make().revision(2)).await;
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.store, name, &even).await, [0, 2, 4, 0, 2, 4]);
    running.shutdown().await;
    ended.shutdown().await;
}

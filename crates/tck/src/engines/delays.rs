//! Delays that failures ask for (R2, R7, W16 and C4): a retry comes no earlier, whatever the policy says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_core::failure::Failure;
use tidelock_core::projections::{Projection, Projections, ReadModel};
use tidelock_core::schedule::{Overlap, Schedule};
use tidelock_core::workflow::{Ctx, Workflow};

use crate::prelude::*;
use crate::reacting::{at_once, note, noted, reaction, start, until};
use crate::running::{Tally, client, worker};
use crate::scheduling::{HOUR, MINUTE, pass, scheduler, set};

const JOB: Workflow<u32, u32> = Workflow::new("job");

fn row_of(reaction: &str, stream: &Key) -> Key {
    let mut args = vec![Arg::from(reaction), Arg::Str(stream.kind())];
    args.extend(stream.args());
    Key::of("tidelock.reaction", &args).unwrap()
}

/// A step is not retried before the wait that its failure asks for, although its policy retries at once. A deferral is such a
/// wait.
pub async fn w16_a_step_is_not_retried_before_the_delay_of_its_failure(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let step = cx.retry(at_once(3)).step("call", async |step| {
            counted.add("call");
            match step.attempt() {
                1 => Err(Failure::retry_after(HOUR, "busy")),
                2 => Err(Failure::defer(Due::After(HOUR))),
                attempt => Ok(attempt),
            }
        });
        Ok(step.await?)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    for attempts in 1..=2 {
        until("the attempt failed", async || tally.of("call") == attempts && driving.stats().active == 0)
            .await;
        // A worker waits for times that are close in place, and `drive` with it.
        env.pass(HOUR - MINUTE);
        driving.drive("r").await.unwrap();
        assert_eq!(tally.of("call"), attempts, "a look before its time changes nothing");
        env.pass(MINUTE);
    }
    assert_eq!(run.result().await.unwrap(), 3);
    driving.shutdown().await;
}

/// A reaction does not retry an event before the wait that the failure asks for. The attempt counts, and new events do not cut
/// the wait short.
pub async fn r2_an_event_is_not_retried_before_the_delay_of_its_failure(env: &Env) {
    let stream = key("r2-busy");
    let fails = Arc::new(AtomicBool::new(true));
    let busy = reaction("r2-busy").retry(at_once(2)).each(async move |cx, event| {
        if fails.swap(false, Ordering::SeqCst) {
            return Err(Failure::retry_after(HOUR, "busy"));
        }
        Ok(note("r2-busy", cx.key(), &event))
    });
    let running = start(&env.store, busy).await;
    env.store.done(Batch::new().append(&stream, Expect::Any, events(1))).await;
    until("it failed", async || running.stats().reactions["r2-busy"].failed == 1).await;
    env.other.done(Batch::new().append(&stream, Expect::Any, events(1))).await;
    until("the new event is routed", async || running.stats().reactions["r2-busy"].routed == 2).await;
    let row = env.other.row(&row_of("r2-busy", &stream)).await;
    assert_eq!((row.attempts, row.due), (1, Some(env.now().after(HOUR))));
    assert!(noted(&env.other, "r2-busy", &stream).await.is_empty());
    env.pass(HOUR);
    running.quiesce().await.unwrap();
    assert_eq!(noted(&env.other, "r2-busy", &stream).await.len(), 2);
    running.shutdown().await;
}

/// A projection that fails is blocked, because a retry would fail again. If its failure names a time, it runs again then.
pub async fn r7_a_projection_is_retried_only_when_its_failure_names_a_time(env: &Env) {
    let ready = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&ready);
    let late = Projection::new("late", 1, move |_, rows| {
        if !mended.load(Ordering::SeqCst) {
            return Err(Failure::retry_after(HOUR, "not yet"));
        }
        Ok(rows.put(["row"], &1)?)
    });
    let never = Projection::new("never", 1, |_, _| Err(Failure::new("not at all")));
    let stream = key("r7-late");
    let running = Projections::new(Arc::clone(&env.store.0)).poll_interval(Duration::from_millis(5));
    let running = running.with(late).with(never).start().await.unwrap();
    env.store.done(Batch::new().append(&stream, Expect::Any, events(1))).await;
    let row = async |projection: &str| {
        env.other.0.work(&row_of(&format!("projection:{projection}/v1"), &stream)).await.unwrap()
    };
    until("both failed", async || {
        row("late").await.is_some_and(|row| row.due == Some(env.now().after(HOUR)))
            && row("never").await.is_some_and(|row| row.blocked.is_some())
    })
    .await;
    ready.store(true, Ordering::SeqCst);
    env.pass(HOUR);
    let rows = ReadModel::new(Arc::clone(&env.other.0), "late");
    until("it is projected", async || rows.get::<u32>(["row"]).await.unwrap() == Some(1)).await;
    running.shutdown().await;
}

/// A run of a task is not retried before the wait that its failure asks for, nor before the retry delay, whether or not runs
/// overlap. A deferral is such a wait.
pub async fn c4_a_run_is_not_retried_before_the_delay_of_its_failure(env: &Env) {
    set(env, "2026-01-15T12:00:30Z");
    let (alone, beside) = (Tally::default(), Tally::default());
    let busy = |name, tally: &Tally| {
        let counted = tally.clone();
        Schedule::new(name).cron("0 12 * * *").retry(MINUTE).run(async move |tick| {
            counted.add(&tick.key());
            match tick.attempt() {
                1 => Err(Failure::retry_after(HOUR, "busy")),
                2 => Err(Failure::defer(Due::After(2 * HOUR))),
                3 => Err(Failure::retry_after(TICK, "busy")),
                _ => Ok(()),
            }
        })
    };
    let tasks = scheduler(&env.store).with(busy("alone", &alone));
    let running = tasks.with(busy("beside", &beside).overlap(Overlap::Allow)).start().await.unwrap();
    running.quiesce().await.unwrap();
    let runs = |tally: &Tally| tally.all().iter().map(|(_, runs)| runs).sum::<usize>();
    for (attempt, wait) in [(1, HOUR), (2, 2 * HOUR), (3, MINUTE)] {
        pass(env, &running, wait - TICK).await;
        assert_eq!((runs(&alone), runs(&beside)), (attempt, attempt), "a tick before {wait:?}");
        pass(env, &running, TICK).await;
    }
    assert_eq!((runs(&alone), runs(&beside)), (4, 4));
    running.shutdown().await;
}

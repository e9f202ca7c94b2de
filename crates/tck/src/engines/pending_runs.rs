//! Requested runs of scheduled tasks (C4–C6): they are retried until they succeed, whatever the schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_core::failure::Failure;
use tidelock_core::schedule::{Schedule, TickKind, TickOutcome as Ran};

use crate::prelude::*;
use crate::reacting::until;
use crate::scheduling::*;

const NOON: &str = "2026-01-15T12:00:30Z";

/// Returns a task that fails while a service is down.
fn depending(log: &Log, down: &Arc<AtomicBool>) -> Schedule {
    let (log, down) = (log.clone(), Arc::clone(down));
    Schedule::new("t").cron("0 * * * *").retry(5 * MINUTE).run(move |fire| {
        let failed = down.load(Ordering::SeqCst);
        if !failed {
            log.add(&fire);
        }
        async move { if failed { Err(Failure::retry("the service is down")) } else { Ok(()) } }
    })
}

/// A backfill during an outage is completed afterwards, even if scheduled fires occur in between.
pub async fn c4_a_backfill_survives_an_outage(env: &Env) {
    set(env, NOON);
    let (log, down) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let running = scheduler(&env.store).with(depending(&log, &down)).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(log.take(), ["12:00"]);
    down.store(true, Ordering::SeqCst);
    let (after, to) = ("2026-01-15T03:00:00Z".parse().unwrap(), "2026-01-15T08:00:00Z".parse().unwrap());
    assert_eq!(schedules(&env.other).backfill("t", after, to).await.unwrap(), 5);
    running.quiesce().await.unwrap();
    assert!(log.take().is_empty());
    down.store(false, Ordering::SeqCst);
    pass(env, &running, 5 * MINUTE).await;
    let mut ran = log.take();
    ran.sort();
    assert_eq!(ran, ["04:00", "05:00", "06:00", "07:00", "08:00"]);
    // The same, but the schedule fires before the retry is due.
    down.store(true, Ordering::SeqCst);
    set(env, "2026-01-15T12:58:00Z");
    schedules(&env.other).backfill("t", after, to).await.unwrap();
    running.quiesce().await.unwrap();
    down.store(false, Ordering::SeqCst);
    pass(env, &running, 2 * MINUTE).await;
    assert_eq!(log.take(), ["13:00"]);
    pass(env, &running, 3 * MINUTE).await;
    let mut ran = log.take();
    ran.sort();
    assert_eq!(ran, ["04:00", "05:00", "06:00", "07:00", "08:00"]);
    let view = schedules(&env.other).show("t").await.unwrap();
    assert_eq!(view.record.pending_retry_until, None, "{view:?}");
    running.shutdown().await;
}

/// Every requested run is completed, even if all of them fail first and the task is paused.
pub async fn c6_every_run_that_was_asked_for_is_done(env: &Env) {
    set(env, NOON);
    let (log, down) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let running = scheduler(&env.store).with(depending(&log, &down)).start().await.unwrap();
    running.quiesce().await.unwrap();
    log.take();
    down.store(true, Ordering::SeqCst);
    let tasks = schedules(&env.other);
    for _ in 0..3 {
        tasks.run_now("t").await.unwrap();
    }
    tasks.pause("t", "a case").await.unwrap();
    running.quiesce().await.unwrap();
    down.store(false, Ordering::SeqCst);
    pass(env, &running, 5 * MINUTE).await;
    assert_eq!(log.take().len(), 3);
    let done = tasks.history("t", 100).await.unwrap();
    let manual = done.iter().filter(|run| run.kind == TickKind::Manual);
    let (failed, succeeded): (Vec<_>, Vec<_>) = manual.partition(|run| run.outcome == Ran::Failed);
    assert_eq!((failed.len(), succeeded.len()), (3, 3), "{done:?}");
    assert!(succeeded.iter().all(|run| run.attempt == 2), "{done:?}");
    running.shutdown().await;
}

/// A requested run that a shutdown interrupted runs again, even if the schedule fires first.
pub async fn c5_a_run_that_was_asked_for_survives_a_shutdown(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let running = scheduler(&env.store).with(noting("t", "0 * * * *", &log)).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
    log.take();
    let noted = log.clone();
    let endless = Schedule::new("t").cron("0 * * * *").run(move |fire| {
        noted.add(&fire);
        std::future::pending::<Result<(), Failure>>()
    });
    let running = scheduler(&env.store).shutdown_timeout(Duration::ZERO).with(endless).start().await.unwrap();
    let asked = schedules(&env.other).run_now("t").await.unwrap();
    until("it runs", async || log.len() == 1).await;
    running.shutdown().await;
    log.take();
    env.pass(HOUR);
    let running = scheduler(&env.other).with(noting("t", "0 * * * *", &log)).start().await.unwrap();
    running.quiesce().await.unwrap();
    let mut ran = log.take();
    ran.sort();
    assert_eq!(ran, ["12:00", "13:00"], "what was asked for at noon, and the fire of one o'clock");
    let done = schedules(&env.other).history("t", 10).await.unwrap();
    let manual =
        done.iter().find(|run| run.kind == TickKind::Manual && run.outcome == Ran::Succeeded).unwrap();
    assert!(asked.starts_with("t:2026-01-15T12:00:30"), "{asked}");
    assert_eq!((short(manual.fire), manual.attempt), ("12:00".to_owned(), 2));
    running.shutdown().await;
}

//! Further schedule behaviour (C1–C11 through `tidelock_core::schedule`): operators, policies, workflows, and bad
//! records.

use std::sync::Arc;

use tidelock_core::failure::Failure;
use tidelock_core::schedule::{
    CatchUp, Overlap, Schedule, ScheduleActivity, ScheduleError, TickKind, TickOutcome as Ran,
};
use tidelock_core::workflow::{Ctx, Workflow, WorkflowClient};

use crate::prelude::*;
use crate::reacting::until;
use crate::running::{Gate, Tally, worker};
use crate::scheduling::*;

const NOON: &str = "2026-01-15T12:00:30Z";
const JOB: Workflow<String, String> = Workflow::new("job");

fn task_key(name: &str) -> Key {
    Key::new("tidelock.task", [name]).unwrap()
}

/// Catch-up policies: all fires within a window, in order; or none, except those that are only a little late.
pub async fn c2_catching_up_goes_by_the_policy(env: &Env) {
    set(env, NOON);
    let (all, none) = (Log::default(), Log::default());
    let start = async |conn| {
        let tasks = scheduler(conn).with(noting("all", "0 * * * *", &all).catch_up(CatchUp::All(4 * HOUR)));
        let running = tasks.with(noting("none", "0 * * * *", &none).catch_up(CatchUp::None(MINUTE)));
        let running = running.start().await.unwrap();
        running.quiesce().await.unwrap();
        running
    };
    start(&env.store).await.shutdown().await;
    assert_eq!((all.take().len(), none.take().len()), (1, 1));
    env.pass(10 * HOUR + 30 * MINUTE);
    let running = start(&env.other).await;
    assert_eq!(all.take(), ["19:00", "20:00", "21:00", "22:00"]);
    assert!(none.take().is_empty());
    pass(env, &running, 30 * MINUTE).await;
    assert_eq!((all.take(), none.take()), (vec!["23:00".to_owned()], vec!["23:00".to_owned()]));
    running.shutdown().await;
}

/// Past fires are run on demand under their normal keys, even while the task is paused.
pub async fn c2_times_that_have_passed_are_run_on_demand(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let running = scheduler(&env.store).with(noting("t", "0 * * * *", &log)).start().await.unwrap();
    running.quiesce().await.unwrap();
    log.take();
    let tasks = schedules(&env.other);
    tasks.pause("t", "a case").await.unwrap();
    let (after, to) = ("2026-01-15T05:00:00Z".parse().unwrap(), "2026-01-15T08:00:00Z".parse().unwrap());
    assert_eq!(tasks.backfill("t", after, to).await.unwrap(), 3);
    running.quiesce().await.unwrap();
    assert_eq!(log.take(), ["06:00", "07:00", "08:00"]);
    let history = tasks.history("t", 10).await.unwrap();
    assert!(history.iter().take(3).all(|run| run.kind == TickKind::Backfill), "{history:?}");
    let many = tasks.backfill("t", "2000-01-01T00:00:00Z".parse().unwrap(), to).await.unwrap_err();
    assert!(matches!(many, ScheduleError::TooMany { .. }), "{many}");
    assert_eq!(tasks.backfill("t", to, to).await.unwrap(), 0);
    running.shutdown().await;
}

/// Fires run concurrently where that is allowed, each on a separate row, and each once.
pub async fn c3_fires_run_beside_each_other_when_that_is_allowed(env: &Env) {
    set(env, NOON);
    let (log, gate) = (Log::default(), Gate::closed());
    let (noted, passed) = (log.clone(), gate.clone());
    let task = Schedule::new("t").cron("* * * * *").overlap(Overlap::Allow).run(move |fire| {
        noted.add(&fire);
        let passed = passed.clone();
        async move {
            passed.pass().await;
            if fire.attempt() == 1 && short(fire.time()) == "12:02" {
                Err(Failure::retry("once"))
            } else {
                Ok(())
            }
        }
    });
    let running = scheduler(&env.store).with(task.retry(secs(30))).start().await.unwrap();
    for minute in 1..=3 {
        until("one more runs", async || log.len() == minute).await;
        if minute < 3 {
            env.pass(MINUTE);
        }
    }
    assert_eq!(schedules(&env.other).show("t").await.unwrap().open, 3);
    gate.open(3);
    running.quiesce().await.unwrap();
    let view = schedules(&env.other).show("t").await.unwrap();
    assert_eq!((view.runs, view.failures, view.open), (3, 1, 1), "{view:?}");
    gate.open(100);
    pass(env, &running, secs(29)).await;
    assert_eq!(log.take(), ["12:00", "12:01", "12:02"]);
    pass(env, &running, secs(1)).await;
    let mut then = log.take();
    then.sort();
    assert_eq!(then, ["12:02", "12:03"], "the failure again, and the next fire");
    assert_eq!(schedules(&env.other).show("t").await.unwrap().open, 0);
    running.shutdown().await;
}

/// A task that exceeds its timeout is cancelled. A panic is a failure. A permanent failure waits for the next fire.
pub async fn c4_runs_fail_in_many_ways(env: &Env) {
    set(env, NOON);
    let slow = Schedule::new("slow").cron("0 * * * *").timeout(Duration::from_millis(20));
    let slow = slow.run(async |_| std::future::pending::<Result<(), Failure>>().await);
    let panics = Schedule::new("panics")
        .cron("0 * * * *")
        .run(async |_| panic!("of all things") as Result<(), Failure>);
    let never =
        Schedule::new("never").cron("0 * * * *").run(async |_| Err::<(), _>(Failure::permanent("no")));
    let refused = Schedule::new("refused")
        .cron("0 * * * *")
        .run(async |_| Ok(Batch::new().guard_document(&key("nowhere"), Expect::Exists)));
    let tasks = scheduler(&env.store).with(slow).with(panics).with(never).with(refused);
    let running = tasks.start().await.unwrap();
    running.quiesce().await.unwrap();
    let tasks = schedules(&env.other);
    for (name, error, again) in [
        ("slow", "it took longer than its time limit of 20ms", true),
        ("panics", "the task panicked: of all things", true),
        ("never", "no", false),
        ("refused", "its effects are refused", true),
    ] {
        let history = tasks.history(name, 10).await.unwrap();
        assert_eq!((history.len(), &history[0].outcome), (1, &Ran::Failed), "{name}: {history:?}");
        assert!(history[0].error.as_deref().unwrap().contains(error), "{name}: {history:?}");
        let view = tasks.show(name).await.unwrap();
        assert_eq!(view.record.pending_retry_until.is_some(), again, "{name}: {view:?}");
    }
    running.shutdown().await;
}

/// A shutdown cancels a run that does not end in time and releases it. The fire runs again elsewhere, at once.
pub async fn c5_an_aborted_run_repeats_elsewhere(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let noted = log.clone();
    let endless = Schedule::new("t").cron("0 * * * *").run(move |fire| {
        noted.add(&fire);
        std::future::pending::<Result<(), Failure>>()
    });
    let running = scheduler(&env.store).shutdown_timeout(Duration::ZERO).with(endless).start().await.unwrap();
    until("it runs", async || log.len() == 1).await;
    running.shutdown().await;
    let running = scheduler(&env.other).with(noting("t", "0 * * * *", &log)).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(log.all(), ["12:00", "12:00"]);
    let history = schedules(&env.other).history("t", 10).await.unwrap();
    let ran: Vec<_> = history.iter().map(|run| (run.outcome.word(), run.attempt)).collect();
    assert_eq!(ran, [("succeeded", 2), ("interrupted", 1)]);
    running.shutdown().await;
}

/// A fire that kills its process every time fails after some attempts, and backs off like a failure.
pub async fn c5_a_fire_that_kills_its_process_has_failed(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let deadly = || {
        let log = log.clone();
        Schedule::new("t").cron("0 0 * * *").run(move |fire| {
            log.add(&fire);
            std::future::pending::<Result<(), Failure>>()
        })
    };
    set(env, "2026-01-15T00:00:00Z");
    for attempt in 1..=3 {
        let dying = scheduler(&env.store).with(deadly()).start().await.unwrap();
        until("it runs", async || log.len() == attempt).await;
        dying.abort().await;
        env.pass(2 * crate::reacting::LEASE);
    }
    let running = scheduler(&env.store).with(deadly()).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(log.len(), 3, "it is not run at once a fourth time");
    let view = schedules(&env.other).show("t").await.unwrap();
    assert!(matches!(view.doing, ScheduleActivity::Retries { .. }) && view.failures == 1, "{view:?}");
    running.shutdown().await;
}

/// A paused task does not run, and missed fires are not caught up. A manual trigger still runs.
pub async fn c6_paused_tasks_rest_and_run_by_hand(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let running = scheduler(&env.store).with(noting("t", "* * * * *", &log)).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(log.take().len(), 1);
    let tasks = schedules(&env.other);
    tasks.pause("t", "the printer is broken").await.unwrap();
    pass(env, &running, 5 * MINUTE).await;
    assert!(log.take().is_empty());
    let view = tasks.show("t").await.unwrap();
    assert!(
        matches!(&view.doing, ScheduleActivity::Paused { reason, .. } if reason == "the printer is broken"),
        "{view:?}"
    );
    let (first, second) = (tasks.run_now("t").await.unwrap(), tasks.run_now("t").await.unwrap());
    assert_ne!(first, second, "two that are asked for at one instant are two");
    running.quiesce().await.unwrap();
    assert_eq!(log.take().len(), 2);
    assert_eq!(tasks.history("t", 1).await.unwrap()[0].kind, TickKind::Manual);
    tasks.resume("t").await.unwrap();
    running.quiesce().await.unwrap();
    assert!(log.take().is_empty(), "nothing is caught up");
    pass(env, &running, MINUTE).await;
    assert_eq!(log.take(), ["12:06"]);
    running.shutdown().await;
}

/// The history is bounded by its configured length, however often a task runs.
pub async fn c6_the_history_is_bounded(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let task = noting("t", "* * * * *", &log).keep(5);
    let running = scheduler(&env.store).with(task).start().await.unwrap();
    running.quiesce().await.unwrap();
    for _ in 0..60 {
        pass(env, &running, MINUTE).await;
    }
    assert_eq!(log.len(), 61);
    let kept = env.other.history(&task_key("t")).await.len();
    assert!((5..=5 + 24).contains(&kept), "{kept} are kept");
    running.shutdown().await;
}

/// An undecodable record is quarantined as a whole. Its task starts afresh, and the others are not affected.
pub async fn c10_a_bad_record_is_put_into_quarantine(env: &Env) {
    set(env, NOON);
    let (bad, good) = (Log::default(), Log::default());
    let tasks = scheduler(&env.store).with(noting("bad", "* * * * *", &bad));
    let running = tasks.with(noting("good", "* * * * *", &good)).start().await.unwrap();
    running.quiesce().await.unwrap();
    let nonsense = payload(json!({ "name": "bad", "progress": "none to speak of" }));
    env.other.done(Batch::new().put(&task_key("bad"), Expect::Exists, nonsense.clone())).await;
    let views = schedules(&env.other).list().await.unwrap();
    assert!(matches!(views[0].doing, ScheduleActivity::Broken { .. }), "{views:?}");
    assert!(matches!(schedules(&env.other).pause("bad", "").await, Err(ScheduleError::Broken { .. })));
    pass(env, &running, MINUTE).await;
    pass(env, &running, MINUTE).await;
    assert_eq!((bad.len(), good.len()), (3, 3));
    let quarantine = Key::new("tidelock.task-quarantine", ["bad"]).unwrap();
    assert_eq!(env.other.doc(&quarantine).await.unwrap().value, nonsense);
    assert_eq!(running.shutdown().await.quarantined, 1);
}

/// A task starts a workflow once for each fire, under an id built from the task and the fire.
pub async fn c11_a_workflow_is_started_once_for_each_fire(env: &Env) {
    set(env, NOON);
    let driving =
        worker(&env.store).register(JOB, async |_: &Ctx, fire: String| Ok(fire + "!")).start().await.unwrap();
    let task = || Schedule::new("t").cron("0 * * * *").start(JOB, |fire| short(fire.time()));
    let (one, two) = (scheduler(&env.store).with(task()), scheduler(&env.other).with(task()));
    let (one, two) = (one.start().await.unwrap(), two.start().await.unwrap());
    one.quiesce().await.unwrap();
    pass(env, &two, HOUR).await;
    let client = WorkflowClient::new(Arc::clone(&env.other.0));
    for (run, output) in [("t:2026-01-15T12:00:00Z", "12:00!"), ("t:2026-01-15T13:00:00Z", "13:00!")] {
        assert_eq!(client.handle(JOB, run).result().await.unwrap(), output);
    }
    // A second request finds them started already.
    let tasks = schedules(&env.other);
    let (after, to) = ("2026-01-15T11:00:00Z".parse().unwrap(), env.now());
    assert_eq!(tasks.backfill("t", after, to).await.unwrap(), 2);
    one.quiesce().await.unwrap();
    let history = tasks.history("t", 10).await.unwrap();
    let started = |run: &str| Ran::Started { run: run.to_owned() };
    let ran: Vec<_> = history.iter().rev().map(|run| (run.kind, run.outcome.clone())).collect();
    let (first, second) = (started("t:2026-01-15T12:00:00Z"), started("t:2026-01-15T13:00:00Z"));
    assert_eq!(
        ran,
        [
            (TickKind::Scheduled, first.clone()),
            (TickKind::Scheduled, second.clone()),
            (TickKind::Backfill, first),
            (TickKind::Backfill, second)
        ]
    );
    let runs = env.other.documents(&KeyPrefix::kind("tidelock.run"), Page::first(10)).await.unwrap();
    assert_eq!(runs.rows.len(), 2);
    let _ = (one.shutdown().await, two.shutdown().await, driving.shutdown().await);
}

/// An interval fires repeatedly, a future instant fires once, and a past instant fires at once.
pub async fn c1_intervals_and_instants_fire_in_their_time(env: &Env) {
    set(env, NOON);
    let tally = Tally::default();
    let task = |name: &str| {
        let counted = tally.clone();
        Schedule::new(name).run(move |fire| {
            counted.add(fire.task());
            async { Ok(()) }
        })
    };
    let every = task("every").every(90 * secs(1));
    let (soon, past) =
        (task("soon").at(env.now().after(MINUTE)), task("past").at("2026-01-01T00:00:00Z".parse().unwrap()));
    let running = scheduler(&env.store).with(every).with(soon).with(past).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(tally.all(), [("past".to_owned(), 1)]);
    for _ in 0..18 {
        pass(env, &running, secs(10)).await;
    }
    let expected = [("every", 2), ("past", 1), ("soon", 1)];
    assert_eq!(tally.all(), expected.map(|(name, count)| (name.to_owned(), count)));
    let view = schedules(&env.other).show("soon").await.unwrap();
    assert_eq!((view.doing, view.next), (ScheduleActivity::Waits { until: None }, None));
    running.shutdown().await;
}

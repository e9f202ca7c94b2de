//! Schedules (C1–C11 through `tidelock_core::schedule`): tasks fire once for each of their times, whatever happens in
//! between.

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::failure::Failure;
use tidelock_core::schedule::{
    Overlap, Schedule, ScheduleActivity, ScheduleError, TickKind, TickOutcome as Ran,
};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::{Gate, Tally};
use crate::scheduling::*;

const NOON: &str = "2026-01-15T12:00:30Z";

/// A new task runs at once if the current minute is one of its times, otherwise at its next time.
pub async fn c1_a_new_task_runs_at_once_only_if_the_minute_matches(env: &Env) {
    set(env, NOON);
    let (now, later) = (Log::default(), Log::default());
    let tasks = scheduler(&env.store).with(noting("now", "0 12 * * *", &now));
    let running = tasks.with(noting("later", "1 12 * * *", &later)).start().await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!((now.all(), later.all()), (vec!["12:00".to_owned()], vec![]));
    pass(env, &running, secs(29)).await;
    assert_eq!(later.len(), 0);
    pass(env, &running, secs(1)).await;
    assert_eq!((now.len(), later.all()), (1, vec!["12:01".to_owned()]));
    running.shutdown().await;
    let again = scheduler(&env.other).with(noting("later", "1 12 * * *", &later)).start().await.unwrap();
    again.quiesce().await.unwrap();
    assert_eq!(later.len(), 1, "started again in the same minute, it is not new");
    again.shutdown().await;
}

/// Without a scheduler for twelve hours, a task with a period of two hours runs once, and then at its times.
pub async fn c2_after_an_outage_a_task_runs_once(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let start = async |conn| scheduler(conn).with(noting("t", "0 */2 * * *", &log)).start().await.unwrap();
    let running = start(&env.store).await;
    running.quiesce().await.unwrap();
    assert_eq!(log.take(), ["12:00"]);
    running.shutdown().await;
    env.pass(12 * HOUR);
    let running = start(&env.other).await;
    running.quiesce().await.unwrap();
    assert_eq!(log.take(), ["00:00"]);
    pass(env, &running, 2 * HOUR).await;
    assert_eq!(log.take(), ["02:00"]);
    let view = schedules(&env.store).show("t").await.unwrap();
    assert_eq!((view.runs, view.skipped), (3, 5));
    running.shutdown().await;
}

/// A run that is longer than its period is followed by one run, at once, and never overlaps itself. With `Skip` it is
/// followed by none, with `QueueAll` by one for each fire.
pub async fn c3_a_long_run_is_followed_by_one(env: &Env) {
    let rounds = [
        (NOON, Overlap::Queue, vec!["12:05"]),
        ("2026-01-16T12:00:30Z", Overlap::Skip, vec![]),
        ("2026-01-17T12:00:30Z", Overlap::QueueAll, vec!["12:01", "12:02", "12:03", "12:04", "12:05"]),
    ];
    for (noon, overlap, follows) in rounds {
        set(env, noon);
        let (log, gate) = (Log::default(), Gate::closed());
        let (noted, passed) = (log.clone(), gate.clone());
        let task = Schedule::new("t").cron("* * * * *").overlap(overlap).run(move |fire| {
            let passed = passed.clone();
            noted.add(&fire);
            async move {
                passed.pass().await;
                Ok(())
            }
        });
        let name = format!("{overlap:?}");
        let running = scheduler(&env.store).name(name.as_str()).with(task).start().await.unwrap();
        until("it runs", async || log.len() == 1).await;
        assert_eq!(log.take(), ["12:00"]);
        env.pass(5 * MINUTE);
        let view = schedules(&env.other).show("t").await.unwrap();
        assert!(matches!(view.doing, ScheduleActivity::Runs { .. }), "{view:?}");
        assert_eq!(log.len(), 0, "it does not overlap itself");
        gate.open(1 + follows.len());
        running.quiesce().await.unwrap();
        assert_eq!(log.take(), follows, "{overlap:?}");
        gate.open(100);
        pass(env, &running, MINUTE).await;
        assert_eq!(log.take(), ["12:06"], "{overlap:?}");
        running.shutdown().await;
        // The next round starts fresh, with a new record.
        env.store.done(Batch::new().delete(&Key::new("tidelock.task", ["t"]).unwrap(), Expect::Any)).await;
    }
}

/// A failure is retried after the delay, counted from its end and under the same key. An earlier fire replaces the
/// retry.
pub async fn c4_a_failure_is_tried_again_unless_a_fire_comes_first(env: &Env) {
    set(env, NOON);
    let tally = Tally::default();
    let failing = |delay| {
        let counted = tally.clone();
        Schedule::new("t").cron("*/10 * * * *").retry(delay).run(move |fire| {
            counted.add(&format!("{} {}", short(fire.time()), fire.attempt()));
            async move { Err::<(), _>(Failure::retry(format!("attempt {}", fire.attempt()))) }
        })
    };
    let running = scheduler(&env.store).with(failing(4 * MINUTE)).start().await.unwrap();
    running.quiesce().await.unwrap();
    let view = async || schedules(&env.other).show("t").await.unwrap();
    assert_eq!(view().await.record.pending_retry_until, Some(env.now().after(4 * MINUTE)));
    pass(env, &running, 4 * MINUTE - TICK).await;
    assert_eq!(tally.all().len(), 1);
    pass(env, &running, TICK).await;
    assert_eq!(tally.of("12:00 2"), 1);
    pass(env, &running, 4 * MINUTE).await;
    assert_eq!(tally.of("12:00 3"), 1);
    // The next retry would be at 12:12:30.
    pass(env, &running, secs(90)).await;
    assert_eq!(tally.of("12:10 1"), 1, "{:?}", tally.all());
    pass(env, &running, 3 * MINUTE).await;
    assert_eq!(tally.all().len(), 4, "the retry of 12:00 is gone: {:?}", tally.all());
    let record = view().await.record;
    assert_eq!(record.retry_delay_ms, 240_000);
    assert_eq!(record.last_success_time, None);
    assert!(record.last_failure_time.is_some() && record.pending_retry_until.is_some(), "{record:?}");
    let history = schedules(&env.other).history("t", 10).await.unwrap();
    assert_eq!(history.len(), 4);
    assert_eq!((history[1].attempt, history[1].error.as_deref()), (3, Some("attempt 3")));
    running.shutdown().await;
}

/// The process of a task dies. The next scheduler runs the fire again, once and under the same key, and keeps the
/// history. While the lease of the dead process lasts, no other scheduler runs the fire.
pub async fn c5_a_dead_schedulers_fire_is_run_again_once(env: &Env) {
    set(env, NOON);
    let (tally, gate) = (Tally::default(), Gate::closed());
    let task = |tally: &Tally, gate: &Gate| {
        let (tally, gate) = (tally.clone(), gate.clone());
        Schedule::new("t").cron("0 * * * *").run(move |fire| {
            tally.add(&format!("{} {}", fire.key(), fire.attempt()));
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(())
            }
        })
    };
    let start = async |conn| scheduler(conn).with(task(&tally, &gate)).start().await.unwrap();
    let dying = start(&env.store).await;
    gate.open(1);
    until("the first fire is done", async || dying.stats().runs == 1).await;
    env.pass(HOUR);
    let second = "t:2026-01-15T13:00:00Z";
    until("the second runs", async || tally.of(&format!("{second} 1")) == 1).await;
    let next = start(&env.other).await;
    env.pass(LEASE / 2);
    let view = schedules(&env.other).show("t").await.unwrap();
    assert!(
        matches!(&view.doing, ScheduleActivity::Runs { by, .. } if by == dying.owner().as_str()),
        "{view:?}"
    );
    dying.abort().await;
    gate.open(10);
    env.pass(2 * LEASE);
    until("the next one has run it", async || next.stats().runs == 1).await;
    next.quiesce().await.unwrap();
    assert_eq!(tally.all().len(), 3, "{:?}", tally.all());
    assert_eq!(tally.of(&format!("{second} 2")), 1);
    let history = schedules(&env.other).history("t", 10).await.unwrap();
    let outcomes: Vec<_> = history.iter().map(|entry| entry.outcome.word()).collect();
    assert_eq!(outcomes, ["succeeded", "lost", "succeeded"]);
    next.shutdown().await;
}

/// A schedule that is registered and fires twice.
struct DailySchedule;

#[async_trait(?Send)]
impl Scenario for DailySchedule {
    async fn prepare(&self, env: &Env) {
        set(env, "2026-01-15T11:00:00Z");
        env.store.done(Batch::new().put(&key("fires"), Expect::Absent, payload(json!([])))).await;
    }

    async fn live(&self, process: &Process) {
        let (env, outside) = (&process.env, process.outside.clone());
        let daily = Schedule::new("t").cron("0 12 * * *").run(move |fire| {
            outside.make(fire.key());
            let effect = Batch::new().merge(&key("fires"), [Delta::push("", fire.key())]);
            async move { Ok(effect) }
        });
        let running = over(&process.store).with(daily).start().await.unwrap();
        for (fires, noon) in (1..).zip(["2026-01-15T12:00:00Z", "2026-01-16T12:00:00Z"]) {
            running.quiesce().await.unwrap();
            let noon = noon.parse().unwrap();
            if env.now() < noon {
                env.clock.set(noon);
            }
            until("it has fired", async || {
                env.store.value(&key("fires")).await.unwrap().as_array().unwrap().len() >= fires
            })
            .await;
        }
        running.quiesce().await.unwrap();
        running.shutdown().await;
    }

    async fn end(&self, env: &Env, outside: &Outside) -> Value {
        let view = schedules(&env.store).show("t").await.unwrap();
        let waits = matches!(view.doing, ScheduleActivity::Waits { .. });
        json!({ "fires": env.store.value(&key("fires")).await, "outside": outside.kinds(), "waits": waits })
    }
}

/// Wherever a process crashes, the effects of each fire exist once, and so does its record.
pub async fn c5_every_crash_point_of_a_schedule(env: &Env) {
    every_crash_point("a schedule", env, DailySchedule).await;
}

/// A changed registration keeps its history and a removed one is archived. A returning one resumes, and a new one
/// starts fresh.
pub async fn c6_registrations_come_change_and_go(env: &Env) {
    set(env, NOON);
    let log = Log::default();
    let start = async |tasks: &[(&str, &str)]| {
        let with = |scheduler: tidelock_core::schedule::Scheduler, (name, cron): &(&str, &str)| {
            scheduler.with(noting(name, cron, &log))
        };
        let running = tasks.iter().fold(scheduler(&env.store), with).start().await.unwrap();
        running.quiesce().await.unwrap();
        running
    };
    let running = start(&[("a", "0 * * * *"), ("b", "30 * * * *")]).await;
    assert_eq!(log.take(), ["12:00"]);
    running.shutdown().await;

    // Other times: fires that the new times would have missed do not happen.
    env.pass(10 * MINUTE);
    let running = start(&[("a", "*/5 * * * *"), ("c", "10 12 * * *")]).await;
    assert_eq!(log.take(), ["12:10", "12:10"], "both match the present minute");
    let tasks = schedules(&env.other);
    let view = tasks.show("a").await.unwrap();
    assert_eq!((view.runs, view.record.cron_expression.as_str()), (2, "*/5 * * * *"));
    assert_eq!(tasks.history("a", 10).await.unwrap().len(), 2);
    let gone = tasks.show("b").await.unwrap();
    assert!(matches!(gone.doing, ScheduleActivity::Archived { .. }), "{gone:?}");
    assert!(matches!(tasks.run_now("b").await, Err(ScheduleError::Archived { .. })));
    pass(env, &running, 40 * MINUTE).await;
    assert_eq!(log.take(), ["12:50"], "only a, and once for all that it missed");
    running.shutdown().await;

    let running = start(&[("a", "*/5 * * * *"), ("b", "30 * * * *"), ("c", "10 12 * * *")]).await;
    assert!(log.take().is_empty(), "b is not caught up");
    pass(env, &running, 40 * MINUTE).await;
    assert_eq!(log.take().iter().filter(|fire| *fire == "13:30").count(), 2, "a and b");
    running.shutdown().await;
}

/// Days that never come, invalid expressions and unknown zones: the scheduler returns an error and registers nothing.
pub async fn c7_impossible_times_are_refused(env: &Env) {
    for cron in ["0 0 30 2 *", "0 0 31 11 *", "60 * * * *", "* * * *", "@every 0s"] {
        let refused =
            scheduler(&env.store).with(noting("t", cron, &Log::default())).start().await.unwrap_err();
        assert_eq!(refused.code().as_str(), "TL1101", "{refused}");
    }
    let nowhere = noting("t", "@daily", &Log::default()).zone("Atlantis/Capital");
    let refused = scheduler(&env.store).with(nowhere).start().await.unwrap_err();
    assert_eq!(refused.code().as_str(), "TL1102", "{refused}");
    let idle = scheduler(&env.store).with(Schedule::new("t").cron("@daily")).start().await.unwrap_err();
    assert!(matches!(idle, ScheduleError::Incomplete { .. }), "{idle}");
    let twice = scheduler(&env.store).with(noting("t", "@daily", &Log::default()));
    let twice = twice.with(noting("t", "@hourly", &Log::default())).start().await.unwrap_err();
    assert!(matches!(twice, ScheduleError::Twice { .. }), "{twice}");
    assert!(schedules(&env.other).list().await.unwrap().is_empty());
    let unknown = schedules(&env.other).pause("t", "").await.unwrap_err();
    assert!(matches!(unknown, ScheduleError::UnknownTask { .. }), "{unknown}");
}

/// Daylight saving changes occur in several zones, on the same days or not. Every day has its fire, and the scheduler
/// keeps running.
pub async fn c8_tasks_live_through_changes_of_wall_clocks(env: &Env) {
    // Spring in the north and autumn in the south, from March to April 2026.
    set(env, "2026-03-07T00:00:00Z");
    let zones =
        ["America/New_York", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata"];
    let tally = Tally::default();
    let mut tasks = scheduler(&env.store);
    for zone in zones {
        let counted = tally.clone();
        tasks = tasks.with(Schedule::new(zone).cron("15 2 * * *").zone(zone).run(move |fire| {
            counted.add(&fire.key());
            async { Ok(()) }
        }));
    }
    let running = tasks.start().await.unwrap();
    for _ in 0..40 * 4 {
        pass(env, &running, 6 * HOUR).await;
    }
    running.shutdown().await;
    let all = tally.all();
    assert!(all.iter().all(|(_, count)| *count == 1), "{all:?}");
    for zone in zones {
        let fires = all.iter().filter(|(key, _)| key.starts_with(zone)).count();
        assert_eq!(fires, 40, "{zone}");
    }
    for moved in [
        "America/New_York:2026-03-08T07:00:00Z",
        "Europe/Berlin:2026-03-29T01:00:00Z",
        "America/New_York:2026-03-09T06:15:00Z",
    ] {
        assert_eq!(tally.of(moved), 1, "{moved}");
    }
}

/// The clock of the store jumps ahead and back again. Nothing runs twice, and nothing waits until the clock catches up.
pub async fn c9_a_clock_that_jumps_neither_doubles_nor_stalls(env: &Env) {
    set(env, NOON);
    let tally = Tally::default();
    let counted = tally.clone();
    let task = Schedule::new("t").cron("0 * * * *").run(move |fire| {
        counted.add(&fire.key());
        async { Ok(()) }
    });
    let running = scheduler(&env.store).with(task).start().await.unwrap();
    running.quiesce().await.unwrap();
    set(env, "2027-06-01T00:00:10Z");
    running.quiesce().await.unwrap();
    assert_eq!(tally.of("t:2027-06-01T00:00:00Z"), 1, "a year ahead by mistake");
    set(env, "2026-01-15T12:20:00Z");
    let due = async || schedules(&env.other).show("t").await.unwrap().next;
    until("it has noticed", async || {
        let row = env.other.row(&Key::new("tidelock.task", ["t"]).unwrap()).await;
        row.lease.is_none() && row.due <= due().await
    })
    .await;
    running.quiesce().await.unwrap();
    assert_eq!(due().await, Some("2026-01-15T13:00:00Z".parse().unwrap()));
    for _ in 0..3 {
        pass(env, &running, HOUR).await;
    }
    running.shutdown().await;
    let fires = [
        "t:2026-01-15T12:00:00Z",
        "t:2026-01-15T13:00:00Z",
        "t:2026-01-15T14:00:00Z",
        "t:2026-01-15T15:00:00Z",
    ];
    let expected: Vec<_> =
        fires.into_iter().chain(["t:2027-06-01T00:00:00Z"]).map(|key| (key.to_owned(), 1)).collect();
    assert_eq!(tally.all(), expected);
}

/// The end of a run cannot be written for a while. The write is retried, and the task does not run twice. If the answer
/// to the write is lost, the record has the correct result.
pub async fn c10_the_end_of_a_run_is_written_later(env: &Env) {
    set(env, NOON);
    for lost in [false, true] {
        let (log, gate) = (Log::default(), Gate::closed());
        let (noted, passed) = (log.clone(), gate.clone());
        let name = format!("lost-{lost}");
        let task = Schedule::new(name.as_str()).cron("* * * * *").run(move |fire| {
            noted.add(&fire);
            let passed = passed.clone();
            async move {
                passed.pass().await;
                Ok(())
            }
        });
        let wire = Wire::to(&env.store.0);
        let store: SharedStore = wire.clone();
        let running = over(&store).name(name.as_str()).with(task).start().await.unwrap();
        until("it runs", async || log.len() == 1).await;
        if lost {
            wire.cut_behind_the_next()
        } else {
            wire.cut()
        }
        gate.open(1);
        let record = async || schedules(&env.other).show(&name).await.unwrap().record;
        if lost {
            until("the record is there", async || record().await.last_success_time.is_some()).await;
        }
        wire.mend();
        until("the record is there", async || record().await.last_success_time.is_some()).await;
        running.quiesce().await.unwrap();
        assert_eq!(log.len(), 1, "lost: {lost}");
        gate.open(1);
        pass(env, &running, MINUTE).await;
        assert_eq!(log.len(), 2, "and it is not stuck; lost: {lost}");
        running.shutdown().await;
    }
}

/// Two schedulers on two connections run each fire of each task once.
pub async fn c11_two_schedulers_run_each_fire_once(env: &Env) {
    const TASKS: usize = 5;
    const FIRES: usize = 12;
    set(env, NOON);
    let tally = Tally::default();
    let start = async |conn: &Conn| {
        let mut tasks = scheduler(conn);
        for i in 0..TASKS {
            let counted = tally.clone();
            tasks = tasks.with(Schedule::new(format!("t{i}")).cron("* * * * *").run(move |fire| {
                counted.add(&fire.key());
                async { Ok(()) }
            }));
        }
        tasks.start().await.unwrap()
    };
    let (one, two) = tokio::join!(start(&env.store), start(&env.other));
    one.quiesce().await.unwrap();
    for _ in 1..FIRES {
        pass(env, &two, MINUTE).await;
    }
    let (one, two) = (one.shutdown().await, two.shutdown().await);
    let all = tally.all();
    assert_eq!(all.len(), TASKS * FIRES, "{all:?}");
    assert!(all.iter().all(|(_, count)| *count == 1), "{all:?}");
    assert_eq!((one.runs + two.runs) as usize, TASKS * FIRES);
    for task in schedules(&env.store).list().await.unwrap() {
        assert_eq!((task.runs, task.failures), (FIRES as u64, 0), "{task:?}");
        let history = schedules(&env.store).history(&task.record.name, 100).await.unwrap();
        assert_eq!(history.len(), FIRES);
        assert!(history.iter().all(|run| run.outcome == Ran::Succeeded && run.kind == TickKind::Scheduled));
    }
}

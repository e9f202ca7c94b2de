//! Operations on runs (W16–W21 through `tidelock_core::workflow`): resume, fork and retention, child runs, continued
//! runs, and many waiting runs.

use std::sync::Arc;

use tidelock_core::workflow::{
    ArchivedRun, Ctx, Failure, Retention, RunActivity, RunFilter, RunStatus, Saga, Signal, Workflow,
    WorkflowError, forget_once, once,
};

use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const KID: Workflow<u32, u32> = Workflow::new("kid");
const GO: Signal<u32> = Signal::new("go");
const WAIT: Workflow<u32, u32> = Workflow::new("wait").accepts(GO);

fn impatient() -> tidelock_core::model::retry::RetryPolicy {
    tidelock_core::model::retry::RetryPolicy { max_attempts: 2, base: Duration::ZERO, ..Default::default() }
}

/// A failed run is resumed by hand. The failed step is retried with a fresh budget; earlier steps are not.
pub async fn w16_a_failed_run_is_resumed_by_hand(env: &Env) {
    let (tally, fixed) = (Tally::default(), Tally::default());
    let (counted, healed) = (tally.clone(), fixed.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let one = cx.step("one", async |_| {
            counted.add("one");
            Ok(n)
        });
        let one = one.await?;
        let two = cx.retry(impatient()).step("two", async |_| {
            counted.add("two");
            if healed.of("yes") == 0 { Err(Failure::new("broken")) } else { Ok(one + 1) }
        });
        Ok(two.await?)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    assert_eq!((tally.of("one"), tally.of("two")), (1, 2));
    let view = there.show("r").await.unwrap();
    assert_eq!((view.status, view.doing), (RunStatus::Failed, RunActivity::Over));
    assert!(view.failure.is_some_and(|failure| failure.contains("broken")));
    there.resume("r", "try again").await.unwrap();
    until("it fails again", async || tally.of("two") == 4 && run.status().await.unwrap().is_over()).await;
    fixed.add("yes");
    there.resume("r", "it is mended").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!((tally.of("one"), tally.of("two")), (1, 5));
    let over = there.resume("r", "once more").await.unwrap_err();
    assert!(matches!(over, WorkflowError::Over { status: RunStatus::Completed, .. }), "{over}");
    driving.shutdown().await;
}

/// Compensations run in reverse order, once each, even if the process dies between them. A compensated run is not
/// resumed.
pub async fn w16_a_saga_takes_back_in_reverse(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let code = |tally: Tally, gate: Gate| {
        async move |cx: &Ctx, _: u32| {
            let mut saga: Saga<'_> = cx.saga();
            let done = async {
                for name in ["room", "flight"] {
                    cx.step(name, async |_| Ok(())).await?;
                    let (tally, gate) = (tally.clone(), gate.clone());
                    saga.undo(name, move |step| async move {
                        tally.add(step.name());
                        gate.pass().await;
                        Ok(())
                    });
                }
                cx.retry(impatient()).step("car", async |_| Err::<u32, _>(Failure::permanent("no car"))).await
            };
            let done = done.await.map_err(Failure::from);
            saga.finish(done).await
        }
    };
    let first = worker(&env.store).register(JOB, code(tally.clone(), gate.clone())).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("the flight is taken back", async || tally.of("undo flight") == 1).await;
    assert_eq!(tally.of("undo room"), 0, "the last first");
    gate.open(1);
    until("the room is being taken back", async || tally.of("undo room") == 1).await;
    first.abort().await;
    env.pass(LEASE);
    gate.open(1);
    let second = worker(&env.other).register(JOB, code(tally.clone(), gate)).start().await.unwrap();
    let failed = run.result().await.unwrap_err();
    assert!(failed.to_string().contains("no car"), "{failed}");
    assert_eq!(
        (tally.of("undo flight"), tally.of("undo room")),
        (1, 2),
        "the room was under way at the kill"
    );
    let refused = client(&env.store).resume("r", "again").await.unwrap_err();
    assert!(matches!(refused, WorkflowError::Refused { .. }), "{refused}");
    second.shutdown().await;
}

/// The result of a child reaches a suspended parent. A failed child is an error that names the failure.
pub async fn w19_a_childs_result_reaches_a_parent_that_rests(env: &Env) {
    let parent = async |cx: &Ctx, n: u32| {
        let (a, b) = tokio::join!(cx.child("a", KID, &n), cx.child("b", KID, &(n + 1)));
        let failed = cx.child("c", KID, &99).await;
        assert!(failed.is_err_and(|error| error.to_string().contains("too many")));
        Ok(a? + b?)
    };
    let kid = async |cx: &Ctx, n: u32| {
        cx.sleep(secs(3600) * n).await?;
        if n == 99 { Err(Failure::permanent("too many")) } else { Ok(n * 10) }
    };
    let driving = skipping(env, &env.store).register(JOB, parent).register(KID, kid).start().await.unwrap();
    let run = client(&env.other).start(JOB, &1).id("p").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 30);
    let child = client(&env.other).show("p/a").await.unwrap();
    assert_eq!((child.status, child.parent.as_deref()), (RunStatus::Completed, Some("p")));
    driving.shutdown().await;
}

/// A run that continues as new keeps its id and its unread signals, but not its history.
pub async fn w19_a_run_continues_as_new_and_keeps_its_signals(env: &Env) {
    let code = async |cx: &Ctx, sum: u32| {
        let more = cx.signal(GO).await?;
        let sum = cx.step("add", async |_| Ok(sum + more)).await?;
        if more == 0 { Ok(sum) } else { cx.continue_as_new(&sum).await }
    };
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").await.unwrap();
    for more in [1, 2, 3] {
        run.signal(GO, &more).await.unwrap();
    }
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    until("the run has restarted three times", async || there.show("r").await.unwrap().generation == 3).await;
    run.signal(GO, &0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 6);
    assert_eq!(there.steps("r").await.unwrap().iter().filter(|step| step.kind == "step").count(), 1);
    driving.shutdown().await;
}

/// A fork has the history of the original run up to a step and continues from there. The original stays unchanged.
pub async fn w19_a_fork_continues_from_a_step(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        let mut sum = n;
        for name in ["a", "b", "c"] {
            sum += cx
                .step(name, async |_| {
                    counted.add(name);
                    Ok(counted.of(name) as u32)
                })
                .await?;
        }
        Ok(sum)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &0).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    let fork = there.fork("r", "b", "f").await.unwrap();
    assert_eq!(fork.result().await.unwrap(), 5, "a is kept, b and c ran again");
    assert_eq!((tally.of("a"), tally.of("b"), tally.of("c")), (1, 2, 2));
    assert_eq!(run.result().await.unwrap(), 3);
    let taken = there.fork("r", "b", "f").await.unwrap_err();
    assert!(matches!(taken, WorkflowError::Taken { .. }), "{taken}");
    let unknown = there.fork("r", "z", "g").await.unwrap_err();
    assert!(matches!(unknown, WorkflowError::Refused { .. }), "{unknown}");
    driving.shutdown().await;
}

/// Retention removes runs that ended long ago, with all their records, and nothing of a live run.
pub async fn w20_retention_never_touches_a_live_run(env: &Env) {
    let code = async |cx: &Ctx, n: u32| {
        cx.set_query_value("half", &n);
        cx.step("s", async |step| {
            step.save(&n).await?;
            step.saved::<u32>().await
        })
        .await?;
        if n == 0 { Ok(cx.signal(GO).await?) } else { Ok(n) }
    };
    let parent = async |cx: &Ctx, n: u32| {
        cx.child("kid", WAIT, &n).await?;
        cx.sleep(secs(1_000_000)).await?;
        Ok(0)
    };
    let driving = worker(&env.store).register(WAIT, code).register(JOB, parent).start().await.unwrap();
    let there = client(&env.other);
    for (id, n) in [("old", 1), ("alive", 0)] {
        there.start(WAIT, &n).id(id).attribute("kind", id).await.unwrap();
    }
    there.start(JOB, &5).id("parent").await.unwrap();
    there.handle(WAIT, "old").result().await.unwrap();
    until("the child is there", async || there.show("parent/kid").await.is_ok()).await;
    there.handle(WAIT, "parent/kid").result().await.unwrap();
    until("all rest", async || {
        driving.stats().active == 0
            && there.show("alive").await.unwrap().doing == RunActivity::Waits { until: None }
    })
    .await;
    assert_eq!(there.value::<u32>("alive", "half").await.unwrap(), Some(0));
    env.pass(secs(100));
    assert_eq!(there.retire(secs(101), 100).await.unwrap(), 0, "nothing is so old");
    assert_eq!(there.retire(secs(100), 100).await.unwrap(), 1);
    assert!(matches!(there.show("old").await, Err(WorkflowError::UnknownRun { .. })));
    let left = Key::of("tidelock.journal", &[Arg::Str("old".to_owned()), Arg::Int(0)]).unwrap();
    assert!(env.store.history(&left).await.is_empty());
    let kinds =
        RunFilter { attributes: [("kind".to_owned(), "alive".to_owned())].into(), ..Default::default() };
    assert_eq!(there.list(&kinds, None, 10).await.unwrap().runs.len(), 1);
    let living = there.list(&RunFilter::default(), None, 10).await.unwrap();
    let ids: Vec<&str> = living.runs.iter().map(|run| run.run.as_str()).collect();
    assert_eq!(ids, ["alive", "parent", "parent/kid"], "a child of a parent that lives stays");
    there.signal("alive", GO, &9).await.unwrap();
    assert_eq!(there.handle(WAIT, "alive").result().await.unwrap(), 9);
    // The id is free again for another run.
    let again = there.start(WAIT, &3).id("old").await.unwrap();
    assert_eq!(again.result().await.unwrap(), 3);
    driving.shutdown().await;
}

/// A worker with a retention removes old runs automatically, after the archive has them.
pub async fn w20_a_worker_archives_and_removes_old_runs(env: &Env) {
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (archive, tally) = (Arc::clone(&kept), Tally::default());
    let counted = tally.clone();
    let retention = Retention::of(secs(100)).archive(move |archived: ArchivedRun| {
        counted.add(&archived.view.run);
        let full = counted.of(&archived.view.run) == 1 && archived.view.run == "r3";
        let archive = Arc::clone(&archive);
        async move {
            if full {
                return Err(Failure::new("the archive is full"));
            }
            archive.lock().unwrap().push((archived.view.run, archived.histories.len()));
            Ok(())
        }
    });
    let code = async |cx: &Ctx, n: u32| {
        cx.step("s", async |step| step.save(&n).await).await?;
        if n == 9 { Ok(cx.signal(GO).await?) } else { Ok(n) }
    };
    let both = |conn| worker(conn).poll_interval(Duration::from_millis(1)).register(WAIT, code);
    let one = both(&env.store).retention(retention.clone()).start().await.unwrap();
    let two = both(&env.other).retention(retention).start().await.unwrap();
    let here = client(&env.store);
    for n in [1, 2, 3, 9] {
        here.start(WAIT, &n).id(format!("r{n}")).await.unwrap();
    }
    for n in [1, 2, 3] {
        here.handle(WAIT, &format!("r{n}")).result().await.unwrap();
    }
    env.pass(secs(100));
    let gone = async |run: &str| matches!(here.show(run).await, Err(WorkflowError::UnknownRun { .. }));
    until("all that ended are gone", async || gone("r1").await && gone("r2").await && gone("r3").await).await;
    assert!(!gone("r9").await, "it lives");
    let mut kept = kept.lock().unwrap().clone();
    kept.sort();
    kept.dedup();
    assert_eq!(kept, [("r1".to_owned(), 1), ("r2".to_owned(), 1), ("r3".to_owned(), 1)]);
    assert!(tally.of("r3") >= 2, "the archive was full at first");
    one.shutdown().await;
    two.shutdown().await;
}

/// Waiting runs hold no task, however many there are, and all of them wake.
pub async fn w21_runs_that_wait_hold_no_task(env: &Env) {
    const RUNS: u64 = 300;
    let code = async |cx: &Ctx, n: u32| {
        cx.sleep(secs(3600)).await?;
        Ok(n)
    };
    let driving = worker(&env.store).concurrency(8).register(JOB, code).start().await.unwrap();
    let there = client(&env.store);
    for n in 0..RUNS {
        there.start(JOB, &0).id(format!("r{n:03}")).await.unwrap();
    }
    until("all rest", async || driving.stats().activations >= RUNS && driving.stats().active == 0).await;
    assert_eq!(driving.stats().ended, 0);
    env.pass(secs(3600));
    until("all have ended", async || driving.stats().ended == RUNS).await;
    assert_eq!((driving.stats().activations, driving.stats().parked, driving.stats().lost), (2 * RUNS, 0, 0));
    driving.shutdown().await;
}

/// An action under a key happens once over all processes, together with its effects.
pub async fn w18_once_under_a_key_is_once_over_all(env: &Env) {
    let account = key("account");
    env.store.done(Batch::new().put(&account, Expect::Absent, payload(json!({ "paid": 0 })))).await;
    for connections in crate::env::ONE_AND_TWO {
        let paid = env.race(connections, 8, |n, conn| {
            let account = account.clone();
            async move {
                let pay = async || Ok((Batch::new().merge(&account, [Delta::inc("/paid", 1)]), n));
                once(&conn.0, &format!("invoice {connections}"), pay).await.unwrap()
            }
        });
        let paid = paid.await;
        assert!(paid.iter().all(|who| *who == paid[0]), "all callers get the same result: {paid:?}");
        assert_eq!(env.store.value(&account).await.unwrap()["paid"], connections);
    }
    let failed = once(&env.store.0, "bad", async || Err::<(Batch, u32), _>(Failure::new("no"))).await;
    assert!(failed.is_err());
    assert!(forget_once(&env.store.0, "invoice 1").await.unwrap());
    assert!(!forget_once(&env.store.0, "bad").await.unwrap());
}

/// A signal does not start a scheduled run early. The run receives the signal when it starts.
pub async fn w8_a_signal_does_not_start_a_run_early(env: &Env) {
    let driving = worker(&env.store).register(WAIT, async |cx: &Ctx, _: u32| Ok(cx.signal(GO).await?));
    let driving = driving.start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").due(Due::After(secs(3600))).await.unwrap();
    run.signal(GO, &7).await.unwrap();
    let row = env.store.row(&Key::new("tidelock.run", ["r"]).unwrap()).await;
    assert_eq!((row.due, driving.stats().activations), (Some(env.now().after(secs(3600))), 0));
    env.pass(secs(3600));
    assert_eq!(run.result().await.unwrap(), 7);
    driving.shutdown().await;
}

/// A fork keeps the failures that the workflow handled before the step from which it starts.
pub async fn w19_a_fork_keeps_the_failures_that_were_handled(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        let first = cx.retry(impatient()).step("first", async |_| {
            counted.add("first");
            if counted.of("first") <= 2 { Err(Failure::new("no server")) } else { Ok(()) }
        });
        if first.await.is_err() {
            cx.step("instead", async |_| Ok(())).await?;
        }
        cx.step("last", async |_| {
            counted.add("last");
            Ok(())
        })
        .await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    assert_eq!(there.start(JOB, &1).id("r").await.unwrap().result().await.unwrap(), 1);
    let fork = there.fork("r", "last", "f").await.unwrap();
    until("it is over", async || fork.status().await.unwrap().is_over()).await;
    assert_eq!(fork.result().await.unwrap(), json!(1));
    assert_eq!((tally.of("first"), tally.of("last")), (2, 2));
    driving.shutdown().await;
}

//! Limits of run records: results, errors, concurrent steps, and the record of an interrupted step.

use std::sync::Arc;

use futures_util::future::join_all;
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::workflow::{Ctx, Failure, RunStatus, Signal, Workflow, WorkflowError};

use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const TEXT: Workflow<u32, String> = Workflow::new("text");
const GO: Signal<u32> = Signal::new("go");
const WAIT: Workflow<u32, u32> = Workflow::new("wait").accepts(GO);

const LARGE: usize = 5 * 1024 * 1024;

fn thrice() -> RetryPolicy {
    RetryPolicy { max_attempts: 3, base: Duration::ZERO, ..RetryPolicy::default() }
}

/// A result or an error that cannot be recorded fails its step within its attempts. The step never runs forever.
pub async fn w16_an_unrecordable_result_fails_its_step(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, which: u32| {
        let cx = &cx.retry(thrice());
        let add = |name: &str| counted.add(name);
        match which {
            0 => {
                let large = cx.step("large", async |_| {
                    add("large");
                    Ok("x".repeat(LARGE))
                });
                large.await?;
            }
            1 => {
                let nan = cx.step("nan", async |_| {
                    add("nan");
                    Ok(f64::NAN)
                });
                nan.await?;
            }
            _ => {
                let error = cx.step("error", async |_| {
                    add("error");
                    Err::<(), _>(Failure::new("e".repeat(LARGE)))
                });
                error.await?;
            }
        }
        Ok(0)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    for (which, name, runs) in [(0, "large", 1), (1, "nan", 1), (2, "error", 3)] {
        let run = there.start(JOB, &which).id(name).await.unwrap();
        until("it has failed", async || {
            assert!(tally.of(name) <= runs, "{name} ran {} times", tally.of(name));
            run.status().await.unwrap() == RunStatus::Failed
        })
        .await;
        assert_eq!(tally.of(name), runs, "{name}");
        let Err(WorkflowError::Failed { .. }) = run.result().await else { panic!("{name} has failed") };
    }
    driving.shutdown().await;
}

/// An output that cannot be recorded fails its run.
pub async fn w16_an_output_that_cannot_be_recorded_fails_its_run(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        cx.step("work", async |_| {
            counted.add("work");
            Ok(())
        })
        .await?;
        Ok("x".repeat(LARGE))
    };
    let driving = worker(&env.store).register(TEXT, code).start().await.unwrap();
    let run = client(&env.other).start(TEXT, &0).id("r").await.unwrap();
    until("it has failed", async || run.status().await.unwrap() == RunStatus::Failed).await;
    assert_eq!(tally.of("work"), 1);
    driving.shutdown().await;
}

/// Many concurrent steps complete, even if their completions exceed one batch by number or by size.
pub async fn w2_ends_that_do_not_fit_into_one_batch_are_written_in_several(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, kind: u32| {
        let (steps, size) = if kind == 0 { (10_100, 1) } else { (18, 3_900_000) };
        let all = (0..steps).map(|n| {
            let counted = counted.clone();
            cx.scope("part", n).step("work", async move |_| {
                counted.add("work");
                Ok("x".repeat(size))
            })
        });
        for done in join_all(all).await {
            done?;
        }
        Ok(steps)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    for (kind, steps) in [(0, 10_100), (1, 10_118)] {
        let run = client(&env.other).start(JOB, &kind).id(format!("r{kind}")).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(tally.of("work"), steps, "each of them once");
    }
    driving.shutdown().await;
}

/// Long signal ids do not keep a run from continuing as new.
pub async fn w8_long_ids_do_not_keep_a_run_from_restarting(env: &Env) {
    const SIGNALS: u32 = 300;
    let code = async |cx: &Ctx, round: u32| {
        if round > 0 {
            return Ok(round);
        }
        for _ in 0..SIGNALS {
            cx.signal(GO).await?;
        }
        cx.continue_as_new(&1).await
    };
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").await.unwrap();
    for n in 0..SIGNALS {
        let id = format!("{n:0>20000}");
        there.signal_once("r", GO, &id, &n).await.unwrap();
    }
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 1);
    driving.shutdown().await;
}

/// A step that a shutdown interrupted, or whose commit was lost, may have run. The next attempt learns that.
pub async fn w2_an_aborted_step_may_have_run(env: &Env) {
    for lost in [false, true] {
        let (tally, gate) = (Tally::default(), Gate::closed());
        let (counted, passed) = (tally.clone(), gate.clone());
        let code = async move |cx: &Ctx, n: u32| {
            cx.step("effect", async |step| {
                counted.add(if step.may_have_run() { "again" } else { "first" });
                passed.pass().await;
                Ok(())
            })
            .await?;
            Ok(n)
        };
        let wire = Wire::to(&env.store.0);
        let store: SharedStore = wire.clone();
        let start = async |store: &SharedStore| {
            let driving = tidelock_core::workflow::Worker::new(Arc::clone(store)).lease_ttl(LEASE);
            let driving = driving.poll_interval(Duration::from_millis(5)).shutdown_timeout(Duration::ZERO);
            driving.register(JOB, code.clone()).start().await.unwrap()
        };
        let mut driving = start(&store).await;
        let run = client(&env.other).start(JOB, &1).id(format!("r{lost}")).await.unwrap();
        until("the step runs", async || tally.of("first") == 1).await;
        if lost {
            wire.drop_the_next();
            gate.open(1);
            until("it is tried again", async || tally.of("again") + tally.of("first") == 2).await;
        } else {
            driving.shutdown().await;
            driving = start(&env.other.0).await;
            until("it is tried again", async || tally.of("again") + tally.of("first") == 2).await;
        }
        gate.open(1);
        assert_eq!(run.result().await.unwrap(), 1);
        assert_eq!((tally.of("first"), tally.of("again")), (1, 1), "lost: {lost}");
        driving.shutdown().await;
    }
}

/// No two steps of different runs have the same key.
pub async fn w2_keys_of_steps_do_not_collide(env: &Env) {
    let keys = Tally::default();
    let noted = keys.clone();
    let code = async move |cx: &Ctx, n: u32| {
        let name = if n == 1 { "7:charge" } else { "charge" };
        cx.step(name, async |step| {
            noted.add(&step.key());
            Ok(())
        })
        .await?;
        if n == 5 { cx.continue_as_new(&6).await } else { Ok(n) }
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    for (n, id) in
        [(1, "shop"), (2, "shop:7"), (3, "order#1"), (5, "order"), (4, "plain"), (7, "a%3Ab"), (8, "a:b")]
    {
        there.start(JOB, &n).id(id).await.unwrap().result().await.unwrap();
    }
    assert!(keys.all().iter().all(|(_, count)| *count == 1), "{:?}", keys.all());
    assert_eq!((keys.all().len(), keys.of("plain:charge")), (8, 1));
    driving.shutdown().await;
}

/// Values nested more deeply than a record allows are rejected at the start, or fail the step or run that returned
/// them.
pub async fn w16_values_that_nest_too_deep_fail_their_step_or_run(env: &Env) {
    const NESTED: Workflow<serde_json::Value, serde_json::Value> = Workflow::new("nested");
    let nested = |depth: usize| (1..depth).fold(json!([]), |inner, _| json!([inner]));
    let code = async move |cx: &Ctx, input: serde_json::Value| {
        let Some(depth) = input.as_u64() else { return Ok(json!(0)) };
        let depth = depth as usize;
        if depth < 1_000 {
            return Ok(nested(depth));
        }
        let cx = cx.retry(thrice());
        let deep = nested(depth - 1_000);
        cx.step("deep", async move |_| Ok(deep)).await?;
        Ok(json!(0))
    };
    let driving = worker(&env.store).register(NESTED, code).start().await.unwrap();
    let there = client(&env.other);
    let mut runs = Vec::new();
    for depth in [40, 95, 98, 99, 100, 101, 150, 490, 499, 500, 1_090, 1_100, 1_490, 1_499, 1_500] {
        runs.push(there.start(NESTED, &json!(depth)).id(format!("out {depth}")).await.unwrap());
    }
    for depth in [40, 95, 98, 99, 100, 101, 150, 490, 499, 500] {
        match there.start(NESTED, &nested(depth)).id(format!("in {depth}")).await {
            Ok(run) => runs.push(run),
            Err(error) => assert!(depth > 90, "{depth} levels are refused: {error}"),
        }
    }
    until("all are over", async || {
        let mut over = 0;
        for run in &runs {
            let doing = there.show(run.run()).await.unwrap().doing;
            let suspended = matches!(doing, tidelock_core::workflow::RunActivity::Suspended { .. });
            assert!(!suspended, "{}: {doing:?}", run.run());
            over += usize::from(run.status().await.unwrap().is_over());
        }
        over == runs.len()
    })
    .await;
    for run in ["out 40", "in 40", "out 1090"] {
        assert_eq!(there.show(run).await.unwrap().status, RunStatus::Completed, "{run}");
    }
    driving.shutdown().await;
}

/// An output that does not fit into the record together with the input fails the run, and does not suspend it.
pub async fn w16_an_output_that_does_not_fit_beside_the_input_fails_its_run(env: &Env) {
    const ECHO: Workflow<String, String> = Workflow::new("echo");
    let code = async |_: &Ctx, input: String| Ok(input);
    let driving = worker(&env.store).register(ECHO, code).start().await.unwrap();
    let there = client(&env.other);
    for (mebibytes, status) in [(1, RunStatus::Completed), (3, RunStatus::Failed)] {
        let id = format!("r{mebibytes}");
        let input = "x".repeat(mebibytes * 1024 * 1024);
        let run = there.start(ECHO, &input).id(id.as_str()).await.unwrap();
        until("it is over", async || {
            let doing = there.show(&id).await.unwrap().doing;
            assert!(!matches!(doing, tidelock_core::workflow::RunActivity::Suspended { .. }), "{doing:?}");
            run.status().await.unwrap().is_over()
        })
        .await;
        assert_eq!(run.status().await.unwrap(), status);
    }
    driving.shutdown().await;
}

//! Self-recording steps (W18): a step records its completion in the commit that contains its effects.

use std::sync::Arc;

use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::workflow::{Ctx, Failure, Signal, StepError, TxStep, Workflow};

use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const GO: Signal<u32> = Signal::new("go");
const EITHER: Workflow<u32, u32> = Workflow::new("either").accepts(GO);

/// Commits the effect of a step together with its completion.
async fn pay(store: &Arc<dyn Store>, step: &TxStep, value: u32) -> Result<(), Failure> {
    let paid = Batch::new().merge_or_create(&key("account"), payload(json!(0)), [Delta::inc("", 1)]);
    store.apply(paid.and(step.end(&value)?)).await.map_err(|error| Failure::new(error.to_string()))?;
    Ok(())
}

async fn paid(env: &Env) -> serde_json::Value {
    env.store.value(&key("account")).await.unwrap_or_default()
}

/// The journal decides the result, not the return value of the code.
pub async fn w18_a_step_that_records_itself_is_done_when_it_did(env: &Env) {
    let (tally, store) = (Tally::default(), Arc::clone(&env.store.0));
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let cx = &cx.retry(RetryPolicy { base: Duration::ZERO, ..RetryPolicy::default() });
        let well = cx.step_tx("well", async |step| {
            counted.add("well");
            pay(&store, &step, 1).await?;
            Ok(1)
        });
        let (well, beside) = tokio::join!(well, cx.step("beside", async |_| Ok(10)));
        let badly = cx.step_tx("badly", async |step| {
            counted.add("badly");
            pay(&store, &step, 2).await?;
            Err::<u32, _>(Failure::new("the answer to the commit was lost"))
        });
        let badly = badly.await?;
        let forgets = cx.step_tx("forgets", async |step| {
            counted.add("forgets");
            if step.attempt() > 1 {
                pay(&store, &step, 3).await?;
            }
            Ok(3)
        });
        let forgets = forgets.await?;
        let twice = cx.step_tx("twice", async |step| {
            counted.add("twice");
            pay(&store, &step, 4).await?;
            pay(&store, &step, 5).await?;
            Ok(5)
        });
        let twice = twice.await?;
        cx.sleep(secs(3600)).await?;
        Ok(well? + beside? + badly + forgets + twice)
    };
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.other).start(JOB, &0).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    let all = [("badly", 1), ("forgets", 2), ("twice", 1), ("well", 1)];
    assert_eq!(tally.all(), all.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!(paid(env).await, 4);
    let steps = client(&env.store).steps("r").await.unwrap();
    assert!(steps.iter().all(|step| step.state != "failed"), "{steps:?}");
    driving.shutdown().await;
}

/// A step that never records its completion fails after its attempts, with the reason.
pub async fn w16_a_step_that_never_records_its_end_fails(env: &Env) {
    let code = async |cx: &Ctx, _: u32| {
        let cx = cx.retry(RetryPolicy { max_attempts: 2, base: Duration::ZERO, ..RetryPolicy::default() });
        match cx.step_tx("forgets", async |_| Ok(1)).await {
            Err(StepError::Failed { error, attempts: 2, .. }) if error.contains("TxStep::end") => Ok(1),
            other => Err(Failure::permanent(format!("{other:?}"))),
        }
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    driving.shutdown().await;
}

/// The process dies after the commit and before any worker knows of it. The step is done.
pub async fn w18_a_step_that_recorded_itself_and_died_is_not_run_again(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let code = |conn: &Conn| {
        let (counted, gate, store) = (tally.clone(), gate.clone(), Arc::clone(&conn.0));
        async move |cx: &Ctx, _: u32| {
            let step = cx.step_tx("pay", async |step| {
                counted.add("pay");
                pay(&store, &step, 7).await?;
                counted.add("paid");
                gate.pass().await;
                Ok(0)
            });
            Ok(step.await?)
        }
    };
    let dies = worker(&env.store).register(JOB, code(&env.store)).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).await.unwrap();
    until("it is paid", async || tally.of("paid") == 1).await;
    dies.abort().await;
    env.pass(LEASE);
    let lives = worker(&env.other).register(JOB, code(&env.other)).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    assert_eq!((tally.of("pay"), paid(env).await), (1, json!(1)));
    lives.shutdown().await;
}

/// A worker that lost its lease cannot commit, and neither can a late one.
pub async fn w18_a_step_of_a_driver_that_was_overtaken_records_nothing(env: &Env) {
    let (slow, fast, tally) = (Gate::closed(), Gate::closed(), Tally::default());
    let code = |conn: &Conn, gate: &Gate| {
        let (counted, gate, store) = (tally.clone(), gate.clone(), Arc::clone(&conn.0));
        async move |cx: &Ctx, _: u32| {
            let step = cx.step_tx("pay", async |step| {
                counted.add("pay");
                gate.pass().await;
                let paid = pay(&store, &step, 7).await;
                counted.add(if paid.is_ok() { "paid" } else { "refused" });
                paid?;
                Ok(7)
            });
            Ok(step.await?)
        }
    };
    let old = worker(&env.store).concurrency(1).register(JOB, code(&env.store, &slow)).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).await.unwrap();
    until("the first one pays", async || tally.of("pay") == 1).await;
    env.pass(LEASE);
    let new = worker(&env.other).register(JOB, code(&env.other, &fast)).start().await.unwrap();
    until("the second one pays", async || tally.of("pay") == 2).await;
    slow.open(1);
    until("the first one is refused", async || tally.of("refused") == 1).await;
    fast.open(1);
    assert_eq!(run.result().await.unwrap(), 7);
    assert_eq!((tally.of("paid"), paid(env).await), (1, json!(1)));
    old.shutdown().await;
    new.shutdown().await;
}

/// Code stops waiting for a step that has recorded its completion. The journal decides, and every replay takes the same
/// branch.
pub async fn w7_a_step_that_recorded_itself_wins_over_later_entries(env: &Env) {
    let (tally, store) = (Tally::default(), Arc::clone(&env.store.0));
    let (counted, never) = (tally.clone(), Gate::closed());
    let code = async move |cx: &Ctx, _: u32| {
        let pays = cx.step_tx("pay", async |step| {
            counted.add("pay");
            pay(&store, &step, 7).await?;
            counted.add("paid");
            never.pass().await;
            Ok(7)
        });
        let won = tokio::select! {
            biased;
            paid = pays => paid?,
            told = cx.signal(GO) => told?,
        };
        cx.sleep(secs(3600)).await?;
        Ok(won)
    };
    let driving = skipping(env, &env.store).register(EITHER, code).start().await.unwrap();
    let run = client(&env.other).start(EITHER, &0).id("r").await.unwrap();
    until("it is paid", async || tally.of("paid") == 1).await;
    // In the journal the signal comes after the end of the step. If it arrives first in memory, the worker corrects
    // that.
    match client(&env.other).signal("r", GO, &1).await {
        Ok(()) | Err(tidelock_core::workflow::WorkflowError::Over { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(run.result().await.unwrap(), 7);
    assert_eq!((tally.of("pay"), paid(env).await), (1, json!(1)));
    assert_eq!(driving.stats().parked, 0);
    driving.shutdown().await;
}

/// Code that took another branch, for a reason outside the journal, rewinds to the recorded step. This holds whether it
/// continues with a step or ends, and whether its worker already knew of the record.
pub async fn w14_code_that_left_a_step_which_recorded_itself_goes_back(env: &Env) {
    const AT_ONCE: u32 = 1;
    let (tally, store) = (Tally::default(), Arc::clone(&env.store.0));
    let (counted, never, leave) = (tally.clone(), Gate::closed(), Gate::closed());
    let left = leave.clone();
    let code = async move |cx: &Ctx, end: u32| {
        let pays = cx.step_tx("pay", async |step| {
            pay(&store, &step, 7).await?;
            counted.add("paid");
            never.pass().await;
            Ok(7)
        });
        let won = tokio::select! {
            biased;
            paid = pays => paid?,
            () = left.pass() => 1,
        };
        if end == AT_ONCE {
            return Ok(won);
        }
        let name = format!("after {won}");
        Ok(cx.step(&name, async |_| Ok(won)).await?)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let ways = [(0, false), (0, true), (AT_ONCE, false), (AT_ONCE, true)];
    for (runs, (end, observed)) in (1..).zip(ways) {
        let before = driving.stats().steps;
        let run = client(&env.other).start(JOB, &end).id(format!("r{runs}")).await.unwrap();
        until("it is paid", async || tally.of("paid") == runs).await;
        if observed {
            until("its driver has seen the commit", async || driving.stats().steps > before).await;
        }
        leave.open(1);
        assert_eq!(run.result().await.unwrap(), 7, "{end} {observed}");
        assert_eq!((paid(env).await, driving.stats().parked), (json!(runs), 0), "{end} {observed}");
    }
    driving.shutdown().await;
}

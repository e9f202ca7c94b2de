//! Runs that continue as new, and the effect of earlier children, signals and code changes on them.

use std::pin::pin;
use std::sync::Arc;

use tidelock_core::workflow::{Ctx, Failure, RunActivity, RunStatus, Signal, Workflow};

use crate::fault_proxy::{Detour, Gate as Held};
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const KID: Workflow<u32, u32> = Workflow::new("kid");
const GO: Signal<u32> = Signal::new("go");
const OTHER: Signal<u32> = Signal::new("other");
const WAIT: Workflow<u32, u32> = Workflow::new("wait").accepts(GO).accepts(OTHER);

/// An abandoned child ends at the instant at which the parent continues as new. The parent continues.
pub async fn w19_a_child_that_was_left_never_takes_its_parent_along(env: &Env) {
    const PARENTS: u32 = 40;
    let code = async |cx: &Ctx, round: u32| {
        if round > 0 {
            return Ok(round);
        }
        tokio::select! {
            kid = cx.child("kid", KID, &0) => { kid?; }
            slept = cx.sleep(secs(10)) => { slept?; }
        }
        cx.continue_as_new(&(round + 1)).await
    };
    let kid = async |cx: &Ctx, n: u32| {
        cx.sleep(secs(10)).await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(WAIT, code).register(KID, kid).start().await.unwrap();
    let there = client(&env.other);
    for n in 0..PARENTS {
        there.start(WAIT, &0).id(format!("p{n}")).await.unwrap();
    }
    until("all wait", async || {
        let mut waiting = 0;
        for n in 0..PARENTS {
            let resting = async |run: &str| match there.show(run).await {
                Ok(view) => matches!(view.doing, RunActivity::Waits { until: Some(_) }),
                Err(_) => false,
            };
            waiting += u32::from(resting(&format!("p{n}")).await && resting(&format!("p{n}/kid")).await);
        }
        waiting == PARENTS
    })
    .await;
    env.pass(secs(10));
    for n in 0..PARENTS {
        let run = there.handle(WAIT, &format!("p{n}"));
        until("the parent has ended", async || run.status().await.unwrap() == RunStatus::Completed).await;
    }
    driving.shutdown().await;
}

/// A run without its row, as an older version could leave it, continues after a resume.
pub async fn w19_resume_restores_a_row_that_is_missing(env: &Env) {
    let there = client(&env.other);
    let run = there.start(WAIT, &7).id("r").await.unwrap();
    let row = Key::new("tidelock.run", ["r"]).unwrap();
    env.store.done(Batch::new().operate(Selection::Keys(vec![row]), Operation::Remove)).await;
    let driving = worker(&env.store).register(WAIT, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    there.resume("r", "its row is gone").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    driving.shutdown().await;
}

/// A child reports to the generation that started it, and to no other one that started a child of the same name.
pub async fn w19_a_child_answers_for_its_own_generation(env: &Env) {
    let code = async |cx: &Ctx, round: u32| {
        if round > 0 {
            return Ok(cx.child("kid", KID, &round).await?);
        }
        tokio::select! {
            kid = cx.child("kid", KID, &0) => { kid?; }
            slept = cx.sleep(secs(1)) => { slept?; }
        }
        cx.continue_as_new(&(round + 1)).await
    };
    let kid = async |cx: &Ctx, n: u32| {
        cx.sleep(if n == 0 { secs(100) } else { secs(1_000) }).await?;
        Ok(n)
    };
    let driving = skipping(env, &env.store).register(WAIT, code).register(KID, kid).start().await.unwrap();
    let run = client(&env.other).start(WAIT, &0).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    driving.shutdown().await;
}

/// A signal delivered to a wait that was not polled again is kept for the next generation.
pub async fn w19_a_signal_that_was_not_taken_is_kept_over_a_new_beginning(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let (counted, passed) = (tally.clone(), gate.clone());
    let code = async move |cx: &Ctx, round: u32| {
        let mut go = pin!(cx.signal(GO));
        if round > 0 {
            return Ok(go.await?);
        }
        tokio::select! {
            biased;
            heard = &mut go => return Ok(heard? + 100),
            () = std::future::ready(()) => {}
        }
        cx.step("work", async |_| {
            counted.add("work");
            passed.pass().await;
            Ok(())
        })
        .await?;
        cx.continue_as_new(&(round + 1)).await
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let run = client(&env.other).start(WAIT, &0).id("r").await.unwrap();
    until("the step runs", async || tally.of("work") == 1).await;
    run.signal(GO, &5).await.unwrap();
    // Long enough for the run to receive the signal during the step, on most machines. Otherwise the outcome is the
    // same.
    tokio::time::sleep(Duration::from_millis(400)).await;
    gate.open(1);
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 5);
    driving.shutdown().await;
}

/// A run that continued after a signal takes the old branch at a later version marker, as it would after a step.
pub async fn w13_a_run_that_received_a_signal_takes_the_old_way(env: &Env) {
    let old = async |cx: &Ctx, _: u32| Ok(cx.signal(GO).await? + cx.signal(GO).await?);
    let new = async |cx: &Ctx, _: u32| {
        let first = cx.signal(GO).await?;
        let between = if cx.version("ask others", 0, 1) == 1 { cx.signal(OTHER).await? } else { 0 };
        Ok(first + between + cx.signal(GO).await?)
    };
    let there = client(&env.other);
    let driving = worker(&env.store).register(WAIT, old).start().await.unwrap();
    let run = there.start(WAIT, &0).id("old").await.unwrap();
    run.signal(GO, &10).await.unwrap();
    until("it waits for the second", async || {
        there.history("old").await.unwrap();
        let waits = matches!(there.show("old").await.unwrap().doing, RunActivity::Waits { until: None });
        waits && driving.stats().activations >= 1 && driving.stats().active == 0
    })
    .await;
    driving.shutdown().await;
    let driving = worker(&env.store).register(WAIT, new).start().await.unwrap();
    run.signal(GO, &30).await.unwrap();
    until("it has ended", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 40, "it was beyond the change");
    let fresh = there.start(WAIT, &0).id("new").await.unwrap();
    for (signal, value) in [(GO, 1), (OTHER, 2), (GO, 3)] {
        fresh.signal(signal, &value).await.unwrap();
    }
    assert_eq!(fresh.result().await.unwrap(), 6);
    driving.shutdown().await;
}

/// A sleep added before a pending one does not replace it.
pub async fn w13_a_sleep_that_is_added_takes_no_others_place(env: &Env) {
    let old = async |cx: &Ctx, n: u32| {
        cx.sleep(secs(3_600)).await?;
        Ok(n)
    };
    let new = async |cx: &Ctx, n: u32| {
        cx.sleep(Duration::from_millis(10)).await?;
        cx.sleep(secs(3_600)).await?;
        Ok(n)
    };
    let there = client(&env.other);
    let driving = worker(&env.store).register(WAIT, old).start().await.unwrap();
    there.start(WAIT, &0).id("r").await.unwrap();
    let waits =
        async || matches!(there.show("r").await.unwrap().doing, RunActivity::Waits { until: Some(_) });
    until("it sleeps", waits).await;
    driving.shutdown().await;
    let driving = worker(&env.store).register(WAIT, new).start().await.unwrap();
    env.pass(secs(3_600));
    until("the run is suspended", async || match there.show("r").await.unwrap().doing {
        RunActivity::Suspended { reason, .. } => {
            reason.contains("TL1016") && reason.contains("given something else")
        }
        _ => false,
    })
    .await;
    driving.shutdown().await;
}

/// An operation that is not awaited keeps no run in memory and delays no shutdown.
pub async fn w21_a_step_that_is_not_awaited_holds_nothing(env: &Env) {
    let code = async |cx: &Ctx, n: u32| {
        let later = cx.step("later", async |_| Ok(n));
        cx.sleep(secs(3_600)).await?;
        Ok(later.await?)
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(WAIT, &3).id("r").await.unwrap();
    until("it rests", async || {
        let waits = matches!(there.show("r").await.unwrap().doing, RunActivity::Waits { until: Some(_) });
        waits && driving.stats().active == 0
    })
    .await;
    env.pass(secs(3_600));
    assert_eq!(run.result().await.unwrap(), 3);
    driving.shutdown().await;
}

/// A run that awaits a foreign future stays active, whatever operations it has started without awaiting them.
pub async fn w21_a_run_that_awaits_something_of_its_own_is_driven_on(env: &Env) {
    let gate = Gate::closed();
    let passed = gate.clone();
    let code = async move |cx: &Ctx, n: u32| {
        let later = (cx.step("later", async |_| Ok(n)), cx.signal(GO), cx.sleep(secs(3_600)));
        passed.pass().await;
        Ok(later.0.await?)
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let run = client(&env.other).start(WAIT, &3).id("r").await.unwrap();
    until("it was taken up", async || driving.stats().activations > 0).await;
    gate.open(1);
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 3);
    driving.shutdown().await;
}

/// A cancellation accepted while the end of the run is being written takes effect before the run ends.
pub async fn w17_a_cancel_in_the_instant_of_the_end_is_received(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        cx.step("work", async |_| {
            counted.add("work");
            Ok(())
        })
        .await?;
        if cx.is_cancelled() { Err(Failure::permanent("it was cancelled")) } else { Ok(n) }
    };
    let way = Arc::new(Held::default());
    let slow: SharedStore = Detour::over(Arc::clone(&way), &env.store.0);
    let driving =
        tidelock_core::workflow::Worker::new(slow).poll_interval(Duration::from_millis(5)).lease_ttl(LEASE);
    let driving = driving.register(WAIT, code).start().await.unwrap();
    let there = client(&env.other);
    way.close();
    let run = there.start(WAIT, &0).id("r").await.unwrap();
    way.arrived().await;
    assert_eq!(tally.of("work"), 1, "the end of the step and of the run are on their way");
    run.cancel("too late?").await.unwrap();
    way.open();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!((run.status().await.unwrap(), tally.of("work")), (RunStatus::Cancelled, 1));
    driving.shutdown().await;
}

/// A cancelled run ends, although its code would always continue as new. Code that ignores the error is suspended.
pub async fn w17_a_cancelled_run_does_not_continue_as_new(env: &Env) {
    let code = async |cx: &Ctx, ignores: u32| {
        let _: Result<(), _> = cx.sleep(secs(3_600)).await;
        if ignores == 1 {
            let _: Result<u32, _> = cx.continue_as_new(&1).await;
        }
        cx.continue_as_new(&ignores).await
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let there = client(&env.other);
    for (id, ignores) in [("obeys", 0), ("ignores", 1)] {
        let run = there.start(WAIT, &ignores).id(id).await.unwrap();
        until("it sleeps", async || {
            matches!(there.show(id).await.unwrap().doing, RunActivity::Waits { until: Some(_) })
        })
        .await;
        run.cancel("no more").await.unwrap();
    }
    let obeys = there.handle(WAIT, "obeys");
    until("it is over", async || obeys.status().await.unwrap() == RunStatus::Cancelled).await;
    until("it is suspended", async || match there.show("ignores").await.unwrap().doing {
        RunActivity::Suspended { reason, .. } => reason.contains("the run is cancelled"),
        _ => false,
    })
    .await;
    driving.shutdown().await;
}

//! Signals beside other waits: futures that are kept, more signals than a batch holds, and runs that start later.

use std::pin::pin;

use tidelock_core::workflow::{Ctx, RunActivity, RunStatus, Signal, Workflow};

use crate::prelude::*;
use crate::reacting::until;
use crate::running::*;

const GO: Signal<u32> = Signal::new("go");
const OTHER: Signal<u32> = Signal::new("other");
const WAIT: Workflow<u32, u32> = Workflow::new("wait").accepts(GO).accepts(OTHER);

/// A wait that lost a race and is kept yields to the wait that the workflow awaits. Awaited again, it receives the next
/// signal.
pub async fn w8_a_kept_wait_gives_way_to_the_one_that_is_awaited(env: &Env) {
    let code = async |cx: &Ctx, _: u32| {
        let mut kept = pin!(cx.signal(GO));
        tokio::select! {
            heard = &mut kept => return Ok(heard?),
            slept = cx.sleep(secs(1)) => slept?,
        }
        let first = cx.signal(GO).await?;
        cx.step("between", async |_| Ok(())).await?;
        Ok(first * 10 + kept.await?)
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").await.unwrap();
    let waits = async |for_ever: bool| match there.show("r").await.unwrap().doing {
        RunActivity::Waits { until } => until.is_none() == for_ever,
        _ => false,
    };
    until("it sleeps", async || waits(false).await).await;
    env.pass(secs(1));
    until("it waits for a signal", async || waits(true).await).await;
    run.signal(GO, &1).await.unwrap();
    run.signal(GO, &2).await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 12);
    driving.shutdown().await;
}

/// A worker that skips idle time skips to timers only. While runs wait for nothing but signals, the clock does not
/// advance.
pub async fn w8_no_time_is_skipped_while_runs_wait_for_signals(env: &Env) {
    const SLEEP: Workflow<u32, u32> = Workflow::new("sleep");
    let hour = secs(3_600);
    let waits = async move |cx: &Ctx, _: u32| {
        let heard = cx.signal(GO).await?;
        cx.sleep(hour).await?;
        Ok(heard)
    };
    let sleeps = async move |cx: &Ctx, n: u32| {
        cx.sleep(hour).await?;
        Ok(n)
    };
    let begun = env.now();
    let driving =
        skipping(env, &env.store).register(WAIT, waits).register(SLEEP, sleeps).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("waits").await.unwrap();
    until("it waits for a signal", async || {
        matches!(there.show("waits").await.unwrap().doing, RunActivity::Waits { until: None })
    })
    .await;
    // Between two of these the worker is idle.
    for n in 0..10 {
        assert_eq!(there.start(SLEEP, &n).await.unwrap().result().await.unwrap(), n);
    }
    run.signal(GO, &5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 5);
    let skipped = env.now().since(begun);
    assert!(skipped >= 11 * hour && skipped < 24 * hour, "eleven timers, one after the other: {skipped:?}");
    driving.shutdown().await;
}

/// A signal that arrives while a kept wait is the only one goes to the next wait that the workflow awaits.
pub async fn w8_a_signal_that_a_kept_wait_did_not_take_is_there_for_the_next(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let (counted, passed) = (tally.clone(), gate.clone());
    let code = async move |cx: &Ctx, _: u32| {
        let mut kept = pin!(cx.signal(GO));
        tokio::select! {
            biased;
            heard = &mut kept => return Ok(heard?),
            () = std::future::ready(()) => {}
        }
        cx.step("work", async |_| {
            counted.add("work");
            passed.pass().await;
            Ok(())
        })
        .await?;
        let first = cx.signal(GO).await?;
        Ok(first * 10 + kept.await?)
    };
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    let run = client(&env.other).start(WAIT, &0).id("r").await.unwrap();
    until("the step runs", async || tally.of("work") == 1).await;
    run.signal(GO, &1).await.unwrap();
    // Long enough for the run to receive it during the step, on most machines. Otherwise the outcome is the same.
    tokio::time::sleep(Duration::from_millis(300)).await;
    gate.open(1);
    run.signal(GO, &2).await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 12);
    driving.shutdown().await;
}

/// A run with more unread signals than one batch holds continues as new and loses none of them.
pub async fn w19_more_signals_than_a_batch_holds_are_kept_over_a_new_beginning(env: &Env) {
    const SIGNALS: u32 = 10_500;
    let code = async |cx: &Ctx, round: u32| {
        if round == 0 {
            cx.signal(OTHER).await?;
            return cx.continue_as_new(&1).await;
        }
        let mut sum = 0;
        for n in 0..SIGNALS {
            assert_eq!(cx.signal(GO).await?, n, "in the order of arrival");
            sum += n % 10;
        }
        Ok(sum)
    };
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").await.unwrap();
    // In the form that `WorkflowClient::signal` writes, many in one batch.
    let journal = Key::of("tidelock.journal", &[Arg::Str("r".to_owned()), Arg::Int(0)]).unwrap();
    for hundred in 0..SIGNALS / 100 {
        let heard = (0..100).map(|n| {
            let value = json!({ "signal": "go", "value": hundred * 100 + n });
            NewEvent::new(event_type("tidelock.run.heard"), payload(value))
        });
        env.store.done(Batch::new().append(&journal, Expect::Any, heard.collect::<Vec<_>>())).await;
    }
    run.signal(OTHER, &0).await.unwrap();
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    until("it is over", async || {
        let doing = there.show("r").await.unwrap().doing;
        assert!(!matches!(doing, RunActivity::Suspended { .. }), "{doing:?}");
        run.status().await.unwrap() == RunStatus::Completed
    })
    .await;
    assert_eq!(run.result().await.unwrap(), SIGNALS / 10 * 45);
    driving.shutdown().await;
}

/// A run with a later start is woken by signals once it waits, however many arrived before it started.
pub async fn w8_a_run_that_began_late_is_woken_after_many_early_signals(env: &Env) {
    const EARLY: u32 = 1_100;
    let code = async |cx: &Ctx, _: u32| {
        for _ in 0..EARLY {
            cx.signal(GO).await?;
        }
        Ok(cx.signal(OTHER).await?)
    };
    let there = client(&env.other);
    let run = there.start(WAIT, &0).id("r").due(Due::After(secs(60))).await.unwrap();
    for n in 0..EARLY {
        run.signal(GO, &n).await.unwrap();
    }
    let driving = worker(&env.store).register(WAIT, code).start().await.unwrap();
    env.pass(secs(60));
    until("it waits", async || {
        driving.stats().active == 0
            && there.show("r").await.unwrap().doing == RunActivity::Waits { until: None }
    })
    .await;
    run.signal(OTHER, &7).await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 7);
    driving.shutdown().await;
}

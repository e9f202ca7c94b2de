//! Workflow races (W2, W9, W11 and W17): a lost lease, a late signal, and a cancellation that precedes the end of a
//! step.

use std::sync::Arc;

use tidelock_core::workflow::{Ctx, Signal, Workflow, WorkflowClient, WorkflowError};

use crate::fault_proxy::{Detour, Gate as Held};
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const GO: Signal<u32> = Signal::new("go");
const WAIT: Workflow<u32, u32> = Workflow::new("wait").accepts(GO);

async fn entries(conn: &Conn, run: &str, kind: &str) -> usize {
    let journal = Key::of("tidelock.journal", &[Arg::Str(run.to_owned()), Arg::Int(0)]).unwrap();
    let kind = format!("tidelock.run.{kind}");
    conn.history(&journal).await.iter().filter(|event| event.event_type.as_str() == kind).count()
}

/// A slow worker loses its lease, and its step ends after the takeover. Neither its record nor its effect is written.
pub async fn w11_a_driver_that_was_overtaken_writes_nothing(env: &Env) {
    let account = key("account");
    env.store.done(Batch::new().put(&account, Expect::Absent, payload(json!({ "paid": 0 })))).await;
    let (slow, fast, tally) = (Gate::closed(), Gate::closed(), Tally::default());
    let code = |gate: Gate| {
        let (account, tally) = (account.clone(), tally.clone());
        async move |cx: &Ctx, _: u32| {
            for name in ["pay", "pay again"] {
                let pay = cx.step_in(name, async |_| {
                    tally.add(name);
                    gate.pass().await;
                    Ok((Batch::new().merge(&account, [Delta::inc("/paid", 1)]), ()))
                });
                pay.await?;
            }
            Ok(1)
        }
    };
    // It has no free slot, otherwise it would be the one that takes over.
    let old = worker(&env.store).concurrency(1).register(JOB, code(slow.clone())).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("the first one pays", async || tally.of("pay") == 1).await;
    env.pass(LEASE);
    let new = worker(&env.other).register(JOB, code(fast.clone())).start().await.unwrap();
    fast.open(1);
    until("the second one has paid once", async || tally.of("pay again") == 1).await;
    slow.open(2);
    until("the first one has lost the run", async || old.stats().lost == 1).await;
    fast.open(1);
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!(env.store.value(&account).await.unwrap()["paid"], 2);
    assert_eq!((entries(&env.store, "r", "done").await, entries(&env.store, "r", "ended").await), (2, 1));
    assert_eq!(old.stats().steps, 0);
    old.shutdown().await;
    new.shutdown().await;
}

/// A signal in flight while its run ends is rejected, not accepted and ignored.
pub async fn w9_a_signal_that_comes_too_late_is_refused(env: &Env) {
    let held = Arc::new(Held::default());
    let there = WorkflowClient::new(Detour::over(Arc::clone(&held), &env.other.0));
    let run = client(&env.store).start(WAIT, &0).id("r").await.unwrap();
    held.close();
    let sent = tokio::spawn(async move { there.signal("r", GO, &1).await });
    held.arrived().await;
    let driving = worker(&env.store).register(WAIT, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 0);
    held.open();
    let late = sent.await.unwrap().unwrap_err();
    assert!(matches!(late, WorkflowError::Over { .. }), "{late}");
    assert_eq!(entries(&env.store, "r", "heard").await, 0);
    assert!(
        env.store.find_row(&Key::new("tidelock.run", ["r"]).unwrap()).await.is_none(),
        "nothing is left to drive"
    );
    driving.shutdown().await;
}

/// A cancellation written before the end of a step precedes it, even if the code already knows that end. The first pass
/// takes the same branch as a replay.
pub async fn w17_a_cancel_before_the_end_of_a_step_is_seen_after_it(env: &Env) {
    for n in 0..10 {
        let (gate, tally) = (Gate::closed(), Tally::default());
        let (waits, counted) = (gate.clone(), tally.clone());
        let code = async move |cx: &Ctx, _: u32| {
            cx.step("slow", async |_| {
                counted.add("slow");
                waits.pass().await;
                Ok(())
            })
            .await?;
            let seen = u32::from(cx.is_cancelled());
            let cx = cx.shielded();
            if seen == 0 {
                // A recorded step would be missing when the run is replayed.
                cx.step("continued", async |_| Ok(())).await?;
            }
            cx.sleep(secs(3600)).await?;
            Ok(seen)
        };
        let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
        let run = client(&env.other).start(JOB, &0).id(format!("r{n}")).await.unwrap();
        until("the step runs", async || tally.of("slow") == 1).await;
        run.cancel("no more").await.unwrap();
        gate.open(1);
        until("it sleeps", async || entries(&env.store, run.run(), "timer-set").await == 1).await;
        until("it rests", async || driving.stats().active == 0).await;
        env.pass(secs(3600));
        assert_eq!(run.result().await.unwrap(), 1, "in round {n}");
        assert_eq!(driving.stats().parked, 0);
        driving.shutdown().await;
    }
}

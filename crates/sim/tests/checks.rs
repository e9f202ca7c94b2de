//! Faults of services that a simulation finds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::prelude::*;
use tidelock_sim::{Failure as Found, Seeds, Sim};

const JOB: Workflow<(), u64> = Workflow::new("job");

fn failure(scenario: impl Fn(&mut Sim) + Sync) -> Found {
    Seeds::new(0..400).run(scenario).failure.expect("the simulation finds the fault")
}

/// A service with one workflow, which one client starts.
fn job<F, Fut>(sim: &mut Sim, code: F)
where
    F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<u64, Failure>> + Send + 'static,
{
    sim.service(move |tide| {
        let code = code.clone();
        tide.service().workflow(JOB, async move |cx: &Ctx, (): ()| code(cx.clone()).await)
    });
    sim.client(async |tide: Tidelock| {
        tide.start(JOB, &()).id("one").await?.result().await?;
        Ok(())
    });
}

#[test]
fn an_effect_outside_a_step_happens_twice() {
    let found = failure(|sim| {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        job(sim, move |cx| {
            let calls = Arc::clone(&calls);
            async move {
                // Not in a step: a replay repeats it.
                calls.fetch_add(1, Ordering::Relaxed);
                cx.step("record", async |_: Step| Ok(())).await?;
                Ok(1)
            }
        });
        sim.check(async move |_| match counted.load(Ordering::Relaxed) {
            1 => Ok(()),
            calls => Err(format!("{calls} calls").into()),
        });
    });
    assert!(found.message.contains("calls"), "{found}");
    assert!(!found.faults.is_empty() && found.faults.len() <= found.planned, "{found}");
    assert!(found.to_string().contains(&format!("TIDELOCK_SIM_SEED={}", found.seed)));
}

#[test]
fn an_invariant_stops_the_run_where_it_breaks() {
    let found = failure(|sim| {
        let calls = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
        let counted = Arc::clone(&calls);
        job(sim, move |cx| {
            let calls = Arc::clone(&calls);
            async move {
                cx.step("call", async |step: Step| {
                    // The other side ignores the key.
                    *calls.lock().unwrap().entry(step.key()).or_default() += 1;
                    Ok(())
                })
                .await?;
                Ok(1)
            }
        });
        sim.always(move || match counted.lock().unwrap().values().max() {
            Some(calls) if *calls > 1 => Err(format!("{calls} calls")),
            _ => Ok(()),
        });
    });
    assert!(found.message.starts_with("invariant: 2 calls"), "{found}");
}

#[test]
fn a_run_that_never_ends_is_reported() {
    let found = failure(|sim| {
        sim.faults(0).processes(1).patience(Duration::from_mins(2));
        job(sim, |cx| async move {
            cx.sleep(Duration::from_hours(1)).await?;
            Ok(1)
        });
    });
    assert!(found.message.contains("run one has not ended"), "{found}");
}

#[test]
fn idle_time_is_skipped() {
    let summary = Seeds::new(0..3).threads(1).run(|sim| {
        sim.faults(0).processes(1).during(Duration::from_secs(1)).patience(Duration::from_hours(30));
        job(sim, |cx| async move {
            cx.sleep(Duration::from_hours(2)).await?;
            Ok(1)
        });
    });
    assert!(summary.failure.is_none(), "{:?}", summary.failure);
    assert!(summary.simulated >= Duration::from_hours(6), "{:?}", summary.simulated);
}

//! Misbehaving workflow code: unexpected panics, ignored errors, and steps that are dropped too late.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::workflow::{Ctx, Failure, RunActivity, RunStatus, Workflow, WorkflowError};

use crate::prelude::*;
use crate::reacting::until;
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");

/// A value that panics when it is encoded to or decoded from JSON.
#[derive(Clone, Copy)]
struct Bomb {
    writes: bool,
}

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.writes, "cannot be written");
        serializer.serialize_unit()
    }
}

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("cannot be read")
    }
}

/// A local value whose drop panics.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("dropped a mine");
    }
}

fn twice() -> RetryPolicy {
    RetryPolicy { max_attempts: 2, base: Duration::ZERO, ..RetryPolicy::default() }
}

/// A result whose conversion to or from JSON panics fails its step at once, and the step is not executed again.
pub async fn w16_a_result_that_panics_while_it_is_recorded_fails_its_step(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        let bomb = Bomb { writes: n == 1 };
        let step = cx.retry(twice()).step("bomb", async |step| {
            counted.add(step.run());
            Ok(bomb)
        });
        match step.await {
            Ok(_) => Ok(0),
            Err(error) => Err(Failure::from(error)),
        }
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    for (n, id) in [(0, "writes"), (1, "reads")] {
        let run = there.start(JOB, &n).id(id).await.unwrap();
        until("it failed", async || {
            assert!(tally.of(id) <= 1, "the step ran {} times", tally.of(id));
            run.status().await.unwrap() == RunStatus::Failed
        })
        .await;
        let error = run.result().await.unwrap_err().to_string();
        assert!(error.contains("cannot be recorded") && error.contains("panicked"), "{error}");
    }
    driving.shutdown().await;
}

/// An input whose conversion panics suspends its run with that reason, at once and not after its lease expires.
pub async fn w12_an_input_that_panics_suspends_its_run(env: &Env) {
    const BOMB: Workflow<Bomb, u32> = Workflow::new("bomb");
    let driving = worker(&env.store).register(BOMB, async |_: &Ctx, _: Bomb| Ok(1)).start().await.unwrap();
    let there = client(&env.other);
    there.start(BOMB, &Bomb { writes: true }).id("r").await.unwrap();
    until("it is suspended", async || match there.show("r").await.unwrap().doing {
        RunActivity::Suspended { reason, .. } => {
            assert!(reason.contains("cannot be read"), "{reason}");
            true
        }
        _ => false,
    })
    .await;
    driving.shutdown().await;
}

/// A workflow whose locals panic on drop does not affect its worker or its row. The run is suspended with the original
/// reason.
pub async fn w12_a_panic_while_a_workflow_is_dropped_goes_no_further(env: &Env) {
    let code = async |cx: &Ctx, n: u32| {
        let _mine = Mine;
        cx.step("a", async |_| Ok(())).await?;
        cx.step("a", async |_| Ok(())).await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    there.start(JOB, &1).id("r").await.unwrap();
    until("it is suspended", async || match there.show("r").await.unwrap().doing {
        RunActivity::Suspended { reason, .. } => reason.contains("TL1017"),
        _ => false,
    })
    .await;
    driving.shutdown().await;
}

/// A step that times out and panics on drop fails like others, within its attempts.
pub async fn w16_a_panic_while_a_late_step_is_dropped_fails_its_attempt(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let cx = cx.retry(twice()).limit(Duration::from_millis(20));
        cx.step("late", async |_| {
            counted.add("late");
            let _mine = Mine;
            std::future::pending::<()>().await;
            Ok(())
        })
        .await?;
        Ok(0)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.other).start(JOB, &1).id("r").await.unwrap();
    until("it failed", async || run.status().await.unwrap() == RunStatus::Failed).await;
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    assert_eq!(tally.of("late"), 2);
    driving.shutdown().await;
}

/// A cancelled run that ignores its cancellation is suspended with a reason. It blocks neither a thread nor its worker.
pub async fn w17_a_run_that_ignores_its_cancellation_is_suspended(env: &Env) {
    let code = async |cx: &Ctx, _: u32| {
        for _ in 0..100_000 {
            let _: Result<(), _> = cx.sleep(secs(3_600)).await;
        }
        Ok(0)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    until("it sleeps", async || {
        matches!(there.show("r").await.unwrap().doing, RunActivity::Waits { until: Some(_) })
    })
    .await;
    run.cancel("no more").await.unwrap();
    until("it is suspended", async || {
        assert!(!run.status().await.unwrap().is_over(), "it went through all its sleeps");
        match there.show("r").await.unwrap().doing {
            RunActivity::Suspended { reason, .. } => reason.contains("cancelled"),
            _ => false,
        }
    })
    .await;
    driving.shutdown().await;
}

/// A step whose effects are rejected after the workflow has dropped it does not keep the run active.
pub async fn w21_a_dropped_step_whose_effects_are_rejected_holds_nothing(env: &Env) {
    let missing = key("missing");
    let code = async move |cx: &Ctx, n: u32| {
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ended);
        let rejected = cx.retry(twice()).step_in("rejected", async move |_| {
            ends.store(true, Ordering::SeqCst);
            Ok((Batch::new().guard_document(&missing, Expect::Exists), ()))
        });
        tokio::select! {
            biased;
            done = rejected => done?,
            () = poll_fn(|_| if ended.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }) => {}
        }
        cx.sleep(secs(3_600)).await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    there.start(JOB, &1).id("r").await.unwrap();
    until("it rests", async || {
        let waits = matches!(there.show("r").await.unwrap().doing, RunActivity::Waits { until: Some(_) });
        waits && driving.stats().active == 0
    })
    .await;
    driving.shutdown().await;
}

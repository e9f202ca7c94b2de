//! Manual resume of failed runs: only the failed part is retried.

use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::workflow::{Ctx, Failure, RunStatus, Workflow, WorkflowError};

use crate::prelude::*;
use crate::reacting::until;
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const KID: Workflow<u32, u32> = Workflow::new("kid");

fn once() -> RetryPolicy {
    RetryPolicy { max_attempts: 1, ..RetryPolicy::default() }
}

fn account() -> Key {
    key("account")
}

async fn open_account(env: &Env) {
    env.store.done(Batch::new().put(&account(), Expect::Absent, payload(json!({ "balance": 100 })))).await;
}

fn withdraw(amount: i64) -> Batch {
    Batch::new().merge(&account(), [Delta::inc("/balance", -amount)])
}

/// A handled failure stays handled, and later results are kept. Only the failure that ended the run is retried.
pub async fn w16_resume_reverts_only_the_failure_that_ended_the_run(env: &Env) {
    open_account(env).await;
    let (tally, fixed) = (Tally::default(), Tally::default());
    let (counted, healed) = (tally.clone(), fixed.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let cx = &cx.retry(once());
        let discount = cx.step("discount", async |_| {
            counted.add("discount");
            Err::<(), _>(Failure::permanent("none today"))
        });
        assert!(discount.await.is_err());
        cx.step_in("withdraw", async |_| Ok((withdraw(30), ()))).await?;
        cx.step("charge", async |_| {
            counted.add("charge");
            Ok(())
        })
        .await?;
        cx.step("mail", async |_| {
            counted.add("mail");
            if healed.of("yes") == 0 { Err(Failure::new("no server")) } else { Ok(()) }
        })
        .await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    fixed.add("yes");
    there.resume("r", "the server is back").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!(env.other.value(&account()).await.unwrap()["balance"], json!(70));
    assert_eq!((tally.of("discount"), tally.of("charge"), tally.of("mail")), (1, 1, 2));
    driving.shutdown().await;
}

/// The same holds for concurrent steps: completed ones are not repeated, and all failed ones are retried.
pub async fn w16_resume_keeps_what_ended_beside_the_failure(env: &Env) {
    open_account(env).await;
    let (tally, fixed) = (Tally::default(), Tally::default());
    let (counted, healed) = (tally.clone(), fixed.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let cx = &cx.retry(once());
        let fails = |name: &'static str| {
            let (counted, healed) = (counted.clone(), healed.clone());
            cx.step(name, async move |_| {
                counted.add(name);
                if healed.of("yes") == 0 { Err(Failure::new("no server")) } else { Ok(()) }
            })
        };
        let (a, b, c) =
            tokio::join!(fails("a"), cx.step_in("withdraw", async |_| Ok((withdraw(30), ()))), fails("c"));
        a?;
        b?;
        c?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    fixed.add("yes");
    until("it ends well", async || {
        // One failure beside another may need a second resume.
        if run.status().await.unwrap() == RunStatus::Failed {
            there.resume("r", "the server is back").await.unwrap();
        }
        run.status().await.unwrap() == RunStatus::Completed
    })
    .await;
    assert_eq!(env.other.value(&account()).await.unwrap()["balance"], json!(70));
    assert_eq!((tally.of("a"), tally.of("c")), (2, 2));
    driving.shutdown().await;
}

/// A run that failed because of its child is resumed together with the child.
pub async fn w16_a_parent_is_resumed_with_the_child_that_failed_it(env: &Env) {
    let (tally, fixed) = (Tally::default(), Tally::default());
    let (counted, healed) = (tally.clone(), fixed.clone());
    let code = async |cx: &Ctx, n: u32| Ok(cx.child("kid", KID, &n).await? + 1);
    let kid = async move |cx: &Ctx, n: u32| {
        let cx = &cx.retry(once());
        cx.step("before", async |_| {
            counted.add("before");
            Ok(())
        })
        .await?;
        cx.step("work", async |_| if healed.of("yes") == 0 { Err(Failure::new("no")) } else { Ok(()) })
            .await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(JOB, code).register(KID, kid).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    let refused = there.resume("r/kid", "again").await.unwrap_err();
    assert!(refused.to_string().contains("resume or fork the parent"), "{refused}");
    there.resume("r", "still broken").await.unwrap();
    until("it failed again", async || run.status().await.unwrap() == RunStatus::Failed).await;
    fixed.add("yes");
    there.resume("r", "mended").await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!(tally.of("before"), 1);
    driving.shutdown().await;
}

/// A child whose id is taken is an error in the parent, which does not wait forever.
pub async fn w19_a_child_whose_id_is_taken_is_an_error(env: &Env) {
    let code = async |cx: &Ctx, n: u32| match cx.child("kid", KID, &n).await {
        Err(error) if error.to_string().contains("could not be started") => Ok(99),
        other => Ok(other?),
    };
    let kid = async |_: &Ctx, n: u32| Ok(n);
    let driving = worker(&env.store).register(JOB, code).register(KID, kid).start().await.unwrap();
    let there = client(&env.other);
    let taken = there.start(KID, &5).id("r/kid").await.unwrap();
    assert_eq!(taken.result().await.unwrap(), 5);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 99);
    driving.shutdown().await;
}

/// Two services with different workflows on one queue do not affect each other's runs.
pub async fn w12_services_on_one_queue_leave_each_other_their_runs(env: &Env) {
    const RUNS: u32 = 30;
    let one = worker(&env.store).register(JOB, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    let two = worker(&env.other).register(KID, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    let there = client(&env.other);
    let mut runs = Vec::new();
    for n in 0..RUNS {
        let workflow = if n % 2 == 0 { JOB } else { KID };
        runs.push(there.start(workflow, &n).id(format!("r{n}")).await.unwrap());
    }
    until("all have ended", async || {
        // The delays follow the clock of the store. It advances slowly, so that both services poll often while a run is
        // left to them.
        env.pass(Duration::from_millis(2));
        let mut over = 0;
        for run in &runs {
            over += u32::from(run.status().await.unwrap().is_over());
        }
        over == RUNS
    })
    .await;
    // A service that stalls for seconds may leave some of its runs to the other one for too long.
    let parked = one.stats().parked + two.stats().parked;
    assert!(parked < u64::from(RUNS) / 3, "{parked} runs were suspended");
    one.shutdown().await;
    two.shutdown().await;
}

/// A child that ended after its parent had failed is reported when the parent is resumed, however the child ended.
pub async fn w16_a_resumed_parent_receives_results_of_children_that_ended_before(env: &Env) {
    let (fixed, gate) = (Tally::default(), Gate::closed());
    let (healed, passed) = (fixed.clone(), gate.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let cx = &cx.retry(once());
        let work = async {
            let work = cx.step(
                "work",
                async |_| {
                    if healed.of("yes") == 0 { Err(Failure::new("no")) } else { Ok(()) }
                },
            );
            Ok::<_, Failure>(work.await?)
        };
        let child = async { Ok::<_, Failure>(cx.child("kid", KID, &n).await) };
        let (kid, ()) = tokio::try_join!(child, work)?;
        Ok(kid.unwrap_or(99))
    };
    let kid = async move |cx: &Ctx, n: u32| {
        cx.step("slow", async |_| {
            passed.pass().await;
            Ok(())
        })
        .await?;
        if n == 1 { Ok(n) } else { Err(Failure::permanent("it failed on its own")) }
    };
    let driving = worker(&env.store).register(JOB, code).register(KID, kid).start().await.unwrap();
    let there = client(&env.other);
    for (n, result) in [(1, 1), (2, 99)] {
        let id = format!("r{n}");
        let run = there.start(JOB, &n).id(id.as_str()).await.unwrap();
        assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
        gate.open(1);
        let kid = there.handle(KID, &format!("{id}/kid"));
        until("the child is over", async || kid.status().await.unwrap().is_over()).await;
        fixed.add("yes");
        there.resume(&id, "mended").await.unwrap();
        until("it is over", async || run.status().await.unwrap().is_over()).await;
        assert_eq!(run.result().await.unwrap(), result);
        fixed.remove("yes");
    }
    driving.shutdown().await;
}

/// A run whose history was removed is not resumed.
pub async fn w16_a_run_without_its_history_is_not_resumed(env: &Env) {
    let code = async |_: &Ctx, _: u32| Err::<u32, _>(Failure::permanent("no"));
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    let journal = Key::of("tidelock.journal", &[Arg::Str("r".to_owned()), Arg::Int(0)]).unwrap();
    env.store.done(Batch::new().truncate(&journal, StreamVersion(2))).await;
    let refused = there.resume("r", "again").await.unwrap_err();
    assert!(matches!(refused, WorkflowError::Refused { .. }), "{refused}");
    assert_eq!(run.status().await.unwrap(), RunStatus::Failed);
    driving.shutdown().await;
}

/// A handled failure stays handled if the run then failed for another reason.
pub async fn w16_a_failure_of_its_own_takes_back_no_handled_one(env: &Env) {
    let (tally, fixed) = (Tally::default(), Tally::default());
    let (counted, healed) = (tally.clone(), fixed.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let first = cx.retry(once()).step("first", async |_| {
            counted.add("first");
            if healed.of("yes") == 0 { Err(Failure::new("no server")) } else { Ok(()) }
        });
        if first.await.is_err() {
            cx.step("instead", async |_| Ok(())).await?;
        }
        if healed.of("yes") == 0 { Err(Failure::permanent("rejected")) } else { Ok(n) }
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    assert!(matches!(run.result().await, Err(WorkflowError::Failed { .. })));
    fixed.add("yes");
    there.resume("r", "accepted").await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!((run.result().await.unwrap(), tally.of("first")), (1, 1));
    driving.shutdown().await;
}

//! Workflow runs (W1–W18 through `tidelock_core::workflow`): steps that run once, waits, signals, cancellation, and
//! changed code.

use tidelock_core::workflow::{
    Ctx, Failure, Replayed, RunActivity, RunHistory, RunStatus, Signal, StepError, Workflow, WorkflowError,
    replay,
};

use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const DAY: Duration = Duration::from_hours(24);
const JOB: Workflow<u32, u32> = Workflow::new("job");
const GO: Signal<String> = Signal::new("go");
const STOP: Signal<String> = Signal::new("stop");
const ASK: Workflow<u32, String> = Workflow::new("ask").accepts(GO).accepts(STOP);

/// A step runs once over a sleep of a month and the following activation.
pub async fn w1_a_step_runs_once_over_sleep_and_resume(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, input: u32| {
        let before = cx
            .step("before", async |_| {
                counted.add("before");
                Ok(input + 1)
            })
            .await?;
        cx.sleep(30 * DAY).await?;
        let after = cx
            .step("after", async |_| {
                counted.add("after");
                Ok(before * 10)
            })
            .await?;
        Ok(after)
    };
    let begun = env.now();
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.other).start(JOB, &4).id("month").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 50);
    assert!(env.now().since(begun) >= 30 * DAY);
    assert_eq!(tally.all(), [("after".to_owned(), 1), ("before".to_owned(), 1)]);
    assert!(driving.stats().activations >= 2, "it did not hold its place in memory: {:?}", driving.stats());
    driving.shutdown().await;
}

/// A worker dies inside the third step. The first two steps do not run again. The third one does, under the same key
/// and with a warning.
pub async fn w2_killed_inside_a_step_only_that_step_runs_again(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let code = |tally: Tally, gate: Gate| {
        async move |cx: &Ctx, _: u32| {
            cx.step("one", async |_| {
                tally.add("one");
                Ok(())
            })
            .await?;
            cx.step("two", async |_| {
                tally.add("two");
                Ok(())
            })
            .await?;
            let warned = cx.step("three", async |step| {
                tally.add(&format!(
                    "three as {} attempt {} warned {}",
                    step.key(),
                    step.attempt(),
                    step.may_have_run()
                ));
                gate.pass().await;
                Ok(step.may_have_run())
            });
            Ok(u32::from(warned.await?))
        }
    };
    let dying = worker(&env.store).register(JOB, code(tally.clone(), gate.clone())).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("the third step began", async || tally.of("three as r:three attempt 1 warned false") == 1).await;
    dying.abort().await;
    env.pass(LEASE);
    gate.open(1);
    let driving = worker(&env.other).register(JOB, code(tally.clone(), gate)).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    let expected =
        ["one", "three as r:three attempt 1 warned false", "three as r:three attempt 1 warned true", "two"];
    assert_eq!(tally.all(), expected.map(|name| (name.to_owned(), 1)));
    driving.shutdown().await;
}

/// A run whose workers repeatedly die backs off after some deaths. It is tried once after each delay, and the delays
/// grow.
pub async fn w2_a_run_that_kills_its_workers_is_suspended(env: &Env) {
    let (begun, gate) = (Tally::default(), Gate::closed());
    let code = |begun: Tally, gate: Gate| {
        async move |cx: &Ctx, _: u32| {
            let step = cx.step("dies", async |_| {
                begun.add("dies");
                gate.pass().await;
                Ok(7)
            });
            Ok(step.await?)
        }
    };
    let start = || worker(&env.store).concurrency(1).register(JOB, code(begun.clone(), gate.clone())).start();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    let die = async |deaths: usize| {
        let dying = start().await.unwrap();
        until("the step began", async || begun.of("dies") == deaths).await;
        dying.abort().await;
        env.pass(LEASE);
    };
    for deaths in 1..=5 {
        die(deaths).await;
    }
    let mut waits = Vec::new();
    for deaths in 6..=7 {
        let driving = start().await.unwrap();
        until("the run is suspended", async || driving.stats().parked == 1).await;
        let RunActivity::Suspended { next, .. } = client(&env.other).show("r").await.unwrap().doing else {
            panic!("the run should be suspended");
        };
        let wait = next.since(env.now());
        driving.shutdown().await;
        waits.push(wait.as_secs());
        env.pass(wait);
        die(deaths).await;
    }
    assert_eq!(begun.of("dies"), 7, "once after each wait");
    assert_eq!(waits, [2, 8]);
    gate.open(1);
    let driving = start().await.unwrap();
    until("the run is suspended again", async || driving.stats().parked == 1).await;
    env.pass(Duration::from_mins(5));
    assert_eq!(run.result().await.unwrap(), 7);
    driving.shutdown().await;
}

/// A started run is picked up by a worker that starts later, even if no process was alive in between.
pub async fn w3_a_run_that_was_started_is_picked_up(env: &Env) {
    client(&env.store).start(JOB, &20).id("r").await.unwrap();
    let driving = worker(&env.other).register(JOB, async |_: &Ctx, n: u32| Ok(n + 1)).start().await.unwrap();
    assert_eq!(client(&env.other).handle(JOB, "r").result().await.unwrap(), 21);
    driving.shutdown().await;
}

/// The same id and input give the same run, before and after its end. Another input or workflow is an error.
pub async fn w4_the_same_id_and_input_is_the_same_run(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        Ok(cx
            .step("once", async |_| {
                counted.add("once");
                Ok(n)
            })
            .await?)
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let (here, there) = (client(&env.store), client(&env.other));
    let first = here.start(JOB, &7).id("same").await.unwrap();
    let again = there.start(JOB, &7).id("same").await.unwrap();
    assert_eq!((first.result().await.unwrap(), again.result().await.unwrap()), (7, 7));
    assert_eq!(there.start(JOB, &7).id("same").await.unwrap().result().await.unwrap(), 7);
    assert_eq!(tally.of("once"), 1);
    let taken = there.start(JOB, &8).id("same").await.unwrap_err();
    assert!(
        matches!(&taken, WorkflowError::Taken { run, same_workflow: true, .. } if run == "same"),
        "{taken}"
    );
    let taken = there.start(ASK, &7).id("same").await.unwrap_err();
    assert!(matches!(&taken, WorkflowError::Taken { same_workflow: false, .. }), "{taken}");
    driving.shutdown().await;
}

/// A message beside effects of the caller is rejected when one of their preconditions fails, and is not retried forever.
pub async fn w9_a_message_beside_a_failed_precondition_is_rejected(env: &Env) {
    let here = client(&env.store);
    here.start(ASK, &7).id("asked").await.unwrap();
    let absent = Batch::new().guard_document(&Key::single("missing").unwrap(), Expect::Exists);
    let beside = here.with_batch(absent);
    for error in [
        beside.signal("asked", GO, &"go".to_owned()).await.unwrap_err(),
        beside.cancel("asked", "no reason").await.unwrap_err(),
    ] {
        assert!(matches!(&error, WorkflowError::Write(_)), "{error}");
    }
    assert_eq!(here.handle(ASK, "asked").status().await.unwrap(), RunStatus::Running);
}

/// A start beside effects of the caller fails when one of their preconditions does, even if that is on another run.
pub async fn w4_a_start_beside_a_failed_precondition_is_no_start(env: &Env) {
    let here = client(&env.store);
    here.start(JOB, &7).id("first").await.unwrap();
    let first = Key::new("tidelock.run", ["first"]).unwrap();
    let absent = Batch::new().guard_document(&first, Expect::Absent);
    let error = here.with_batch(absent).start(JOB, &7).id("second").await.unwrap_err();
    assert!(matches!(&error, WorkflowError::Write(_)), "{error}");
    assert!(here.handle(JOB, "second").status().await.is_err());
}

/// Code that swallows every error still waits.
pub async fn w5_code_that_swallows_errors_still_waits(env: &Env) {
    let code = async |cx: &Ctx, _: u32| {
        let slept = cx.sleep(DAY).await;
        Ok(cx.step("after", async |_| Ok(u32::from(slept.is_ok()))).await.unwrap_or(99))
    };
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("it rests", async || driving.stats().activations == 1 && driving.stats().active == 0).await;
    assert_eq!(run.status().await.unwrap(), RunStatus::Running);
    env.pass(DAY - secs(1));
    driving.drive("r").await.unwrap();
    assert_eq!(run.status().await.unwrap(), RunStatus::Running, "a look before its time changes nothing");
    env.pass(secs(1));
    assert_eq!(run.result().await.unwrap(), 1);
    driving.shutdown().await;
}

/// A step that runs concurrently with a sleep keeps its record when the run is suspended.
pub async fn w6_a_step_beside_a_sleep_keeps_its_record(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let step = cx.step("beside", async |_| {
            counted.add("beside");
            Ok(5u32)
        });
        let (slept, five) = tokio::join!(cx.sleep(DAY), step);
        slept?;
        Ok(five?)
    };
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 5);
    assert_eq!(tally.of("beside"), 1);
    driving.shutdown().await;
}

async fn either(cx: &Ctx, _: u32) -> Result<String, Failure> {
    let first = tokio::select! {
        word = cx.signal(GO) => format!("go {}", word?),
        word = cx.signal(STOP) => format!("stop {}", word?),
    };
    let second = cx.signal(GO).await?;
    Ok(format!("{first}, then {second}"))
}

/// In a race of two waits, either signal can win. The other wait is then dropped.
pub async fn w7_in_a_race_of_two_waits_either_wins(env: &Env) {
    let driving = worker(&env.store).register(ASK, either).start().await.unwrap();
    let there = client(&env.other);
    for (n, (first, expected)) in [(STOP, "stop a, then b"), (GO, "go a, then b")].into_iter().enumerate() {
        let run = there.start(ASK, &0).id(format!("r{n}")).await.unwrap();
        until("it waits", async || driving.stats().activations > 0 && driving.stats().active == 0).await;
        run.signal(first, &"a".to_owned()).await.unwrap();
        until("the activation ends", async || {
            env.store.find_row(&run_key(run.run())).await.is_some_and(|row| row.lease.is_none())
        })
        .await;
        run.signal(GO, &"b".to_owned()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), expected);
    }
    driving.shutdown().await;
}

fn run_key(run: &str) -> Key {
    Key::new("tidelock.run", [run]).unwrap()
}

/// Signals that arrive early are queued in order. A signal sent twice under one id counts once.
pub async fn w8_early_signals_wait_and_an_id_counts_once(env: &Env) {
    let there = client(&env.other);
    let run = there.start(ASK, &0).id("r").await.unwrap();
    for word in ["one", "two"] {
        for _ in 0..2 {
            there.signal_once("r", GO, word, &word.to_owned()).await.unwrap();
        }
    }
    let code = async |cx: &Ctx, _: u32| {
        let (a, b) = (cx.signal(GO).await?, cx.signal(GO).await?);
        let c = cx.signal_timeout(GO, DAY).await?;
        Ok(format!("{a} {b} {c:?}"))
    };
    let driving = skipping(env, &env.store).register(ASK, code).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "one two None");
    driving.shutdown().await;
}

/// A signal is rejected if the workflow does not accept its name, or if the run has ended or does not exist. Each error
/// names its cause.
pub async fn w9_signals_without_a_receiver_are_rejected(env: &Env) {
    let there = client(&env.other);
    let unknown = there.signal("none", GO, &String::new()).await.unwrap_err();
    assert!(matches!(unknown, WorkflowError::UnknownRun { .. }), "{unknown}");
    let run = there.start(ASK, &0).id("r").await.unwrap();
    let deaf = there.signal("r", Signal::<u32>::new("gone"), &1).await.unwrap_err();
    let accepts = vec!["go".to_owned(), "stop".to_owned()];
    let signal = "gone".to_owned();
    assert_eq!(deaf, WorkflowError::UnknownSignal { run: "r".to_owned(), signal, accepts });
    let driving =
        worker(&env.store).register(ASK, async |_: &Ctx, _: u32| Ok(String::new())).start().await.unwrap();
    run.result().await.unwrap();
    let over = run.signal(GO, &String::new()).await.unwrap_err();
    assert!(matches!(&over, WorkflowError::Over { status: RunStatus::Completed, .. }), "{over}");
    assert_eq!(over.code().to_string(), "TL1003");
    driving.shutdown().await;
}

/// If a timeout and a signal fall on the same instant, exactly one of them wins, and a replay has the same result.
pub async fn w10_of_a_limit_and_a_signal_exactly_one_wins(env: &Env) {
    let code = async |cx: &Ctx, _: u32| {
        let heard = cx.signal_timeout(GO, secs(60)).await?;
        // The replay must have the same result.
        cx.sleep(DAY).await?;
        Ok(format!("{heard:?}"))
    };
    for n in 0..12 {
        let driving = worker(&env.store).register(ASK, code).start().await.unwrap();
        let run = client(&env.other).start(ASK, &0).id(format!("r{n}")).await.unwrap();
        until("it waits", async || driving.stats().activations > 0 && driving.stats().active == 0).await;
        let sent = tokio::spawn({
            let there = client(&env.other);
            async move { there.signal(&format!("r{n}"), GO, &"now".to_owned()).await }
        });
        env.pass(secs(60));
        sent.await.unwrap().unwrap();
        until("it waits again", async || {
            let row = env.store.row(&run_key(run.run())).await;
            row.lease.is_none() && row.due.is_some_and(|due| due > env.now())
        })
        .await;
        let before = env
            .store
            .history(&Key::of("tidelock.journal", &[Arg::Str(format!("r{n}")), Arg::Int(0)]).unwrap())
            .await;
        let kinds: Vec<&str> = before.iter().map(|event| event.event_type.as_str()).collect();
        let fired = kinds.iter().position(|kind| *kind == "tidelock.run.timer-fired");
        let heard = kinds.iter().position(|kind| *kind == "tidelock.run.heard").unwrap();
        let expected = if fired.is_some_and(|fired| fired < heard) { "None" } else { "Some(\"now\")" };
        env.pass(DAY);
        assert_eq!(run.result().await.unwrap(), expected, "{kinds:?}");
        driving.shutdown().await;
    }
}

/// A run is driven by one process only. Another process learns which worker holds it and until when.
pub async fn w11_one_worker_drives_and_the_other_sees_its_lease(env: &Env) {
    let (gate, tally) = (Gate::closed(), Tally::default());
    let (waits, counted) = (gate.clone(), tally.clone());
    let code = async move |cx: &Ctx, _: u32| {
        cx.step("slow", async |_| {
            counted.add("slow");
            waits.pass().await;
            Ok(())
        })
        .await?;
        Ok(1)
    };
    let one = worker(&env.store).register(JOB, code.clone()).start().await.unwrap();
    let other = worker(&env.other).queues(["another"]).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("the step runs", async || tally.of("slow") == 1).await;
    let leased = other.drive("r").await.unwrap_err();
    let WorkflowError::Leased { by, until, .. } = &leased else { panic!("{leased}") };
    assert_eq!((by, *until > env.now()), (one.owner(), true));
    gate.open(1);
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!(tally.of("slow"), 1);
    one.shutdown().await;
    other.shutdown().await;
}

/// Runs of unknown workflows and runs whose code panics back off, with a reason and a next attempt. Other runs
/// continue.
pub async fn w12_suspended_runs_delay_no_other_run(env: &Env) {
    const LOST: Workflow<u32, u32> = Workflow::new("lost");
    const SICK: Workflow<u32, u32> = Workflow::new("sick");
    let here = client(&env.store);
    for n in 0..20 {
        here.start(LOST, &n).id(format!("lost{n}")).await.unwrap();
        here.start(SICK, &n).id(format!("sick{n}")).await.unwrap();
    }
    let good = here.start(JOB, &1).await.unwrap();
    let sick = async |_: &Ctx, _: u32| -> Result<u32, Failure> { panic!("of all things") };
    let driving =
        worker(&env.store).concurrency(2).register(JOB, async |_: &Ctx, n: u32| Ok(n)).register(SICK, sick);
    let driving = driving.start().await.unwrap();
    assert_eq!(good.result().await.unwrap(), 1);
    until("all runs are suspended", async || {
        // Other workers get the chance to take runs that this worker does not know.
        env.pass(Duration::from_millis(20));
        let mut reasons = 0;
        for run in (0..20).flat_map(|n| [format!("lost{n}"), format!("sick{n}")]) {
            reasons += usize::from(env.store.row(&run_key(&run)).await.last_error.is_some());
        }
        reasons == 40
    })
    .await;
    for (run, reason) in [("lost3", "knows workflow \"lost\""), ("sick3", "of all things")] {
        let row = env.store.row(&run_key(run)).await;
        let error = row.last_error.unwrap_or_default();
        assert!(error.contains(reason) && row.due.is_some(), "{run}: {error}");
        assert_eq!(
            here.handle(JOB, run).status().await.unwrap(),
            RunStatus::Running,
            "suspended, not failed"
        );
    }
    driving.shutdown().await;
    // With the code registered, the next attempt succeeds.
    let driving =
        worker(&env.store).register(LOST, async |_: &Ctx, n: u32| Ok(n + 100)).start().await.unwrap();
    env.pass(secs(600));
    assert_eq!(here.handle(LOST, "lost3").result().await.unwrap(), 103);
    driving.shutdown().await;
}

/// The history of a run can be exported and replayed against new code before a deployment. The replay finds the same
/// errors as the deployed code would.
pub async fn w13_a_history_is_replayed_against_new_code(env: &Env) {
    let old = async |cx: &Ctx, n: u32| {
        let reserved = cx.step("reserve", async |_| Ok(n + 1)).await?;
        cx.sleep(DAY).await?;
        Ok(cx.step("ship", async |_| Ok(reserved + 1)).await?)
    };
    let here = client(&env.store);
    let driving = skipping(env, &env.store).register(JOB, old).start().await.unwrap();
    let run = here.start(JOB, &7).id("r").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 9);
    driving.shutdown().await;
    let kept = serde_json::to_string(&here.history("r").await.unwrap()).unwrap();
    let history: RunHistory = serde_json::from_str(&kept).unwrap();

    assert_eq!(replay(JOB, old, &history), Ok(Replayed::ToItsEnd), "the code that did it");
    let more = async |cx: &Ctx, n: u32| {
        cx.step("reserve", async |_| Ok(n)).await?;
        cx.sleep(DAY).await?;
        cx.step("ship", async |_| Ok(n)).await?;
        Ok(cx.step("thank", async |_| -> Result<u32, Failure> { panic!("no step runs") }).await?)
    };
    assert_eq!(
        replay(JOB, more, &history),
        Ok(Replayed::AsFarAsRecorded),
        "code that continues after the history"
    );
    let fewer = async |cx: &Ctx, n: u32| Ok(cx.step("reserve", async |_| Ok(n)).await?);
    let differs = replay(JOB, fewer, &history).unwrap_err();
    assert_eq!(differs.code.map(|code| code.to_string()).as_deref(), Some("TL1016"));
    assert!(differs.reason.contains("the code ends before it"), "{differs}");
    let other = async |cx: &Ctx, _: u32| {
        cx.sleep(DAY).await?;
        Ok(cx.step("reserve", async |_| Ok(1)).await?)
    };
    let differs = replay(JOB, other, &history).unwrap_err();
    assert!(differs.reason.contains("recorded") && differs.reason.contains("step reserve"), "{differs}");
    let typed = async |cx: &Ctx, _: u32| {
        let _: String = cx.step("reserve", async |_| Ok(String::new())).await?;
        Ok(0)
    };
    assert!(replay(JOB, typed, &history).unwrap_err().to_string().contains("\"reserve\""));
    let panics = async |_: &Ctx, _: u32| -> Result<u32, Failure> { panic!("at once") };
    assert!(replay(JOB, panics, &history).unwrap_err().reason.contains("at once"));
    const OTHER: Workflow<u32, u32> = Workflow::new("other");
    assert!(replay(OTHER, old, &history).unwrap_err().reason.contains("\"job\""));
}

/// A nondeterministic code change under a run is detected and reported with both lists, and the run backs off. The old
/// code continues it.
pub async fn w13_changed_code_is_found_and_the_run_suspended(env: &Env) {
    let old = async |cx: &Ctx, _: u32| {
        cx.step("reserve", async |_| Ok(1)).await?;
        cx.with_input(&5).step("charge", async |_| Ok(2)).await?;
        cx.sleep(DAY).await?;
        Ok(cx.step("ship", async |_| Ok(3)).await?)
    };
    let here = client(&env.store);
    let driving = worker(&env.store).register(JOB, old).start().await.unwrap();
    let run = here.start(JOB, &0).id("r").await.unwrap();
    until("it sleeps", async || driving.stats().steps == 2 && driving.stats().active == 0).await;
    driving.shutdown().await;
    env.pass(DAY);
    let parked = async |what: &str| {
        until(what, async || env.store.row(&run_key("r")).await.last_error.is_some_and(|e| e.contains(what)))
            .await;
        let error = env.store.row(&run_key("r")).await.last_error.unwrap();
        assert!(
            error.contains("TL1016") && error.contains("recorded") && error.contains("step reserve"),
            "{error}"
        );
    };
    let missing = async |cx: &Ctx, _: u32| {
        cx.step("reserve", async |_| Ok(1)).await?;
        cx.sleep(DAY).await?;
        Ok(0)
    };
    let driving = worker(&env.store).register(JOB, missing).start().await.unwrap();
    parked("\"charge\" is recorded, and the code does not ask for it there").await;
    driving.shutdown().await;
    env.pass(secs(600));
    let kind = async |cx: &Ctx, _: u32| {
        cx.child("reserve", JOB, &1).await?;
        Ok(0)
    };
    let driving = worker(&env.store).register(JOB, kind).start().await.unwrap();
    parked("\"reserve\" was a step and is a child now").await;
    driving.shutdown().await;
    env.pass(secs(600));
    let input = async |cx: &Ctx, _: u32| {
        cx.step("reserve", async |_| Ok(1)).await?;
        Ok(cx.with_input(&6).step("charge", async |_| Ok(2)).await?)
    };
    let driving = worker(&env.store).register(JOB, input).start().await.unwrap();
    parked("\"charge\" is given something else").await;
    driving.shutdown().await;
    env.pass(secs(600));
    let short = async |cx: &Ctx, _: u32| Ok(cx.step("reserve", async |_| Ok(1)).await?);
    let driving = worker(&env.store).register(JOB, short).start().await.unwrap();
    parked("the code ends before it").await;
    driving.shutdown().await;
    env.pass(secs(600));
    let driving = worker(&env.store).register(JOB, old).start().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    driving.shutdown().await;
}

/// The result of a step is the same value on the first pass and on replay, even if JSON does not preserve all of it.
pub async fn w14_results_are_the_same_on_replay(env: &Env) {
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Lossy {
        kept: u32,
        #[serde(skip)]
        dropped: u32,
    }
    let tally = Tally::default();
    let seen = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let value = cx.step("lossy", async |_| Ok(Lossy { kept: 1, dropped: 2 })).await?;
        let failed = cx
            .retry(once())
            .step("fails", async |_| -> Result<u32, Failure> { Err(Failure::new("no")) })
            .await;
        seen.add(&format!("{value:?} {failed:?} {} {}", cx.random(), cx.now().await?));
        cx.sleep(DAY).await?;
        Ok(value.dropped)
    };
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    assert_eq!(client(&env.store).start(JOB, &0).await.unwrap().result().await.unwrap(), 0);
    let seen = tally.all();
    assert_eq!((seen.len(), seen[0].1), (1, 2), "seen twice, the same: {seen:?}");
    driving.shutdown().await;
}

fn once() -> tidelock_core::model::retry::RetryPolicy {
    tidelock_core::model::retry::RetryPolicy { max_attempts: 1, ..Default::default() }
}

/// A name used twice is an error, unless the uses have different indices.
pub async fn w15_a_name_counts_once_and_an_index_makes_many(env: &Env) {
    let twice = async |cx: &Ctx, _: u32| {
        cx.step("a", async |_| Ok(1)).await?;
        Ok(cx.step("a", async |_| Ok(2)).await?)
    };
    let driving = worker(&env.store).register(JOB, twice).start().await.unwrap();
    client(&env.store).start(JOB, &0).id("r").await.unwrap();
    until("the run is suspended", async || driving.stats().parked == 1).await;
    let error = env.store.row(&run_key("r")).await.last_error.unwrap();
    assert!(error.contains("TL1017") && error.contains("step \"a\""), "{error}");
    driving.shutdown().await;
    let indexed = async |cx: &Ctx, n: u32| {
        let mut sum = 0;
        for i in 0..n {
            sum += cx.scope("item", i).step("a", async |_| Ok(i)).await?;
        }
        Ok(sum)
    };
    let driving = worker(&env.store).register(JOB, indexed).start().await.unwrap();
    assert_eq!(client(&env.store).start(JOB, &100).await.unwrap().result().await.unwrap(), 4950);
    driving.shutdown().await;
}

/// A step that exhausts its attempts fails the run. The journal contains the attempts.
pub async fn w16_a_spent_budget_fails_the_run_with_its_history(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let charged = cx.step("charge", async |step| -> Result<u32, Failure> {
            counted.add("charge");
            Err(Failure::new(format!("no money at attempt {}", step.attempt())))
        });
        Ok(charged.await?)
    };
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    let failed = run.result().await.unwrap_err();
    let WorkflowError::Failed { failure, .. } = &failed else { panic!("{failed}") };
    assert!(failure.message().contains("no money at attempt 5"), "{failure}");
    assert_eq!(tally.of("charge"), 5);
    let journal = Key::of("tidelock.journal", &[Arg::Str("r".to_owned()), Arg::Int(0)]).unwrap();
    let tried = env.store.history(&journal).await;
    assert_eq!(tried.iter().filter(|event| event.event_type.as_str() == "tidelock.run.tried").count(), 4);
    driving.shutdown().await;
}

/// A cancelled run drops its waits, lets a started step finish, and cleans up once.
pub async fn w17_a_cancelled_run_cleans_up_once(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let (counted, waits) = (tally.clone(), gate.clone());
    let code = async move |cx: &Ctx, kind: u32| {
        let result: Result<(), StepError> = match kind {
            0 => cx.sleep(DAY).await,
            1 => cx.signal(GO).await.map(drop),
            2 => {
                cx.step("slow", async |_| {
                    counted.add("slow");
                    waits.pass().await;
                    Ok(())
                })
                .await
            }
            _ => cx.child("kid", JOB, &0).await.map(drop),
        };
        let next = cx
            .step("next", async |_| {
                counted.add("next");
                Ok(())
            })
            .await;
        assert!(matches!(next, Err(StepError::Cancelled { .. })), "nothing new begins");
        cx.shielded()
            .step("tidy", async |_| {
                counted.add("tidy");
                Ok(())
            })
            .await?;
        result?;
        next?;
        Ok(String::new())
    };
    let kid = async |cx: &Ctx, n: u32| {
        cx.sleep(DAY).await?;
        Ok(n)
    };
    let driving = worker(&env.store).register(ASK, code).register(JOB, kid).start().await.unwrap();
    let there = client(&env.other);
    for kind in 0..4 {
        let before = driving.stats().activations;
        let run = there.start(ASK, &kind).id(format!("r{kind}")).await.unwrap();
        until("it waits", async || {
            driving.stats().activations > before && (driving.stats().active == 0 || tally.of("slow") == 1)
        })
        .await;
        run.cancel("changed my mind").await.unwrap();
        gate.open(usize::from(kind == 2));
        let cancelled = run.result().await.unwrap_err();
        let WorkflowError::Cancelled { failure, .. } = &cancelled else { panic!("{kind}: {cancelled}") };
        assert!(failure.message().contains("changed my mind"), "{failure}");
        assert_eq!((tally.of("tidy"), tally.of("next")), (kind as usize + 1, 0));
        let over = run.cancel("again").await.unwrap_err();
        assert!(matches!(over, WorkflowError::Over { status: RunStatus::Cancelled, .. }), "{over}");
    }
    let kid = there.handle(JOB, "r3/kid").result().await.unwrap_err();
    assert!(matches!(kid, WorkflowError::Cancelled { .. }), "{kid}");
    driving.shutdown().await;
}

/// Effects are in the same commit as the step. Wherever a worker dies, there is one effect per record.
pub async fn w18_effects_in_the_batch_are_there_exactly_once(env: &Env) {
    let account = key("account");
    env.store.done(Batch::new().put(&account, Expect::Absent, payload(json!({ "debits": 0 })))).await;
    let debited = account.clone();
    let code = async move |cx: &Ctx, n: u32| {
        for i in 0..n {
            let debit = async |_| Ok((Batch::new().merge(&debited, [Delta::inc("/debits", 1)]), ()));
            cx.scope("debit", i).step_in("debit", debit).await?;
        }
        Ok(n)
    };
    let run = client(&env.store).start(JOB, &40).id("r").await.unwrap();
    for round in 0.. {
        let conn = if round % 2 == 0 { &env.store } else { &env.other };
        let driving = worker(conn).register(JOB, code.clone()).start().await.unwrap();
        until("it comes a bit further", async || {
            driving.stats().steps > 2 || run.status().await.unwrap().is_over()
        })
        .await;
        let over = run.status().await.unwrap().is_over();
        driving.abort().await;
        // The last request of the dead worker may still be in flight; effects and records differ only for a moment.
        let mut debits = 0;
        until("there are as many effects as records", async || {
            debits = env.store.value(&account).await.unwrap()["debits"].as_u64().unwrap();
            debits == records(env, "r").await
        })
        .await;
        if over {
            assert_eq!(debits, 40);
            break;
        }
        env.pass(LEASE);
    }
}

/// Returns the number of recorded steps of a run.
async fn records(env: &Env, run: &str) -> u64 {
    let journal = Key::of("tidelock.journal", &[Arg::Str(run.to_owned()), Arg::Int(0)]).unwrap();
    let entries = env.store.history(&journal).await;
    entries.iter().filter(|event| event.event_type.as_str() == "tidelock.run.done").count() as u64
}

//! Records of runs: typed reasons, times, lists by time, and counts.

use std::collections::BTreeSet;

use tidelock_core::key::INDEX_KIND;
use tidelock_core::model::retry::RetryPolicy;
use tidelock_core::workflow::{
    AttemptView, Ctx, Failure, RunActivity, RunCursor, RunFilter, RunStatus, Signal, StepView, Suspension,
    Workflow, WorkflowClient,
};

use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const GO: Signal<u32> = Signal::new("go");
const JOB: Workflow<u32, u32> = Workflow::new("job").accepts(GO);
const SECOND: Duration = Duration::from_secs(1);

/// A panic whose message resembles the report of dead workers stays a panic: the reason is data, not text.
pub async fn w30_a_panic_that_reads_like_a_dead_worker_stays_a_panic(env: &Env) {
    let code = async |_: &Ctx, _: u32| panic!("it was begun 3 times and never said how it went");
    let driving = worker(&env.store).register(JOB, code).start().await.unwrap();
    client(&env.store).start(JOB, &0).id("r").await.unwrap();
    for tries in 1..=8 {
        until("the run is suspended", async || driving.stats().parked == tries).await;
        let doing = client(&env.other).show("r").await.unwrap().doing;
        let RunActivity::Suspended { suspension: Suspension::UnfitCode { code, .. }, reason, .. } = &doing
        else {
            panic!("try {tries}: {doing:?}");
        };
        assert!(code == "TL1021" && reason.starts_with("TL1021: "), "try {tries}: {reason}");
        env.pass(Duration::from_mins(5));
    }
    driving.shutdown().await;
}

/// A suspended run has a typed reason: its workflow is unknown, its input does not fit, or its workers died.
pub async fn w30_a_suspended_run_has_its_reason_as_data(env: &Env) {
    let here = client(&env.store);
    let other: Workflow<u32, u32> = Workflow::new("other");
    let text: Workflow<String, u32> = Workflow::new("job");
    here.start(other, &0).id("unknown").await.unwrap();
    here.start(text, &"seven".to_owned()).id("unfit").await.unwrap();
    let driving = worker(&env.store).register(JOB, mixed).start().await.unwrap();
    let suspension = async |run: &str| match client(&env.other).show(run).await.unwrap().doing {
        RunActivity::Suspended { suspension, reason, .. } => {
            assert_eq!(suspension.to_string(), reason);
            Some(suspension)
        }
        _ => {
            env.pass(Duration::from_millis(100));
            None
        }
    };
    until("both are suspended", async || {
        suspension("unknown").await.is_some() && suspension("unfit").await.is_some()
    })
    .await;
    let (workflow, known) = ("other".to_owned(), vec!["job".to_owned()]);
    assert_eq!(suspension("unknown").await, Some(Suspension::UnknownWorkflow { workflow, known }));
    let unfit = suspension("unfit").await;
    assert!(
        matches!(&unfit, Some(Suspension::UnfitInput { workflow, .. }) if workflow == "job"),
        "{unfit:?}"
    );
    driving.shutdown().await;
}

/// Completes, fails, waits, continues as new, or starts a child.
async fn mixed(cx: &Ctx, n: u32) -> Result<u32, Failure> {
    match n % 5 {
        1 => Ok(cx.step("fail", async |_| Err::<u32, _>(Failure::permanent("no"))).await?),
        2 => Ok(cx.signal(GO).await?),
        3 => cx.continue_as_new(&0).await,
        4 => Ok(cx.child("kid", JOB, &0).await?),
        _ => Ok(cx.step("add", async |_| Ok(n + 1)).await?),
    }
}

async fn all_documents(conn: &Conn, kind: &str) -> Vec<StoredDocument> {
    let (mut all, mut page) = (Vec::new(), Page::first(100));
    loop {
        let found = conn.documents(&KeyPrefix::kind(kind), page).await.unwrap();
        all.extend(found.rows);
        let Some(next) = found.next else { return all };
        page = Page::after(&next, 100);
    }
}

/// Returns the index entries that the documents of all runs require, and the existing ones.
async fn entries(conn: &Conn) -> (BTreeSet<Key>, BTreeSet<Key>) {
    let mut expected = BTreeSet::new();
    for document in all_documents(conn, "tidelock.run").await {
        let value: serde_json::Value = document.value.parse().unwrap();
        let run = document.key.args().remove(0);
        let at = Arg::Int(-value["started_at"].as_str().unwrap().parse::<Timestamp>().unwrap().as_micros());
        let status = format!("run.{}", value["status"].as_str().unwrap());
        for list in ["run".to_owned(), status] {
            expected.insert(Key::of(INDEX_KIND, &[Arg::Str(list), at.clone(), run.clone()]).unwrap());
        }
    }
    let found = all_documents(conn, INDEX_KIND).await.into_iter().map(|document| document.key).collect();
    (expected, found)
}

/// Waits until the index agrees with the documents, and the counts with both. The commit of a stopped worker may arrive
/// between two reads.
async fn agrees(env: &Env, when: &str) {
    until(&format!("the index agrees {when}"), async || {
        let (expected, found) = entries(&env.other).await;
        let counts = client(&env.store).counts().await.unwrap();
        let scanned = |status: RunStatus| {
            let list = Arg::Str(format!("run.{status}"));
            expected.iter().filter(|key| key.args().first() == Some(&list)).count() as u64
        };
        expected == found && RunStatus::ALL.iter().all(|status| counts[status] == scanned(*status))
    })
    .await;
}

async fn ended(client: &WorkflowClient, run: &str, status: RunStatus) {
    until(&format!("{run} is {status}"), async || client.show(run).await.unwrap().status == status).await;
}

/// Index entries move with every change of a run's status, and are deleted with the run.
pub async fn w31_no_index_entry_is_stale_after_any_change(env: &Env) {
    let (here, there) = (client(&env.store), client(&env.other));
    for (id, input) in [("done", 0), ("failed", 1), ("waits", 2), ("again", 3), ("parent", 4), ("stops", 2)] {
        here.start(JOB, &input).id(id).await.unwrap();
        env.pass(SECOND);
    }
    agrees(env, "after the starts").await;
    let driving = worker(&env.store).register(JOB, mixed).start().await.unwrap();
    for id in ["done", "again", "parent", "parent/kid"] {
        until(&format!("{id} is there"), async || there.show(id).await.is_ok()).await;
        ended(&there, id, RunStatus::Completed).await;
    }
    ended(&there, "failed", RunStatus::Failed).await;
    assert_eq!(there.show("again").await.unwrap().generation, 1);
    agrees(env, "after the ends").await;
    there.cancel("stops", "enough").await.unwrap();
    ended(&there, "stops", RunStatus::Cancelled).await;
    there.fork("failed", "fail", "forked").await.unwrap();
    ended(&there, "forked", RunStatus::Failed).await;
    agrees(env, "after a cancel and a fork").await;
    driving.shutdown().await;
    there.resume("failed", "again").await.unwrap();
    assert_eq!(there.show("failed").await.unwrap().ended_at, None);
    agrees(env, "after a resume").await;
    let driving = worker(&env.store).register(JOB, mixed).start().await.unwrap();
    ended(&there, "failed", RunStatus::Failed).await;
    agrees(env, "after it failed again").await;
    env.pass(Duration::from_hours(1));
    assert_eq!(there.retire(Duration::from_mins(1), 100).await.unwrap(), 7);
    agrees(env, "after a retirement").await;
    let counts = there.counts().await.unwrap();
    assert_eq!(counts.values().sum::<u64>(), 1, "{counts:?}");
    // The id is free again.
    there.start(JOB, &0).id("done").await.unwrap().result().await.unwrap();
    agrees(env, "after a new start of an old id").await;
    driving.shutdown().await;
}

/// Workers that die anywhere between two commits leave the index consistent with the documents.
pub async fn w31_the_index_agrees_whenever_a_worker_died(env: &Env) {
    let here = client(&env.store);
    for round in 0..12_u32 {
        let dying = worker(&env.store).register(JOB, mixed).start().await.unwrap();
        for n in 0..5 {
            here.start(JOB, &n).id(format!("r-{round:02}-{n}")).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(u64::from(round))).await;
        dying.abort().await;
        agrees(env, &format!("in round {round}")).await;
        env.pass(LEASE);
    }
    let driving = worker(&env.other).register(JOB, mixed).start().await.unwrap();
    until("all have ended but those that wait", async || {
        env.pass(SECOND);
        here.counts().await.unwrap()[&RunStatus::Running] == 12
    })
    .await;
    agrees(env, "at the end").await;
    driving.shutdown().await;
}

/// Returns all pages of a list, and calls `between` after each page.
async fn paged(
    client: &WorkflowClient,
    filter: &RunFilter,
    mut between: impl AsyncFnMut(usize),
) -> Vec<String> {
    let (mut runs, mut cursor, mut pages) = (Vec::new(), None::<RunCursor>, 0);
    loop {
        let page = client.list(filter, cursor.as_ref(), 4).await.unwrap();
        assert!(page.runs.len() <= 4);
        runs.extend(page.runs.into_iter().map(|run| run.run));
        let Some(next) = page.next else { return runs };
        cursor = Some(next.to_string().parse().unwrap());
        between(pages).await;
        pages += 1;
    }
}

/// Lists are newest first. Runs that start or end between two pages neither repeat nor skip others.
pub async fn w32_lists_are_newest_first_while_runs_start_and_end(env: &Env) {
    let (here, there) = (client(&env.store), client(&env.other));
    let names: Vec<String> = (0..20).map(|n| format!("r-{:02}", (n * 7) % 20)).collect();
    for (n, id) in names.iter().enumerate() {
        here.start(JOB, &2).id(id).await.unwrap();
        // Some runs have the same start time and are ordered by id.
        env.pass(if n % 5 == 4 { Duration::ZERO } else { SECOND });
    }
    let mut expected = Vec::new();
    for id in &names {
        expected.push((there.show(id).await.unwrap().started_at, id.clone()));
    }
    expected.sort_by(|(a, one), (b, other)| (b, one).cmp(&(a, other)));
    let expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();
    let driving = worker(&env.store).register(JOB, mixed).start().await.unwrap();
    let seen = paged(&there, &RunFilter::default(), async |page| {
        env.pass(SECOND);
        here.start(JOB, &0).id(format!("new-{page}")).await.unwrap();
        let id = &names[page * 3];
        here.signal(id, GO, &1).await.unwrap();
        ended(&there, id, RunStatus::Completed).await;
    })
    .await;
    assert_eq!(seen, expected);
    until("the new ones have ended", async || here.counts().await.unwrap()[&RunStatus::Running] == 16).await;
    let running = RunFilter { status: Some(RunStatus::Running), ..RunFilter::default() };
    let left: Vec<String> =
        expected.iter().filter(|id| !names.iter().step_by(3).take(4).any(|n| n == *id)).cloned().collect();
    assert_eq!(paged(&there, &running, async |_| ()).await, left, "by status");
    driving.shutdown().await;
}

/// Filters narrow a list, whether a prefix has few runs or many.
pub async fn w32_lists_are_narrowed_down(env: &Env) {
    let (here, there) = (client(&env.store), client(&env.other));
    let other: Workflow<u32, u32> = Workflow::new("other");
    for n in 0..260 {
        here.start(JOB, &0).id(format!("many-{n:03}")).attribute("third", (n % 3).to_string()).await.unwrap();
        env.pass(SECOND);
    }
    for n in 0..3 {
        here.start(other, &0).id(format!("few-{n}")).queue("few").await.unwrap();
        env.pass(SECOND);
    }
    let driving = worker(&env.store).queues(["few"]).register(other, mixed).start().await.unwrap();
    for n in 0..3 {
        ended(&there, &format!("few-{n}"), RunStatus::Completed).await;
    }
    driving.shutdown().await;
    let ids = async |filter: RunFilter| paged(&there, &filter, async |_| ()).await;
    let prefix = |prefix: &str| RunFilter { prefix: Some(prefix.to_owned()), ..RunFilter::default() };
    assert_eq!(ids(prefix("few-")).await, ["few-2", "few-1", "few-0"]);
    assert_eq!(ids(prefix("many-00")).await.len(), 10);
    let many: Vec<String> = (0..260).rev().map(|n| format!("many-{n:03}")).collect();
    assert_eq!(ids(prefix("many-")).await, many);
    let of = RunFilter { workflow: Some("other".to_owned()), ..RunFilter::default() };
    assert_eq!(ids(of).await, ["few-2", "few-1", "few-0"]);
    let failed = RunFilter { status: Some(RunStatus::Failed), ..RunFilter::default() };
    assert_eq!(ids(failed).await, [""; 0]);
    let third = [("third".to_owned(), "1".to_owned())].into();
    let both = RunFilter { attributes: third, ..prefix("many-") };
    assert_eq!(ids(both).await.len(), 87);
}

fn step<'a>(steps: &'a [StepView], name: &str) -> &'a StepView {
    steps.iter().find(|step| step.name == name).expect("the step is recorded")
}

fn took(attempt: &AttemptView) -> Duration {
    attempt.ended_at.since(attempt.started_at)
}

/// A run records its start and end times, and each step those of its attempts, across a retry and its backoff.
pub async fn w33_times_are_those_of_the_code(env: &Env) {
    let clock = env.clock.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let millis = Duration::from_millis;
        cx.step("slow", async |_| {
            clock.advance(millis(50));
            Ok(())
        })
        .await?;
        let policy = RetryPolicy { base: Duration::from_secs(60), ..RetryPolicy::default() };
        let flaky = cx.retry(policy).step("flaky", async |step| {
            clock.advance(millis(20) * step.attempt());
            if step.attempt() == 1 { Err(Failure::new("not yet")) } else { Ok(1) }
        });
        let value = flaky.await?;
        cx.sleep(Duration::from_mins(10)).await?;
        Ok(value)
    };
    let begun = env.now();
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    env.pass(SECOND);
    let driving = skipping(env, &env.store).register(JOB, code).start().await.unwrap();
    run.result().await.unwrap();
    driving.shutdown().await;
    let there = client(&env.other);
    let (view, steps) = (there.show("r").await.unwrap(), there.steps("r").await.unwrap());
    let (slow, flaky, sleep) = (step(&steps, "slow"), step(&steps, "flaky"), step(&steps, "sleep 1"));
    assert_eq!(view.started_at, begun);
    assert_eq!((slow.attempts.len(), flaky.attempts.len()), (1, 2), "{steps:?}");
    assert_eq!(took(&slow.attempts[0]), Duration::from_millis(50));
    assert_eq!(flaky.attempts.iter().map(took).collect::<Vec<_>>(), [20, 40].map(Duration::from_millis));
    assert_eq!(flaky.attempts[0].error.as_deref(), Some("not yet"));
    assert_eq!(flaky.attempts[1].error, None);
    let backoff = flaky.attempts[1].started_at.since(flaky.attempts[0].ended_at);
    assert!(backoff >= Duration::from_secs(30), "{backoff:?}");
    assert_eq!(
        (flaky.started_at, flaky.ended_at),
        (flaky.attempts[0].started_at, Some(flaky.attempts[1].ended_at))
    );
    assert!(sleep.ended_at.unwrap().since(sleep.started_at) >= Duration::from_mins(10), "{sleep:?}");
    let times = [
        Some(view.started_at.after(SECOND)),
        Some(slow.started_at),
        slow.ended_at,
        Some(flaky.started_at),
        flaky.ended_at,
        Some(sleep.started_at),
        sleep.ended_at,
        view.ended_at,
    ];
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?}");
}

/// An attempt whose worker died leaves no record. The start of the step is that of the recorded attempt.
pub async fn w33_a_step_that_runs_again_after_a_crash_has_the_times_of_its_last_attempt(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let code = |tally: Tally, gate: Gate| {
        async move |cx: &Ctx, _: u32| {
            let step = cx.step("one", async |_| {
                tally.add("one");
                gate.pass().await;
                Ok(1)
            });
            Ok(step.await?)
        }
    };
    let run = client(&env.store).start(JOB, &0).id("r").await.unwrap();
    let dying = worker(&env.store).register(JOB, code(tally.clone(), gate.clone())).start().await.unwrap();
    until("the step began", async || tally.of("one") == 1).await;
    dying.abort().await;
    env.pass(LEASE);
    let taken_over = env.now();
    let driving = worker(&env.other).register(JOB, code(tally.clone(), gate.clone())).start().await.unwrap();
    until("the step began again", async || tally.of("one") == 2).await;
    env.pass(SECOND);
    gate.open(1);
    run.result().await.unwrap();
    driving.shutdown().await;
    let steps = client(&env.other).steps("r").await.unwrap();
    let one = step(&steps, "one");
    assert_eq!(
        (one.attempts.len(), one.started_at, took(&one.attempts[0])),
        (1, taken_over, SECOND),
        "{one:?}"
    );
}

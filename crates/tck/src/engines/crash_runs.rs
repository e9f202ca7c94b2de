//! Crashes at every point of workflow runs (W2, W17, W18, W19): each effect exists once, and each run ends as without a crash.

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::workflow::{
    Ctx, Failure, RunActivity, RunStatus, Signal, Worker, Workflow, WorkflowClient,
};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::dump::rows;
use crate::prelude::*;
use crate::reacting::until;
use crate::running::*;

const DAY: Duration = Duration::from_hours(24);
const ROUND: Workflow<u32, u32> = Workflow::new("round").accepts(GO);
const KID: Workflow<u32, u32> = Workflow::new("kid");
const LONG: Workflow<u32, u32> = Workflow::new("long");
const GO: Signal<u32> = Signal::new("go");

/// Returns the effect that counts how often a step committed.
fn counted(name: &str) -> Batch {
    Batch::new().merge_or_create(&key("effects"), payload(json!({})), [Delta::push("/".to_owned() + name, 1)])
}

/// A step with an effect in the store and one outside.
async fn both(cx: &Ctx, outside: &Outside, name: &str) -> Result<(), Failure> {
    let made = outside.clone();
    let step = cx.step(name, async move |step| {
        made.make(step.key());
        Ok(())
    });
    step.await?;
    let effect = counted(&format!("{}-{name}", cx.run()).replace('/', "-"));
    Ok(cx.step_in(&format!("{name} in"), async move |_| Ok((effect, ()))).await?)
}

fn driver(process: &Process) -> Worker {
    let outside = process.outside.clone();
    let round = async move |cx: &Ctx, round: u32| {
        both(cx, &outside, &format!("first{round}")).await?;
        cx.sleep(DAY).await?;
        let heard = cx.signal(GO).await?;
        let kid = cx.child("kid", KID, &round).await?;
        if round == 0 {
            return cx.continue_as_new(&(round + 1)).await;
        }
        Ok(heard + kid)
    };
    let outside = process.outside.clone();
    let kid = async move |cx: &Ctx, n: u32| {
        both(cx, &outside, "kid").await?;
        cx.sleep(Duration::from_secs(5)).await?;
        Ok(n + 10)
    };
    let outside = process.outside.clone();
    let long = async move |cx: &Ctx, _: u32| {
        let slept = cx.sleep(1_000 * DAY).await;
        let (made, shielded) = (outside.clone(), cx.shielded());
        let tidy = shielded.step("tidy", async move |step| {
            made.make(step.key());
            Ok(())
        });
        tidy.await?;
        shielded.step_in("tidy in", async |_| Ok((counted("tidied"), ()))).await?;
        slept?;
        Ok(0)
    };
    let worker = Worker::new(std::sync::Arc::clone(&process.store));
    let worker = worker.poll_interval(Duration::from_millis(2)).lease_ttl(crate::reacting::LEASE);
    worker.register(ROUND, round).register(KID, kid).register(LONG, long)
}

fn caller(process: &Process) -> WorkflowClient {
    WorkflowClient::new(std::sync::Arc::clone(&process.store))
}

async fn effects(env: &Env, outside: &Outside) -> (Value, Vec<String>) {
    let inside = env.store.value(&key("effects")).await.unwrap_or_default();
    (inside, outside.kinds().into_iter().collect())
}

/// Returns the types of the journal entries of each run, in the order of their names. A signal that was sent again has another
/// entry, although the run receives it once.
async fn journals(env: &Env) -> Value {
    let mut all = serde_json::Map::new();
    let journals = KeyPrefix::kind("tidelock.journal");
    for journal in crate::dump::pages(async |page| env.store.streams(&journals, page).await).await {
        let events = env.store.history(&journal.key).await;
        let types = events.into_iter().map(|event| event.event_type.to_string());
        let mut types: Vec<String> = types.filter(|name| name != "tidelock.run.heard").collect();
        types.sort();
        all.insert(journal.key.to_string(), json!(types));
    }
    Value::Object(all)
}

/// Waits until no row of a run is left. A signal that arrives just before the end of its run wakes the row once more.
async fn at_rest(env: &Env) {
    until("no row is left", async || env.store.count(&WorkFilter::default()).await == 0).await;
}

/// Steps, sleeps, signals, children and a new generation.
struct Rounds;

#[async_trait(?Send)]
impl Scenario for Rounds {
    async fn live(&self, process: &Process) {
        let driving =
            driver(process).skip_time(std::sync::Arc::clone(&process.env.clock)).start().await.unwrap();
        let caller = caller(process);
        let run = caller.start(ROUND, &0).id("r").await.unwrap();
        for n in [1, 2] {
            // A signal that a dead process sent already is received once. After the end it is refused.
            drop(caller.signal_once("r", GO, &format!("go{n}"), &n).await);
        }
        assert_eq!(run.result().await.unwrap(), 13);
        at_rest(&process.env).await;
        driving.shutdown().await;
    }

    async fn end(&self, env: &Env, outside: &Outside) -> Value {
        let (inside, outside) = effects(env, outside).await;
        let status = client(&env.store).handle(ROUND, "r").status().await.unwrap();
        assert_eq!(status, RunStatus::Completed);
        let rows = rows(&env.store).await;
        json!({ "inside": inside, "outside": outside, "journals": journals(env).await, "rows": rows })
    }
}

/// A cancelled run, which cleans up.
struct CancelledRun;

#[async_trait(?Send)]
impl Scenario for CancelledRun {
    async fn live(&self, process: &Process) {
        let driving = driver(process).start().await.unwrap();
        let (caller, env) = (caller(process), &process.env);
        let run = caller.start(LONG, &0).id("c").await.unwrap();
        until("it waits or has ended", async || match client(&env.store).show("c").await {
            Ok(view) => view.status.is_over() || matches!(view.doing, RunActivity::Waits { .. }),
            Err(_) => false,
        })
        .await;
        drop(run.cancel("no longer needed").await);
        until("it has ended", async || run.status().await.unwrap() == RunStatus::Cancelled).await;
        at_rest(&process.env).await;
        driving.shutdown().await;
    }

    async fn end(&self, env: &Env, outside: &Outside) -> Value {
        let (inside, outside) = effects(env, outside).await;
        let rows = rows(&env.store).await;
        json!({ "inside": inside, "outside": outside, "journals": journals(env).await, "rows": rows })
    }
}

/// A process crashes at every point of runs with steps, sleeps, signals, children and a new generation.
pub async fn w2_every_crash_point_of_a_run(env: &Env) {
    every_crash_point("a run", env, Rounds).await;
}

/// A process crashes at every point of a run that is cancelled and cleans up.
pub async fn w17_every_crash_point_of_a_cancelled_run(env: &Env) {
    every_crash_point("a cancelled run", env, CancelledRun).await;
}

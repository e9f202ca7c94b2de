//! An AI agent as a durable workflow: a model calls tools in turns, and asks a person before an action that cannot be undone.
//! Every response of the model and every effect of a tool is a step, so a crash in turn 14 costs one call, not fourteen.
//! The model here is a plain function, so that the example needs no network and always has the same result.
//!
//! `cargo run -p tidelock-examples --example 10_agent`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::model::retry::RetryPolicy;
use tidelock::prelude::*;
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{Client, Ctx, Failure, Signal, Worker, Workflow, WorkflowEngine};

const INVOICES: u32 = 12;
const MOST_TURNS: u32 = 100;
const DAY: Duration = Duration::from_hours(24);

/// The next action that the model requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Action {
    Read { invoice: u32 },
    Pay { invoice: u32, euros: u32 },
    Answer { text: String },
}

/// The decision of a person.
#[derive(Serialize, Deserialize)]
struct Decision {
    allowed: bool,
}

const DECISION: Signal<Decision> = Signal::new("decision");
const AGENT: Workflow<String, String> = Workflow::new("agent").hears(DECISION);

/// The external systems, which count their calls.
#[derive(Clone, Default)]
struct Outside {
    model_calls: Arc<AtomicU32>,
    payments: Arc<AtomicU32>,
}

impl Outside {
    /// Reads every invoice, and pays those that are due.
    async fn model(&self, seen: &[String]) -> Result<Action, Failure> {
        self.model_calls.fetch_add(1, Ordering::Relaxed);
        let read = seen.iter().filter(|line| line.starts_with("invoice")).count() as u32;
        let open = seen.last().and_then(|line| line.strip_suffix(" euros are due"));
        Ok(match open.and_then(|line| line.rsplit(' ').next()).and_then(|euros| euros.parse().ok()) {
            Some(euros) => Action::Pay { invoice: read, euros },
            None if read < INVOICES => Action::Read { invoice: read + 1 },
            None => {
                let paid = seen.iter().filter(|line| line.starts_with("paid")).count();
                let refused = seen.iter().filter(|line| line.starts_with("not allowed")).count();
                Action::Answer { text: format!("{read} invoices read, {paid} paid, {refused} refused") }
            }
        })
    }

    async fn read(&self, invoice: u32) -> Result<String, Failure> {
        Ok(match invoice % 4 {
            0 => format!("invoice {invoice}: {} euros are due", invoice * 100),
            _ => format!("invoice {invoice}: nothing is due"),
        })
    }

    /// Pays an invoice. A real bank would use the key as an idempotency key, and pay once for all requests with it.
    async fn pay(&self, invoice: u32, euros: u32, key: &str) -> Result<String, Failure> {
        self.payments.fetch_add(1, Ordering::Relaxed);
        Ok(format!("paid invoice {invoice}: {euros} euros as {key}"))
    }
}

async fn agent(cx: &Ctx, outside: &Outside, task: String) -> Result<String, Failure> {
    let mut seen = vec![task];
    // Models are slow and fail often, so each call has a timeout and many retries.
    let patient = RetryPolicy { max_attempts: 8, ..RetryPolicy::default() };
    for number in 1..=MOST_TURNS {
        let turn = cx.scope("turn", number).retry(patient).limit(Duration::from_secs(60));
        let action = turn.step("model", async |_| outside.model(&seen).await).await?;
        let outcome = match action {
            Action::Answer { text } => return Ok(text),
            Action::Read { invoice } => turn.step("read", async |_| outside.read(invoice).await).await?,
            Action::Pay { invoice, euros } => {
                cx.publish("question", &Some(format!("turn {number}: pay {euros} euros?")));
                let decision = turn.signal_within(DECISION, DAY).await?;
                cx.publish("question", &None::<String>);
                if decision.is_some_and(|decision| decision.allowed) {
                    let pay =
                        async |step: tidelock::workflow::Step| outside.pay(invoice, euros, &step.key()).await;
                    turn.step("pay", pay).await?
                } else {
                    format!("not allowed: invoice {invoice}")
                }
            }
        };
        seen.push(outcome);
    }
    Err(Failure::new(format!("it had no answer after {MOST_TURNS} turns")))
}

async fn worker(
    store: &SharedStore,
    outside: &Outside,
) -> Result<WorkerHandle<WorkflowEngine>, Box<dyn Error>> {
    let outside = outside.clone();
    let code = async move |cx: &Ctx, task: String| agent(cx, &outside, task).await;
    let worker = Worker::new(Arc::clone(store)).lease_ttl(Duration::from_millis(500)).register(AGENT, code);
    Ok(worker.start().await?)
}

/// Waits until the agent publishes a question other than `not`.
async fn question(client: &Client, run: &str, not: Option<&str>) -> Result<String, Box<dyn Error>> {
    loop {
        let asked: Option<Option<String>> = client.value(run, "question").await?;
        match asked.flatten() {
            Some(question) if Some(question.as_str()) != not => return Ok(question),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let (client, outside) = (Client::new(Arc::clone(&store)), Outside::default());
    let run = client.start(AGENT, &"Pay what is due.".to_owned()).id("agent-1").await?;

    let first = worker(&store, &outside).await?;
    let asked = question(&client, run.run(), None).await?;
    println!("{asked} yes");
    // The worker dies while a person decides. No progress is lost: another worker resumes the run.
    first.abort().await;
    println!("the worker died after {} calls of the model", outside.model_calls.load(Ordering::Relaxed));
    let second = worker(&store, &outside).await?;
    run.signal(DECISION, &Decision { allowed: true }).await?;

    let asked = question(&client, run.run(), Some(&asked)).await?;
    println!("{asked} no");
    run.signal(DECISION, &Decision { allowed: false }).await?;
    let asked = question(&client, run.run(), Some(&asked)).await?;
    println!("{asked} yes");
    run.signal(DECISION, &Decision { allowed: true }).await?;

    println!("the agent: {}", run.result().await?);
    let calls = outside.model_calls.load(Ordering::Relaxed);
    println!("{calls} calls of the model, {} payments", outside.payments.load(Ordering::Relaxed));
    assert_eq!((calls, outside.payments.load(Ordering::Relaxed)), (INVOICES + 4, 2));
    second.shutdown().await;
    Ok(())
}

//! An AI agent as a durable workflow: a model calls tools in turns, and asks a person before an action that cannot be undone.
//! Every response of the model and every effect of a tool is a step, so a crash in turn 14 costs one call, not fourteen.
//! The model here is a plain function, so that the example needs no network and always has the same result.
//!
//! `cargo run -p tidelock-examples --example 10_agent`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

const INVOICES: u32 = 12;
const DECISION: Signal<bool> = Signal::new("decision");
const AGENT: Workflow<String, String> = Workflow::new("agent").accepts(DECISION);

/// The calls of the external systems.
static MODEL_CALLS: AtomicU32 = AtomicU32::new(0);
static PAYMENTS: AtomicU32 = AtomicU32::new(0);

/// The next action that the model requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Action {
    Read { invoice: u32 },
    Pay { invoice: u32, euros: u32 },
    Finish { text: String },
}

/// The model: reads every invoice, and pays those that are due.
async fn model(seen: &[String]) -> Result<Action, Failure> {
    MODEL_CALLS.fetch_add(1, Ordering::Relaxed);
    let count = |begin: &str| seen.iter().filter(|line| line.starts_with(begin)).count() as u32;
    let due =
        seen.last().and_then(|line| line.strip_suffix(" euros are due")?.rsplit(' ').next()?.parse().ok());
    let invoice = count("invoice");
    Ok(match due {
        Some(euros) => Action::Pay { invoice, euros },
        None if invoice < INVOICES => Action::Read { invoice: invoice + 1 },
        None => Action::Finish { text: format!("{} paid, {} refused", count("paid"), count("refused")) },
    })
}

async fn agent(cx: &Ctx, task: String) -> Result<String, Failure> {
    let mut seen = vec![task];
    // Models are slow and fail often, so each call has a timeout and many retries.
    let patient = RetryPolicy { max_attempts: 8, ..RetryPolicy::default() };
    for number in 1..=100 {
        let turn = cx.scope("turn", number).retry(patient).limit(Duration::from_secs(60));
        seen.push(match turn.step("model", async |_| model(&seen).await).await? {
            Action::Finish { text } => return Ok(text),
            Action::Read { invoice } => turn.step("read", async |_| read(invoice).await).await?,
            Action::Pay { invoice, euros } => {
                cx.set_query_value("question", &format!("turn {number}: pay {euros} euros?"));
                match turn.signal_timeout(DECISION, Duration::from_hours(24)).await? {
                    Some(true) => turn.step("pay", async |step| pay(invoice, &step.key()).await).await?,
                    _ => format!("refused invoice {invoice}"),
                }
            }
        });
    }
    Err(Failure::new("no result after 100 turns"))
}

async fn read(invoice: u32) -> Result<String, Failure> {
    let due = if invoice.is_multiple_of(4) {
        format!("{invoice}00 euros are due")
    } else {
        "nothing is due".to_owned()
    };
    Ok(format!("invoice {invoice}: {due}"))
}

/// Pays an invoice. A real bank would take the key as an idempotency key, and pay once for all requests with it.
async fn pay(invoice: u32, key: &str) -> Result<String, Failure> {
    PAYMENTS.fetch_add(1, Ordering::Relaxed);
    Ok(format!("paid invoice {invoice} as {key}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tide = Tidelock::open("memory:").await?;
    let service = || tide.service().lease_ttl(Duration::from_millis(500)).workflow(AGENT, agent).start();
    let mut running = service().await?;
    let run = tide.start(AGENT, &"Pay what is due.".to_owned()).id("agent-1").await?;
    for (turn, allowed) in [(5, true), (10, false), (15, true)] {
        running.idle().await?; // the run waits for a person
        let question: Option<String> = tide.runs().value(run.run(), "question").await?;
        println!("{} {allowed}", question.as_deref().unwrap_or_default());
        assert!(question.is_some_and(|question| question.starts_with(&format!("turn {turn}:"))));
        // The process dies while the person decides. Another one resumes the run, and repeats no call.
        drop(std::mem::replace(&mut running, service().await?));
        run.signal(DECISION, &allowed).await?;
    }
    println!("the agent: {}", run.result().await?);
    let calls = (MODEL_CALLS.load(Ordering::Relaxed), PAYMENTS.load(Ordering::Relaxed));
    println!("{} calls of the model, {} payments", calls.0, calls.1);
    assert_eq!(calls, (INVOICES + 4, 2));
    running.shutdown().await;
    Ok(())
}

//! A saga of three bookings: all of them succeed, or none remains. Compensations undo the bookings in reverse order when a later booking
//! fails, and when the run is cancelled while it waits.
//!
//! `cargo run -p tidelock-examples --example 08_saga`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tidelock::prelude::*;
use tidelock::workflow::{Client, Ctx, Failure, Signal, Worker, Workflow, WorkflowError};

const PAID: Signal<u32> = Signal::new("paid");
const TRIP: Workflow<String, String> = Workflow::new("trip").hears(PAID);
const PARTS: [&str; 3] = ["flight", "hotel", "car"];

/// The external booking systems. They identify a booking by the key of its step, so a repeated booking has no further effect.
#[derive(Clone, Default)]
struct Agencies(Arc<Mutex<BTreeSet<String>>>);

impl Agencies {
    fn bookings(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self, key: &str, city: &str, part: &str) -> Result<(), Failure> {
        if (city, part) == ("Ghent", "car") {
            // A retry cannot succeed.
            return Err(Failure::permanent("there are no cars in Ghent"));
        }
        println!("  booked    {key}");
        self.bookings().insert(key.to_owned());
        Ok(())
    }

    fn undo(&self, key: &str) {
        println!("  undone    {key}");
        self.bookings().remove(key);
    }
}

async fn trip(cx: &Ctx, agencies: &Agencies, city: String) -> Result<String, Failure> {
    let mut begun = Vec::new();
    match book(cx, agencies, &city, &mut begun).await {
        Ok(euros) => Ok(format!("{city}, {euros} euros")),
        Err(failure) => {
            // Steps of clean_up() run even if the run is cancelled.
            let cleaning = cx.clean_up();
            for part in begun.iter().rev() {
                let key = format!("{}:{part}", cx.run());
                let undo = cleaning.scope("undo", part);
                undo.step("cancel", async |_| {
                    agencies.undo(&key);
                    Ok(())
                })
                .await?;
            }
            Err(failure)
        }
    }
}

async fn book(
    cx: &Ctx,
    agencies: &Agencies,
    city: &str,
    begun: &mut Vec<&'static str>,
) -> Result<u32, Failure> {
    for part in PARTS {
        // The part is recorded before the step starts, because a failed booking may still have taken effect.
        begun.push(part);
        cx.step(part, async |step| agencies.book(&step.key(), city, part)).await?;
    }
    Ok(cx.signal(PAID).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let agencies = Agencies::default();
    let booked = agencies.clone();
    let code = async move |cx: &Ctx, city: String| trip(cx, &booked, city).await;
    let driving = Worker::new(Arc::clone(&store)).register(TRIP, code).start().await?;
    let client = Client::new(store);

    println!("to Bergen:");
    let bergen = client.start(TRIP, &"Bergen".to_owned()).id("bergen").await?;
    bergen.signal(PAID, &420).await?;
    println!("  completed {}", bergen.result().await?);

    println!("to Ghent:");
    let ghent = client.start(TRIP, &"Ghent".to_owned()).id("ghent").await?;
    match ghent.result().await {
        Err(WorkflowError::Failed { failure, .. }) => println!("  failed    {failure}"),
        other => return Err(format!("it should have failed: {other:?}").into()),
    }

    println!("to Porto, and then not:");
    let porto = client.start(TRIP, &"Porto".to_owned()).id("porto").await?;
    while !agencies.bookings().contains("porto:car") {
        tokio::task::yield_now().await;
    }
    porto.cancel("the customer stays at home").await?;
    match porto.result().await {
        Err(WorkflowError::Cancelled { failure, .. }) => println!("  cancelled {failure}"),
        other => return Err(format!("it should have been cancelled: {other:?}").into()),
    }

    let left: Vec<String> = agencies.bookings().iter().cloned().collect();
    println!("what is booked in the end: {}", left.join(", "));
    assert_eq!(left, ["bergen:car", "bergen:flight", "bergen:hotel"]);
    driving.shutdown().await;
    Ok(())
}

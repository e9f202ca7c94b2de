//! A saga of three bookings: all of them succeed, or none remains. Compensations undo the bookings in reverse order when a later
//! booking fails, and when the run is cancelled while it waits.
//!
//! `cargo run -p tidelock-examples --example 08_saga`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tidelock::prelude::*;

const PAID: Signal<u32> = Signal::new("paid");
const TRIP: Workflow<String, String> = Workflow::new("trip").accepts(PAID);

/// The external booking systems. They identify a booking by the key of its step, so a repeated request books once.
static BOOKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn bookings() -> std::sync::MutexGuard<'static, BTreeSet<String>> {
    BOOKED.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn trip(cx: &Ctx, city: String) -> Result<String, Failure> {
    let mut saga = cx.saga();
    let booked = async {
        for part in ["flight", "hotel", "car"] {
            // The compensation is added first, because a failed booking may still have taken effect.
            let booking = format!("{}:{part}", cx.run());
            saga.undo(part, move |_| async move {
                println!("  undone {booking}: {}", bookings().remove(&booking));
                Ok(())
            });
            cx.step(part, async |step| {
                if (city.as_str(), part) == ("Ghent", "car") {
                    return Err(Failure::permanent("there are no cars in Ghent")); // no retry
                }
                println!("  booked {}", step.key());
                bookings().insert(step.key());
                Ok(())
            })
            .await?;
        }
        Ok(format!("{city}, {} euros", cx.signal(PAID).await?))
    };
    let booked = booked.await;
    saga.finish(booked).await // after a failure, runs the compensations, also when the run is cancelled
}

#[tokio::main]
async fn main() -> Result<(), tidelock::Error> {
    let tide = Tidelock::open("memory:").await?;
    let service = tide.service().workflow(TRIP, trip).start().await?;

    let bergen = tide.start(TRIP, &"Bergen".to_owned()).id("bergen").await?;
    bergen.signal(PAID, &420).await?;
    assert_eq!(bergen.result().await?, "Bergen, 420 euros");

    let ghent = tide.start(TRIP, &"Ghent".to_owned()).id("ghent").await?;
    println!("{:?}", ghent.result().await.err().map(|error| error.to_string()));

    let porto = tide.start(TRIP, &"Porto".to_owned()).id("porto").await?;
    service.idle().await?; // all parts are booked, and the run waits for the payment
    porto.cancel("the customer stays at home").await?;
    println!("{:?}", porto.result().await.err().map(|error| error.to_string()));

    let left: Vec<String> = bookings().iter().cloned().collect();
    println!("booked in the end: {}", left.join(", "));
    assert_eq!(left, ["bergen:car", "bergen:flight", "bergen:hotel"]);
    service.shutdown().await;
    Ok(())
}

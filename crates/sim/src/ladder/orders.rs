//! Workflows: steps with effects outside and inside the store, sleeps, signals, children, cancellation with compensation.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};
use tidelock::Service;
use tidelock::prelude::*;
use tidelock::workflow::{RunStatus, WorkflowError};

use super::outside::Outside;
use super::{check_once, count_once, counted};
use crate::scenario::{Sim, SimError};

const APPROVE: Signal<u64> = Signal::new("approve");
const ORDER: Workflow<Order, u64> = Workflow::new("order").accepts(APPROVE);
const PART: Workflow<u64, u64> = Workflow::new("part");

/// The input of a run: which operations it has.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    number: u64,
    sleeps: u64,
    signalled: bool,
    child: bool,
    races: bool,
    again: u32,
    /// Whether a client cancels it.
    cancelled: bool,
}

pub(super) fn serve(service: Service, outside: &Arc<Outside>) -> Service {
    let (for_orders, for_parts) = (Arc::clone(outside), Arc::clone(outside));
    service
        .workflow(ORDER, async move |cx: &Ctx, order: Order| run_order(cx, order, &for_orders).await)
        .workflow(PART, async move |cx: &Ctx, number: u64| run_part(cx, number, &for_parts).await)
}

async fn run_part(cx: &Ctx, number: u64, outside: &Outside) -> Result<u64, Failure> {
    cx.step("deliver", async |step: Step| outside.call(step.key()).await).await?;
    cx.step_in("stock", async |_: Step| Ok((count_once(Batch::new(), "stocked", cx.run())?, ()))).await?;
    Ok(number * 2)
}

async fn run_order(cx: &Ctx, order: Order, outside: &Outside) -> Result<u64, Failure> {
    let mut saga = cx.saga();
    let ordered = async {
        // Added before the booking, because a booking that failed may have taken effect.
        saga.undo("unbook", async move |step: Step| outside.call(step.key()).await);
        let name = generation(cx.run(), order.again);
        let booked = async |_: Step| Ok((count_once(Batch::new(), "booked", &name)?, order.number));
        let mut sum = cx.step_in("book", booked).await?;
        if order.sleeps > 0 {
            cx.sleep(Duration::from_millis(order.sleeps)).await?;
        }
        sum += cx.step("charge", async |step: Step| outside.call(step.key()).await.map(|()| 1_u64)).await?;
        if order.child {
            sum += cx.child("part", PART, &order.number).await?;
        }
        if order.races {
            race(cx, outside).await?;
        }
        if order.signalled {
            // Each generation gets an approval of its own.
            sum += cx.signal(APPROVE).await?;
        }
        if order.cancelled {
            cx.sleep(Duration::from_hours(24)).await?;
        }
        Ok(sum)
    }
    .await;
    let sum = saga.finish(ordered).await?;
    if order.again > 0 {
        return cx.continue_as_new(&Order { again: order.again - 1, ..order }).await;
    }
    Ok(sum)
}

/// Runs two steps at once. The next step depends on the one that ends first, in every replay.
async fn race(cx: &Ctx, outside: &Outside) -> Result<(), Failure> {
    let left = pin!(cx.step("left", async |step: Step| outside.call(step.key()).await));
    let right = pin!(cx.step("right", async |step: Step| outside.call(step.key()).await));
    match select(left, right).await {
        Either::Left((ended, other)) => {
            ended?;
            cx.step("left first", async |step: Step| outside.call(step.key()).await).await?;
            other.await?;
        }
        Either::Right((ended, other)) => {
            ended?;
            cx.step("right first", async |step: Step| outside.call(step.key()).await).await?;
            other.await?;
        }
    }
    Ok(())
}

/// Returns the output of a run that is not cancelled: that of the last generation, which gets the last approval.
fn expected(order: &Order) -> u64 {
    let part = if order.child { order.number * 2 } else { 0 };
    order.number + 1 + part + if order.signalled { 1_000 + u64::from(order.again) } else { 0 }
}

/// Returns the name of a generation, as its effects have it.
fn generation(run: &str, left: u32) -> String {
    format!("{run} {left}")
}

fn id(order: &Order) -> String {
    format!("order-{}", order.number)
}

pub(super) fn drive(sim: &mut Sim, count: u64, outside: &Arc<Outside>) {
    for number in 1..=count {
        let rng = sim.rng();
        let order = Order {
            number,
            sleeps: if rng.one_in(2) { 0 } else { rng.below(120_000) },
            signalled: rng.one_in(3),
            child: rng.one_in(3),
            races: rng.one_in(3),
            again: if rng.one_in(4) { 2 } else { 0 },
            cancelled: rng.one_in(6),
        };
        let (checked, outside) = (order.clone(), Arc::clone(outside));
        let asked = Arc::clone(&outside);
        sim.client(async move |tide: Tidelock| request(tide, order, &asked).await);
        sim.check(async move |tide: Tidelock| check(&tide, &checked, &outside).await);
    }
}

/// Starts, signals or cancels a run, and waits for its end.
async fn request(tide: Tidelock, order: Order, outside: &Outside) -> Result<(), SimError> {
    let run = tide.start(ORDER, &order).id(id(&order)).await?;
    for number in 0..=order.again {
        outside.pause(2_000).await;
        if order.signalled && run.status().await? == RunStatus::Running {
            let (id, value) = (format!("approval {number}"), 1_000 + u64::from(number));
            // Sent twice under one id, it is received once.
            drop(tide.runs().signal_once(run.run(), APPROVE, &id, &value).await);
            let sent = tide.runs().signal_once(run.run(), APPROVE, &id, &value).await;
            // The signals of an earlier attempt may have ended the run.
            if sent.is_err() && run.status().await? == RunStatus::Running {
                sent?;
            }
        }
    }
    outside.pause(1_000).await;
    if order.cancelled && run.status().await? == RunStatus::Running {
        run.cancel("the customer stays at home").await?;
    }
    match run.result().await {
        Ok(sum) if !order.cancelled && sum == expected(&order) => Ok(()),
        Err(WorkflowError::Cancelled { .. }) if order.cancelled => Ok(()),
        Ok(sum) => Err(format!("{} returned {sum}", id(&order)).into()),
        Err(error) => Err(error.into()),
    }
}

async fn check(tide: &Tidelock, order: &Order, outside: &Outside) -> Result<(), SimError> {
    let run = id(order);
    for left in 0..=order.again {
        let passed = order.again - left;
        let identity = if passed == 0 { run.clone() } else { format!("{run}#{passed}") };
        let booked = counted(tide, "booked", &generation(&run, left)).await?;
        let unbooked = outside.calls(&format!("{identity}:undo unbook"));
        if order.cancelled {
            if booked > 1 || (booked == 1 && unbooked == 0) {
                let found = format!("booked {booked} times and unbooked {unbooked} times");
                return Err(format!("{identity} was cancelled, {found}").into());
            }
            continue;
        }
        if booked != 1 || unbooked > 0 {
            return Err(format!("{identity} was booked {booked} times and unbooked {unbooked} times").into());
        }
        if outside.calls(&format!("{identity}:charge")) == 0 {
            return Err(format!("{identity} was not charged under its key: {:?}", outside.keys(&run)).into());
        }
        if order.child {
            check_once(tide, "stocked", &format!("{identity}/part")).await?;
        }
    }
    Ok(())
}

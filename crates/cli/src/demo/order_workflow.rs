//! The order workflow of the demo and its three effects.
//!
//! Each effect is in the same commit as the completion of its step. It therefore happens exactly once, wherever the process dies.
//! Shipping commits four writes together: the event of the order, the event of the gate, the fencing token of the gate's lease, and
//! the completion of the step. After a takeover of the run, the same commit also records it in the chaos stream.

use std::time::Duration;

use anyhow::Result;
use tidelock::events::ExecuteError;
use tidelock::lease;
use tidelock::model::retry::RetryPolicy;
use tidelock::prelude::*;
use tidelock::workflow::{Ctx, Failure, Step, TxStep};

use super::chaos::{Chaos, TAKEN_OVER};
use super::shop::{Done, LEFT, Lines, Order, PAID, SHIPPED, Shop, SoldOut, Stock};

/// The lease time, after which other workers take over the leases of a dead worker.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The packing time of a parcel. The run sleeps and holds nothing during it.
const PACKING: Duration = Duration::from_millis(30);
/// One payment in this number fails at its first attempt, on purpose.
const FAILS_EVERY: u64 = 11;
/// No step gives up in a demo: a conflict is resolved on retry, and an empty shelf is about to be filled.
pub(crate) const PATIENT: RetryPolicy = RetryPolicy {
    max_attempts: 10_000,
    base: Duration::from_millis(4),
    factor: 1.5,
    cap: Duration::from_millis(250),
};

/// Serializes the tasks of this process, so that only one of them requests the lease.
static GATE: LockClass = LockClass::new("gate");

/// The handles that a worker's steps use.
#[derive(Clone, Debug)]
pub(crate) struct OrderWorkflow {
    pub(crate) store: SharedStore,
    pub(crate) events: Events,
    pub(crate) locks: Locks,
    pub(crate) shop: Shop,
    pub(crate) name: String,
}

/// Runs the workflow of an order. On deterministic replay after a crash it skips the completed steps.
pub(crate) async fn order(cx: &Ctx, desk: &OrderWorkflow, order: Order) -> Result<u64, Failure> {
    let cx = &cx.retry(PATIENT);
    for (item, pieces) in &order.lines {
        let (line, count) =
            (cx.scope("line", item), u32::try_from(pieces.len()).map_err(|e| failure(e.into()))?);
        line.step_in("reserve", async |step| desk.reserve(&step, order.number, item, count).await).await?;
    }
    let price = cx.step_in("pay", async |step| desk.pay(&step, order.number, &order.lines)).await?;
    cx.sleep(PACKING).await?;
    cx.step_tx("ship", async |step| desk.ship(&step, order.number).await).await?;
    Ok(price)
}

impl OrderWorkflow {
    /// Reserves items on the shelf. If another worker was faster, the commit is rejected and the step decides again.
    async fn reserve(&self, step: &Step, order: u64, item: &str, count: u32) -> Result<(Batch, ()), Failure> {
        let done = self.done(step, order);
        let decided =
            self.events.decide(self.shop.named(item), |stock: &Stock| stock.reserve(count, &done)).await;
        match decided {
            Ok(batch) => Ok((batch, ())),
            Err(ExecuteError::Refused { error: SoldOut, state, .. }) => {
                Err(Failure::new(format!("{count} {item} wanted, {} left", state.left)))
            }
            Err(ExecuteError::Events(error)) => Err(error.into()),
        }
    }

    /// Appends the payment. The append accepts any version, so that only the journal prevents a second payment.
    fn pay(&self, step: &Step, order: u64, lines: &Lines) -> Result<(Batch, u64), Failure> {
        if order.is_multiple_of(FAILS_EVERY) && step.attempt() == 1 {
            return Err(Failure::new("the bank did not answer"));
        }
        let price = 3 * super::shop::pieces(lines);
        let stream = self.shop.order(order).map_err(failure)?;
        let paid = NewEvent::new(PAID.parse()?, Payload::of(&self.done(step, order))?);
        Ok((Batch::new().append(&stream, Expect::Exists, [paid]), price))
    }

    async fn ship(&self, step: &TxStep, order: u64) -> Result<(), Failure> {
        let gate = self.shop.gate_of(order).map_err(failure)?;
        let _turn = self.locks.lock(&GATE.key([gate.to_string()])?).await?;
        let owner: Owner = self.name.parse()?;
        let held = lease::request(&self.store, &gate).owner(owner).ttl(LEASE).acquire().await?;
        let done = Done { fence: Some(held.fence().0), ..self.done(step, order) };
        let event = |name: &str| Ok::<_, Failure>(NewEvent::new(name.parse()?, Payload::of(&done)?));
        let mut batch = Batch::new()
            .append(&self.shop.order(order).map_err(failure)?, Expect::Exists, [event(SHIPPED)?])
            .append(&gate, Expect::Any, [event(LEFT)?])
            .and(step.end(&())?);
        if done.takeovers > 0 {
            batch = batch.append(&Chaos::stream(self.shop.run())?, Expect::Any, [event(TAKEN_OVER)?]);
        }
        let shipped = self.store.apply(held.guard(batch)?).await;
        // A lease that cannot be released expires.
        drop(held.release().await);
        shipped?;
        Ok(())
    }

    fn done(&self, step: &Step, order: u64) -> Done {
        Done {
            order,
            worker: self.name.clone(),
            attempt: step.attempt(),
            again: step.may_have_run(),
            takeovers: step.takeovers(),
            fence: None,
        }
    }
}

fn failure(error: anyhow::Error) -> Failure {
    Failure::permanent(format!("{error:#}"))
}

//! What a worker does with an order: the workflow, and the three things that its steps do.
//!
//! Each effect is in the same commit as the end of its step, so it is there exactly once, wherever the process dies. Shipping is one
//! commit of four: the event of the order, the event of the gate, the fence of the gate's lease, and the end of the step.

use std::time::Duration;

use anyhow::Result;
use tidelock::events::ExecuteError;
use tidelock::lease;
use tidelock::model::retry::RetryPolicy;
use tidelock::prelude::*;
use tidelock::workflow::{Ctx, Failure, Step, TxStep};

use super::chaos::{Chaos, TAKEN_OVER};
use super::shop::{Done, LEFT, Lines, Order, PAID, SHIPPED, Shop, SoldOut, Stock};

/// How long others wait for what a dead worker held.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Parcels are packed for so long: the run sleeps, and holds nothing meanwhile.
const PACKING: Duration = Duration::from_millis(30);
/// One payment in so many fails at its first attempt, on purpose.
const FAILS_EVERY: u64 = 11;
/// Nobody gives up in a demo: somebody else was faster, or the shelf is about to be filled.
pub(crate) const PATIENT: RetryPolicy = RetryPolicy {
    max_attempts: 10_000,
    base: Duration::from_millis(4),
    factor: 1.5,
    cap: Duration::from_millis(250),
};

/// One at a time within this process, so that only one of its tasks asks for the lease.
static GATE: Functor = Functor::new("gate");

/// Where a worker stands.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    pub(crate) store: SharedStore,
    pub(crate) events: Events,
    pub(crate) locks: Locks,
    pub(crate) shop: Shop,
    pub(crate) name: String,
}

/// What an order goes through. Run again from the journal after a crash, it skips what is done.
pub(crate) async fn order(cx: &Ctx, desk: &Desk, order: Order) -> Result<u64, Failure> {
    let cx = &cx.retry(PATIENT);
    for (item, pieces) in &order.lines {
        let (line, count) =
            (cx.scope("line", item), u32::try_from(pieces.len()).map_err(|e| told(e.into()))?);
        line.step_in("reserve", async |step| desk.reserve(&step, order.number, item, count).await).await?;
    }
    let price = cx.step_in("pay", async |step| desk.pay(&step, order.number, &order.lines)).await?;
    cx.sleep(PACKING).await?;
    cx.step_tx("ship", async |step| desk.ship(&step, order.number).await).await?;
    Ok(price)
}

impl Desk {
    /// Takes items from the shelf. If somebody else was faster, the commit is refused, and this decides again.
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

    /// The append accepts any version, so that nothing but the journal keeps a second payment out.
    fn pay(&self, step: &Step, order: u64, lines: &Lines) -> Result<(Batch, u64), Failure> {
        if order.is_multiple_of(FAILS_EVERY) && step.attempt() == 1 {
            return Err(Failure::new("the bank did not answer"));
        }
        let price = 3 * super::shop::pieces(lines);
        let stream = self.shop.order(order).map_err(told)?;
        let paid = NewEvent::new(PAID.parse()?, Payload::of(&self.done(step, order))?);
        Ok((Batch::new().append(&stream, Expect::Exists, [paid]), price))
    }

    async fn ship(&self, step: &TxStep, order: u64) -> Result<(), Failure> {
        let gate = self.shop.gate_of(order).map_err(told)?;
        let _turn = self.locks.lock(&GATE.term([gate.to_string()])?).await?;
        let owner: Owner = self.name.parse()?;
        let held = lease::hold(&self.store, &gate).owner(owner).ttl(LEASE).wait().await?;
        let done = Done { fence: Some(held.fence().0), ..self.done(step, order) };
        let event = |name: &str| Ok::<_, Failure>(NewEvent::new(name.parse()?, Payload::of(&done)?));
        let mut batch = Batch::new()
            .append(&self.shop.order(order).map_err(told)?, Expect::Exists, [event(SHIPPED)?])
            .append(&gate, Expect::Any, [event(LEFT)?])
            .and(step.end(&())?);
        if done.takeovers > 0 {
            batch = batch.append(&Chaos::stream(self.shop.run())?, Expect::Any, [event(TAKEN_OVER)?]);
        }
        let shipped = self.store.apply(held.guard(batch)?).await;
        // One that cannot be given back ends by itself.
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

fn told(error: anyhow::Error) -> Failure {
    Failure::permanent(format!("{error:#}"))
}

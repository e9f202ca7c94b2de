//! Load generator of the demo: customers with two windows each fill their carts and order the contents.
//!
//! An order empties the cart, creates its stream and starts its run in one commit. The commit succeeds only if the cart is
//! unchanged since it was read. Its id makes a duplicate order have no further effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tidelock::prelude::*;
use tidelock::workflow::WorkflowClient;
use tidelock_server::Conflicts;
use tokio::task::JoinSet;

use super::Expected;
use super::shop::{Cart, ITEMS, ORDER, Order, PLACED, Shop, pieces};
use crate::random::Random;

/// The number of customers, and the number of windows of each.
pub(crate) const CUSTOMERS: usize = 4;
const WINDOWS: usize = 2;
/// The maximum number of orders in flight. The demo shows correctness, not queues.
const BACKLOG: u64 = 100;
/// One order in this number is placed twice, as after a lost response.
const TWICE_EVERY: u64 = 20;

/// Serializes the orders of a cart: the other window waits for its turn.
static CART: LockClass = LockClass::new("cart");

/// The customers of the shop.
#[derive(Clone, Debug)]
pub(crate) struct LoadGenerator {
    pub(crate) store: SharedStore,
    pub(crate) shop: Shop,
    pub(crate) tally: Arc<Expected>,
    pub(crate) locks: Locks,
    /// The number of conflicts between windows, for display.
    pub(crate) conflicts: Arc<Conflicts>,
    /// The number of the next order, and of the next piece.
    pub(crate) next: Arc<AtomicU64>,
    pub(crate) pieces: Arc<AtomicU64>,
}

impl LoadGenerator {
    /// Lets all customers buy until the deadline. Each window is a separate task, because locks are owned by tasks.
    pub(crate) async fn buy(self, until: Instant) -> Result<()> {
        let mut windows = JoinSet::new();
        for window in 0..CUSTOMERS * WINDOWS {
            let customers = self.clone();
            windows.spawn(async move { customers.window(window % CUSTOMERS, until).await });
        }
        while let Some(ended) = windows.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn window(&self, customer: usize, until: Instant) -> Result<()> {
        let states = StateRegistry::new(self.store.clone()).observer(self.conflicts.clone());
        let cart = states.state::<Cart>(&self.shop.customer(customer), "cart")?;
        let mut random = Random::fresh();
        while Instant::now() < until {
            for _ in 0..=random.below(3) {
                let item = ITEMS.get(random.below(ITEMS.len())).copied().unwrap_or_default();
                let piece = self.pieces.fetch_add(1, Ordering::Relaxed);
                cart.mutate(move |cart| cart.lines.entry(item.to_owned()).or_default().push(piece)).await?;
                self.tally.put((customer, item.to_owned(), piece));
            }
            self.order(&cart, customer).await?;
            while self.under_way().await? > BACKLOG && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            tokio::time::sleep(random.between(Duration::from_millis(20), Duration::from_millis(60))).await;
        }
        Ok(())
    }

    async fn under_way(&self) -> Result<u64> {
        Ok(self.tally.asked().saturating_sub(self.shop.shipped(&*self.store).await?))
    }

    /// Orders the contents of the cart, unless it is empty.
    async fn order(&self, cart: &State<Cart>, customer: usize) -> Result<()> {
        let key = self.shop.customer(customer).key("cart")?;
        let _turn = self.locks.lock(&CART.key([key.to_string()])?).await?;
        loop {
            let Some(seen) = cart.read().await?.filter(|seen| !seen.value.lines.is_empty()) else {
                return Ok(());
            };
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let order = Order { number, customer, lines: seen.value.lines };
            let batch =
                self.batch(&order)?.put(&key, Expect::Exact(seen.version), Payload::of(&Cart::default())?);
            match self.store.apply(batch.clone()).await {
                Ok(_) => return self.ordered(&order, batch).await,
                // The other window has changed the cart.
                Err(error) if matches!(error.refusal(), Some(Refusal::Document { .. })) => {
                    self.tally.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn batch(&self, order: &Order) -> Result<Batch> {
        let (_, start) = WorkflowClient::new(self.store.clone())
            .start(ORDER, order)
            .id(self.shop.named(order.number))
            .queue(self.shop.named("orders"))
            .batch()?;
        let placed = NewEvent::new(PLACED.parse()?, Payload::of(order)?);
        Ok(start.op_id(OpId::new()).append(&self.shop.order(order.number)?, Expect::Absent, [placed]))
    }

    async fn ordered(&self, order: &Order, batch: Batch) -> Result<()> {
        self.tally.add_receipt(order.number, pieces(&order.lines));
        if order.number.is_multiple_of(TWICE_EVERY) {
            let receipt = self.store.apply(batch).await?;
            ensure!(
                receipt.repeated,
                "order {} was placed twice under one id and not recognised",
                order.number
            );
            self.tally.recognised.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

//! Violations that the proof must detect: a lost order, a duplicate, an order that was never placed, a stray item.

use std::sync::Arc;

use tidelock::workflow::{Ctx, Worker, WorkflowClient};

use super::super::shop::{Cart, Done, LEFT, Lines, ORDER, Order, PAID, PLACED, SHIPPED, Sales, StockEvent};
use super::*;
use crate::demo::shop::Stock;

/// A shop in which every order succeeds, unless a test changes it.
struct Street {
    store: SharedStore,
    shop: Shop,
    tally: Expected,
}

impl Street {
    async fn with_orders(orders: u64) -> Self {
        let (store, shop): (SharedStore, _) = (Arc::new(MemoryStore::new()), Shop::new("test"));
        let street = Self { store, shop, tally: Expected::default() };
        street.tally.kills.store(1, Ordering::Relaxed);
        let events = Events::new(Arc::clone(&street.store));
        let full = Stock::default().fill(None);
        events.append::<Stock>(street.shop.named("apples"), [full]).await.unwrap();
        for number in 1..=orders {
            street.order(number).await;
        }
        street
    }

    fn done(order: u64) -> Done {
        let worker = "worker-1".to_owned();
        Done { order, worker, attempt: 1, again: false, takeovers: 1, fence: Some(order) }
    }

    async fn apply(&self, batch: Batch) {
        self.store.apply(batch).await.unwrap();
    }

    async fn append(&self, stream: &Key, event: &str, payload: &impl Serialize) {
        let event = NewEvent::new(event.parse().unwrap(), Payload::of(payload).unwrap());
        self.apply(Batch::new().append(stream, Expect::Any, [event])).await;
    }

    /// Appends an event of the shelf and returns its version.
    async fn shelf(&self, event: StockEvent) -> u64 {
        let events = Events::new(Arc::clone(&self.store));
        let appended = events.append::<Stock>(self.shop.named("apples"), [event]).await.unwrap();
        appended.unwrap().last_version.0
    }

    async fn reserve(&self, number: u64, count: u32) {
        self.shelf(StockEvent::Reserved { count, done: Self::done(number) }).await;
        self.sell(number, count).await;
    }

    async fn sell(&self, number: u64, count: u32) {
        self.apply(self.shop.sell("apples", Sales::of(number, count)).unwrap()).await;
    }

    /// Puts an apple into a cart the given number of times.
    async fn put(&self, customer: usize, piece: u64, times: u64) {
        let states = StateRegistry::new(Arc::clone(&self.store));
        let cart = states.state::<Cart>(&self.shop.customer(customer), "cart").unwrap();
        for _ in 0..times {
            let put = move |cart: &mut Cart| cart.lines.entry("apples".to_owned()).or_default().push(piece);
            cart.mutate(put).await.unwrap();
        }
        self.tally.put((customer, "apples".to_owned(), piece));
    }

    async fn ship(&self, number: u64) {
        self.append(&self.shop.order(number).unwrap(), SHIPPED, &Self::done(number)).await;
    }

    /// Processes an order of one apple: put into a cart, ordered, reserved, paid and shipped. Its run completes.
    async fn order(&self, number: u64) {
        self.order_and_take(number, 1).await;
    }

    /// Does the same with the given number of apples reserved.
    async fn order_and_take(&self, number: u64, taken: u32) {
        let order = Order { number, customer: 0, lines: Lines::from([("apples".to_owned(), vec![number])]) };
        self.tally.put((0, "apples".to_owned(), number));
        self.tally.add_receipt(number, 1);
        let stream = self.shop.order(number).unwrap();
        self.append(&stream, PLACED, &order).await;
        self.reserve(number, taken).await;
        self.append(&stream, PAID, &Self::done(number)).await;
        self.ship(number).await;
        self.append(&self.shop.gate_of(number).unwrap(), LEFT, &Self::done(number)).await;
        let client = WorkflowClient::new(Arc::clone(&self.store));
        let run = client.start(ORDER, &order).id(self.shop.named(number)).await.unwrap();
        let code = async |_: &Ctx, _: Order| Ok(1_u64);
        let driving = Worker::new(Arc::clone(&self.store)).register(ORDER, code).start().await.unwrap();
        run.result().await.unwrap();
        driving.shutdown().await;
    }

    async fn proof(&self) -> Verification {
        Verification::find(&self.store, &self.shop, &self.tally, true).await.unwrap()
    }
}

#[tokio::test]
async fn it_holds_when_everything_was_done_once() {
    let proof = Street::with_orders(2).await.proof().await;
    assert!(proof.holds, "{proof:?}");
    assert_eq!((proof.asked, proof.done, proof.takeovers), (2, 2, 2));
}

#[test]
fn each_number_has_one_line_on_a_terminal_of_80_columns() {
    for (name, _, source) in Verification::default().lines() {
        assert!(source.len() <= 52, "{name}: {source}");
    }
}

#[tokio::test]
async fn it_finds_what_was_lost() {
    let street = Street::with_orders(1).await;
    street.tally.add_receipt(2, 0);
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.lost), (false, 1));
}

#[tokio::test]
async fn it_finds_an_order_whose_run_never_was() {
    let street = Street::with_orders(1).await;
    let order = Order { number: 2, customer: 0, lines: Lines::new() };
    street.append(&street.shop.order(2).unwrap(), PLACED, &order).await;
    street.tally.add_receipt(2, 0);
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.lost), (false, 1));
}

#[tokio::test]
async fn it_finds_what_was_doubled() {
    let shipped_twice = Street::with_orders(1).await;
    shipped_twice.ship(1).await;
    let proof = shipped_twice.proof().await;
    assert_eq!((proof.holds, proof.doubled), (false, 1));
    let left_twice = Street::with_orders(1).await;
    let later = Done { fence: Some(9), ..Street::done(1) };
    left_twice.append(&left_twice.shop.gate_of(1).unwrap(), LEFT, &later).await;
    let proof = left_twice.proof().await;
    assert_eq!((proof.holds, proof.doubled, proof.collided), (false, 1, 0));
    let taken_twice = Street::with_orders(1).await;
    taken_twice.reserve(1, 1).await;
    let proof = taken_twice.proof().await;
    assert_eq!((proof.holds, proof.doubled, proof.astray), (false, 1, Some(1)));
}

#[tokio::test]
async fn it_finds_effects_that_were_not_requested() {
    let street = Street::with_orders(1).await;
    street.append(&street.shop.order(9).unwrap(), PAID, &Street::done(9)).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.unasked), (false, 1));
}

#[tokio::test]
async fn it_finds_items_that_went_astray_and_sales_that_were_not_counted() {
    let street = Street::with_orders(1).await;
    street.put(0, 100, 0).await;
    assert_eq!(street.proof().await.astray, Some(1));
    let street = Street::with_orders(1).await;
    street.sell(1, 1).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.miscounted), (false, Some(1)));
}

/// The totals are right in each of these, and so are those of every item.
#[tokio::test]
async fn losses_do_not_offset_duplicates() {
    let of_two_customers = Street::with_orders(1).await;
    of_two_customers.put(0, 100, 0).await;
    of_two_customers.put(1, 101, 2).await;
    let proof = of_two_customers.proof().await;
    assert_eq!((proof.holds, proof.astray), (false, Some(2)));
    let of_one_customer = Street::with_orders(1).await;
    of_one_customer.put(0, 100, 0).await;
    of_one_customer.put(0, 101, 2).await;
    let proof = of_one_customer.proof().await;
    assert_eq!((proof.holds, proof.astray), (false, Some(2)));
    let between_orders = Street::with_orders(0).await;
    between_orders.order_and_take(1, 2).await;
    between_orders.order_and_take(2, 0).await;
    let proof = between_orders.proof().await;
    assert_eq!((proof.holds, proof.astray), (false, Some(2)));
}

#[tokio::test]
async fn a_sale_that_was_not_counted_does_not_make_up_for_one_that_was_counted_twice() {
    let street = Street::with_orders(1).await;
    street.sell(1, 1).await;
    street.order(2).await;
    let (counted, missed) = (street.shop.sales("apples").unwrap(), Sales::of(2, 1));
    let back = [("/sold", missed.sold), ("/sales", missed.sales), ("/checksum", missed.checksum)]
        .map(|(path, by)| Delta::inc(path, -i64::try_from(by).unwrap()));
    let none = Payload::of(&Sales::default()).unwrap();
    street.apply(Batch::new().merge_or_create(&counted, none, back)).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.miscounted), (false, Some(1)));
}

#[tokio::test]
async fn each_shelf_that_ran_low_is_filled_once() {
    let street = Street::with_orders(1).await;
    let low = || StockEvent::RanLow { left: 1 };
    let filling = |version| StockEvent::Received { count: 1, answers: Some(version) };
    let first = street.shelf(low()).await;
    street.shelf(filling(first)).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.refills), (true, 1), "{proof:?}");
    street.shelf(filling(first)).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.refills_doubled, proof.refills_left_out), (false, 1, Some(0)));
    street.shelf(low()).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.refills_doubled, proof.refills_left_out), (false, 1, Some(1)));
}

#[tokio::test]
async fn it_does_not_hold_when_a_worker_fell() {
    let street = Street::with_orders(1).await;
    street.tally.fallen.store(1, Ordering::Relaxed);
    let proof = street.proof().await;
    assert!(!proof.holds && proof.said().1.contains("fallen 1"), "{}", proof.said().1);
}

#[tokio::test]
async fn a_proof_needs_kills_and_orders() {
    let unharmed = Street::with_orders(1).await;
    unharmed.tally.kills.store(0, Ordering::Relaxed);
    let proof = unharmed.proof().await;
    assert!(!proof.holds && proof.said().1.contains("no worker was killed"), "{}", proof.said().1);
    let proof = Street::with_orders(0).await.proof().await;
    assert!(!proof.holds && proof.said().1.contains("no order came in"), "{}", proof.said().1);
}

#[tokio::test]
async fn it_finds_two_at_one_gate() {
    let street = Street::with_orders(1).await;
    street.append(&street.shop.gate_of(1).unwrap(), LEFT, &Street::done(1)).await;
    let proof = street.proof().await;
    assert_eq!((proof.holds, proof.collided), (false, 1));
}

#[tokio::test]
async fn it_finds_fires_that_ran_twice_or_not_at_all() {
    for (fires, doubled, left_out) in [("[0, 500000, 500000]", 1, 0), ("[0, 1500000]", 0, 2)] {
        let street = Street::with_orders(1).await;
        let takes = Payload::from_json(format!(r#"{{"fires": {fires}}}"#)).unwrap();
        street.apply(Batch::new().put(&street.shop.takes().unwrap(), Expect::Any, takes)).await;
        let proof = street.proof().await;
        assert_eq!((proof.holds, proof.takes_doubled, proof.takes_left_out), (false, doubled, left_out));
    }
}

//! Outbox destinations (I6–I8 and R6): messages under a taken id, discarded messages, and slow destinations.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidelock_core::failure::Failure;
use tidelock_core::outbox::{Delivery, Message, Outbox, OutboxError, Sender};

use crate::fault_proxy::{Detour, Gate as Held};
use crate::prelude::*;
use crate::reacting::{Gate, LEASE, at_once, until};

const MAILS: Outbox = Outbox::new("mails");

/// The delivered messages: the key and the number of each.
#[derive(Clone, Default)]
struct Delivered(Arc<Mutex<Vec<(String, i64)>>>);

impl Delivered {
    fn add(&self, message: &Delivery) {
        self.0.lock().unwrap().push((message.key(), message.payload().parse().unwrap()));
    }

    fn numbers(&self) -> Vec<i64> {
        self.0.lock().unwrap().iter().map(|(_, n)| *n).collect()
    }
}

fn message(destination: &str, id: &str, n: i64) -> Message {
    Message::new(destination, &n).unwrap().id(id)
}

fn put(message: &Message) -> Batch {
    MAILS.put(Batch::new(), message).unwrap()
}

fn sender(conn: &Conn, outbox: Outbox, deliver: impl tidelock_core::outbox::Deliver) -> Sender {
    Sender::new(Arc::clone(&conn.0), outbox, deliver)
        .lease_ttl(LEASE)
        .poll_interval(Duration::from_millis(5))
        .retry(at_once(2))
}

/// A message under the id of a blocked one replaces it, and is sent with a fresh budget.
pub async fn i7_a_message_under_a_blocked_id_is_sent(env: &Env) {
    let (delivered, told) = (Delivered::default(), Delivered::default());
    let (done, tried) = (delivered.clone(), told.clone());
    let deliver = move |message: Delivery| {
        let bad = message.payload().parse::<i64>().unwrap() < 0;
        tried.add(&message);
        if !bad {
            done.add(&message);
        }
        async move { if bad { Err(Failure::new("a number below zero")) } else { Ok(()) } }
    };
    let sending = sender(&env.store, MAILS, deliver).start().await.unwrap();
    env.store.done(put(&message("a", "m", -1))).await;
    until("it is blocked", async || MAILS.count_blocked(&env.other.0).await.unwrap() == 1).await;
    env.other.done(put(&message("a", "m", 7))).await;
    until("the other is sent", async || delivered.numbers() == [7]).await;
    until("nothing is left", async || env.store.count(&WorkFilter::default()).await == 0).await;
    assert_eq!(told.numbers(), [-1, -1, 7]);
    sending.shutdown().await;
}

/// A message put while the previous one is in flight is sent, even if that one fails permanently.
pub async fn i7_a_message_put_beside_one_in_flight_is_sent(env: &Env) {
    let (delivered, gate) = (Delivered::default(), Gate::closed());
    let (done, held) = (delivered.clone(), gate.clone());
    let deliver = move |message: Delivery| {
        let (n, gate): (i64, _) = (message.payload().parse().unwrap(), held.clone());
        if n > 0 {
            done.add(&message);
        }
        async move {
            if n > 0 {
                return Ok(());
            }
            gate.pass().await;
            Err(Failure::permanent("a number below zero"))
        }
    };
    let sending = sender(&env.store, MAILS, deliver).start().await.unwrap();
    env.store.done(put(&message("a", "m", -1))).await;
    gate.reached_by(1).await;
    env.other.done(put(&message("a", "m", 7))).await;
    gate.let_through(1);
    until("the other is sent", async || delivered.numbers() == [7]).await;
    until("nothing is left", async || env.store.count(&WorkFilter::default()).await == 0).await;
    sending.shutdown().await;
}

/// Discarding a message that was looked up removes only that one, not the one that was put under its id since then.
pub async fn i8_a_message_that_was_replaced_is_not_discarded(env: &Env) {
    env.store.done(put(&message("a", "m", 1))).await;
    let found = MAILS.find(&env.store.0, "m").await.unwrap();
    env.other.done(put(&message("a", "m", 2))).await;
    let late = MAILS.discard_found(&env.store.0, &found).await;
    assert!(matches!(late, Err(OutboxError::Unknown { .. })), "{late:?}");
    let rows = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows;
    assert_eq!(rows.iter().map(|view| view.payload.as_str()).collect::<Vec<_>>(), ["2"]);
    let found = MAILS.find(&env.store.0, "m").await.unwrap();
    MAILS.discard_found(&env.other.0, &found).await.unwrap();
    assert_eq!(env.store.count(&WorkFilter::default()).await, 0);
}

/// A message whose delivery starts during a discard is not discarded, whether it is ordered or not.
pub async fn i8_a_message_in_flight_is_not_discarded(env: &Env) {
    for in_order in [false, true] {
        let (message, name) = (message("a", "m", 1), if in_order { "a" } else { "m" });
        env.store.done(put(&if in_order { message.in_order() } else { message })).await;
        let held = Arc::new(Held::default());
        let slow = Detour::over(Arc::clone(&held), &env.store.0);
        held.close();
        let discarding = tokio::spawn(async move { MAILS.discard(&slow, name).await });
        held.arrived().await;
        let gate = Gate::closed();
        let passed = gate.clone();
        let deliver = move |_: Delivery| {
            let gate = passed.clone();
            async move {
                gate.pass().await;
                Ok(())
            }
        };
        let sending = sender(&env.other, MAILS, deliver).start().await.unwrap();
        gate.reached_by(1).await;
        held.open();
        let late = discarding.await.unwrap();
        assert!(matches!(late, Err(OutboxError::UnderWay { .. })), "{late:?}");
        gate.let_through(1);
        until("it is sent", async || env.store.count(&WorkFilter::default()).await == 0).await;
        assert_eq!(sending.shutdown().await.delivered, 1);
    }
}

/// Two outboxes never share a key, whatever their names and the ids of their messages are.
pub async fn i6_two_outboxes_never_share_a_key(env: &Env) {
    const NAMES: [(Outbox, &str); 4] = [
        (Outbox::new("shop"), "eu:7"),
        (Outbox::new("shop:eu"), "7"),
        (Outbox::new("shop%3Aeu"), "7"),
        (Outbox::new("shop%"), "3Aeu:7"),
    ];
    let delivered = Delivered::default();
    for (outbox, id) in NAMES {
        let done = delivered.clone();
        let deliver = move |message: Delivery| {
            done.add(&message);
            async { Ok(()) }
        };
        env.store.done(outbox.put(Batch::new(), &message("a", id, 1)).unwrap()).await;
        let sending = sender(&env.store, outbox, deliver).start().await.unwrap();
        until("it is sent", async || env.store.count(&WorkFilter::default()).await == 0).await;
        sending.shutdown().await;
    }
    let keys: BTreeSet<String> = delivered.0.lock().unwrap().iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(keys.len(), NAMES.len(), "{keys:?}");
    assert!(keys.contains("shop:eu:7"), "a name without colons is not escaped: {keys:?}");
}

/// A slow destination does not delay the others: it takes some of the slots of a sender, and never all of them.
pub async fn i7_a_slow_destination_delays_no_other(env: &Env) {
    let (gate, fast) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let (held, done, most) = (gate.clone(), Arc::clone(&fast), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    let deliver = move |message: Delivery| {
        let (gate, done, running, peak) =
            (held.clone(), Arc::clone(&done), Arc::clone(&running), Arc::clone(&peak));
        async move {
            if message.destination() == "slow" {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.pass().await;
                running.fetch_sub(1, Ordering::SeqCst);
            } else {
                done.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    };
    let put_all = |destination: &'static str, ids: std::ops::Range<i64>| {
        ids.fold(Batch::new(), |batch, n| {
            MAILS.put(batch, &message(destination, &format!("{destination}-{n}"), n)).unwrap()
        })
    };
    env.store.done(put_all("slow", 0..40)).await;
    env.store.done(put_all("fast", 0..200)).await;
    let sending = sender(&env.store, MAILS, deliver).concurrency(8).start().await.unwrap();
    until("all fast ones are sent", async || fast.load(Ordering::SeqCst) == 200).await;
    assert!((1..8).contains(&most.load(Ordering::SeqCst)), "{} at once", most.load(Ordering::SeqCst));
    gate.let_through(1_000);
    until("nothing is left", async || {
        env.pass(secs(1));
        env.store.count(&WorkFilter::default()).await == 0
    })
    .await;
    assert_eq!(sending.shutdown().await.failed, 0);
}

/// A row that replaces another starts afresh: the holder is fenced, and a guard on the old row is rejected. A guard on
/// a leased row is rejected until the lease expires.
pub async fn r6_a_guard_on_work_means_the_row_that_was_seen(env: &Env) {
    let k = key("guarded");
    let work = |n| NewWork::once(k.clone(), jobs()).payload(number(n));
    env.store.done(enqueue(work(1))).await;
    let first = env.store.row(&k).await;
    let guard = |row: &WorkRow| Batch::new().guard_work(&k, row.seq);
    env.other.done(guard(&first)).await;
    let held = env.store.take_job("one").await;
    let refusal =
        env.other.refused(guard(&first).operate(Selection::Keys(vec![k.clone()]), Operation::Remove)).await;
    assert!(
        matches!(&refusal, Refusal::Fenced { holder, .. } if matches!(**holder, Holder::Held(_))),
        "{refusal:?}"
    );
    env.other.done(enqueue(work(2).replacing())).await;
    let second = env.store.row(&k).await;
    assert!(second.seq > first.seq && second.lease.is_none() && second.attempts == 0, "{second:?}");
    assert_eq!(second.payload, number(2));
    let refusal = env.store.refused(Batch::new().ack(&held.lease())).await;
    assert!(matches!(refusal, Refusal::Fenced { .. }), "{refusal:?}");
    let refusal = env.other.refused(guard(&first)).await;
    assert!(
        matches!(&refusal, Refusal::Fenced { holder, .. } if matches!(**holder, Holder::Gone)),
        "{refusal:?}"
    );
    let held = env.store.take_job("two").await;
    assert_eq!(held.row.payload, number(2));
    env.store.done(Batch::new().block(&held.lease(), "a case")).await;
    env.other.done(guard(&second)).await;
    env.other.done(enqueue(work(3).replacing())).await;
    let third = env.store.take_job("three").await;
    assert_eq!((third.row.payload.clone(), third.row.attempts), (number(3), 1));
    env.store.done(Batch::new().ack(&third.lease())).await;
    assert_eq!(env.other.find_row(&k).await, None);
}

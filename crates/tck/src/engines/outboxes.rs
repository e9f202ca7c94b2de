//! Transactional outboxes (I6–I8). A message is sent if and only if its batch was applied, at least once, under one
//! key. Ordered messages arrive in order. A message that exhausts its attempts is blocked, not lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::outbox::{
    Delivery, Message, MessageState, Outbox, OutboxEngine, OutboxError, Sender, SenderStats,
};
use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{Ctx, Failure, Workflow};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::prelude::*;
use crate::reacting::{Gate, LEASE, at_once, until};
use crate::running::{client, worker};

const MAILS: Outbox = Outbox::new("mails");

/// The external receiver: the messages it received, in order.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Vec<(String, String, i64)>>>);

impl World {
    fn got(&self, message: &Delivery) {
        let said = (message.key(), message.destination().to_owned(), message.payload().parse().unwrap());
        self.0.lock().unwrap().push(said);
    }

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(key, ..)| key.clone()).collect()
    }

    /// Returns the numbers that each destination received.
    fn numbers(&self) -> BTreeMap<String, Vec<i64>> {
        let mut all: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (_, destination, n) in self.0.lock().unwrap().iter() {
            all.entry(destination.clone()).or_default().push(*n);
        }
        all
    }
}

fn message(destination: &str, n: i64) -> Message {
    Message::new(destination, &n).unwrap().id(format!("{destination}-{n}"))
}

fn put(message: &Message) -> Batch {
    MAILS.put(Batch::new(), message).unwrap()
}

/// Returns a sender as the cases run it. It polls often, because the clock of the store gives no hints.
fn sender(store: &Arc<dyn Store>, deliver: impl tidelock_core::outbox::Deliver) -> Sender {
    Sender::new(Arc::clone(store), MAILS, deliver)
        .lease_ttl(LEASE)
        .poll_interval(Duration::from_millis(5))
        .retry(at_once(3))
}

/// Starts a sender that delivers to the receiver.
async fn telling(store: &Arc<dyn Store>, world: &World) -> WorkerHandle<OutboxEngine> {
    let world = world.clone();
    let deliver = move |message: Delivery| {
        world.got(&message);
        async { Ok(()) }
    };
    sender(store, deliver).start().await.unwrap()
}

/// Returns whether no message is waiting, in flight or blocked, and no row is left.
async fn is_empty(conn: &Conn) -> bool {
    conn.count(&WorkFilter::default()).await == 0
}

/// A message is sent if its batch was applied, together with the other effects of that batch, and not if it was
/// rejected. Senders share the work.
pub async fn i6_a_message_is_sent_with_its_batch(env: &Env) {
    let world = World::default();
    let both = [telling(&env.store.0, &world).await, telling(&env.other.0, &world).await];
    for n in 0..50 {
        let batch = Batch::new().merge_or_create(&key("i6"), number(0), [Delta::inc("/n", 1)]);
        env.store.done(MAILS.put(batch, &message("a", n)).unwrap()).await;
        let refused = put(&message("b", n)).guard_document(&key("never"), Expect::Exists);
        env.other.refused(refused).await;
    }
    until("all are sent", async || is_empty(&env.store).await).await;
    let mut keys = world.keys();
    keys.sort();
    let mut meant: Vec<String> = (0..50).map(|n| format!("mails:a-{n}")).collect();
    meant.sort();
    assert_eq!(keys, meant, "each message once, because no sender died");
    let mut delivered = 0;
    for sending in both {
        delivered += sending.shutdown().await.delivered;
    }
    assert_eq!(delivered, 50);
}

const ORDER: Workflow<i64, i64> = Workflow::new("order");

async fn order(cx: &Ctx, n: i64) -> Result<i64, Failure> {
    let mail = async move |_| Ok((MAILS.put(Batch::new(), &message("ada", n).id("order"))?, n));
    Ok(cx.step_in("mail", mail).await?)
}

/// A step of a workflow adds a message to the commit of its end. The run ends once, and the message is sent once.
pub async fn i6_a_step_puts_a_message(env: &Env) {
    let world = World::default();
    let driving = worker(&env.store).register(ORDER, order).start().await.unwrap();
    let run = client(&env.other).start(ORDER, &17).id("i6").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 17);
    driving.shutdown().await;
    assert!(world.keys().is_empty(), "no sender runs yet");
    let sending = telling(&env.other.0, &world).await;
    until("it is sent", async || is_empty(&env.store).await).await;
    assert_eq!((world.keys(), world.numbers()["ada"].clone()), (vec!["mails:order".to_owned()], vec![17]));
    sending.shutdown().await;
}

/// A message without an order, and two that are in order.
struct OutboxMessages;

#[async_trait(?Send)]
impl Scenario for OutboxMessages {
    async fn prepare(&self, env: &Env) {
        let ordered = |n| message("place", n).in_order();
        env.store.done(put(&message("alone", 0)).and(put(&ordered(0)))).await;
        env.store.done(put(&ordered(1))).await;
    }

    async fn live(&self, process: &Process) {
        let (env, outside) = (&process.env, process.outside.clone());
        let deliver = move |message: Delivery| {
            outside.make(message.key());
            async { Ok(()) }
        };
        let sending = sender(&process.store, deliver).start().await.unwrap();
        until("all are sent", async || is_empty(&env.other).await).await;
        sending.shutdown().await;
    }

    async fn end(&self, env: &Env, outside: &Outside) -> Value {
        let mut ordered = outside.made();
        ordered.retain(|key| key.contains("place"));
        assert!(ordered.is_sorted(), "{ordered:?}");
        json!({ "sent": outside.kinds(), "empty": is_empty(&env.store).await })
    }
}

/// The process crashes at every point of a sender. Each message is sent at least once, always under the same key, and in order.
pub async fn i6_every_crash_point_of_a_sender(env: &Env) {
    every_crash_point("a sender", env, OutboxMessages).await;
}

/// A message that exhausts its attempts is blocked and visible. After an unblock it is sent under the same key; after a
/// discard it is gone.
pub async fn i7_a_message_is_blocked_after_its_budget(env: &Env) {
    let (world, open) = (World::default(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let (told, opened) = (world.clone(), Arc::clone(&open));
    let deliver = move |message: Delivery| {
        told.got(&message);
        let answer = match message.destination() {
            _ if opened.load(std::sync::atomic::Ordering::SeqCst) => Ok(()),
            "never" => Err(Failure::permanent("the address is unknown")),
            "panic" => panic!("of all things"),
            _ => Err(Failure::new("the line is busy")),
        };
        async { answer }
    };
    for destination in ["busy", "never", "panic"] {
        env.store.done(put(&message(destination, 1))).await;
    }
    let sending = sender(&env.store.0, deliver).start().await.unwrap();
    until("all are blocked", async || MAILS.count_blocked(&env.other.0).await.unwrap() == 3).await;
    let attempts: Vec<usize> = ["busy", "never", "panic"].map(|to| world.numbers()[to].len()).into();
    assert_eq!(attempts, [3, 1, 3]);
    let seen = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows;
    let reasons: Vec<_> =
        seen.into_iter().map(|view| (view.destination, view.state, view.attempts)).collect();
    let blocked = |to: &str, reason: &str, attempts: u32| {
        (to.to_owned(), MessageState::Blocked { reason: reason.to_owned(), since: env.now() }, attempts)
    };
    let meant = [
        blocked("busy", "the line is busy", 3),
        blocked("never", "the address is unknown", 1),
        blocked("panic", "it panicked: of all things", 3),
    ];
    assert_eq!(reasons, meant);
    // An attempt is counted when its commit is acknowledged, and others see the commit before that.
    let counted = SenderStats { delivered: 0, failed: 7, blocked: 3 };
    until("all are counted", async || sending.stats() == counted).await;
    MAILS.discard(&env.other.0, "never-1").await.unwrap();
    open.store(true, std::sync::atomic::Ordering::SeqCst);
    MAILS.unblock(&env.other.0, "busy-1").await.unwrap();
    until("one is sent", async || MAILS.count_blocked(&env.other.0).await.unwrap() == 1).await;
    assert_eq!(MAILS.unblock_all(&env.other.0).await.unwrap(), 1);
    until("the other is sent", async || is_empty(&env.store).await).await;
    assert_eq!(world.keys().into_iter().collect::<BTreeSet<_>>().len(), 3, "each with one key");
    assert!(matches!(MAILS.unblock(&env.store.0, "busy-1").await, Err(OutboxError::Unknown { .. })));
    sending.shutdown().await;
}

/// A failed message waits for the delay that the receiver requested, by the clock of the store. A delivery that takes
/// too long fails.
pub async fn i7_a_message_is_not_sent_before_its_time(env: &Env) {
    let world = World::default();
    let told = world.clone();
    let deliver = move |message: Delivery| {
        told.got(&message);
        async move {
            match (message.destination(), message.attempt()) {
                ("slow", 1) => std::future::pending().await,
                ("busy", 1) => Err(Failure::retry_after(secs(600), "come back later")),
                _ => Ok(()),
            }
        }
    };
    let sender = sender(&env.store.0, deliver).timeout(Duration::from_millis(20));
    let sending = sender.start().await.unwrap();
    env.store.done(put(&message("busy", 1)).and(put(&message("slow", 1)))).await;
    until("one message is deferred, the other is sent", async || {
        let seen = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows;
        seen.len() == 1 && seen[0].state == MessageState::Due(env.now().after(secs(600)))
    })
    .await;
    assert_eq!(world.numbers()["slow"].len(), 2);
    env.pass(secs(600) - TICK);
    env.store.done(put(&message("marker", 1))).await;
    until("it is looked again", async || world.numbers().contains_key("marker")).await;
    assert_eq!(world.numbers()["busy"].len(), 1, "it is not its time");
    env.pass(TICK);
    until("it is sent", async || is_empty(&env.other).await).await;
    assert_eq!(sending.shutdown().await, SenderStats { delivered: 3, failed: 2, blocked: 0 });
}

/// Ordered messages arrive in order, even with several senders. Messages to other destinations do not wait for them.
/// Sent messages leave the log.
pub async fn i8_messages_arrive_in_order(env: &Env) {
    let world = World::default();
    let both = [telling(&env.store.0, &world).await, telling(&env.other.0, &world).await];
    for n in 0..30 {
        for destination in ["a", "b", "c"] {
            let conn = if n % 2 == 0 { &env.store } else { &env.other };
            conn.done(put(&message(destination, n).in_order())).await;
        }
    }
    until("all are sent", async || is_empty(&env.store).await).await;
    for (destination, numbers) in world.numbers() {
        assert_eq!(numbers, (0..30).collect::<Vec<_>>(), "{destination}");
    }
    for sending in both {
        sending.shutdown().await;
    }
    assert!(env.store.log().await.is_empty(), "what was sent leaves the log");
}

/// An ordered message that cannot be delivered delays only those behind it. After a discard they continue.
pub async fn i8_a_blocked_message_holds_up_those_behind_it(env: &Env) {
    let (world, gate) = (World::default(), Gate::closed());
    let (told, held) = (world.clone(), gate.clone());
    let deliver = move |message: Delivery| {
        told.got(&message);
        let (n, gate): (i64, _) = (message.payload().parse().unwrap(), held.clone());
        async move {
            match (message.destination(), n) {
                ("bad", 1) => Err(Failure::permanent("no")),
                ("held", 0) => {
                    gate.pass().await;
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    };
    for n in 0..4 {
        let good = put(&message("good", n).in_order());
        env.store.done(good.and(put(&message("bad", n).in_order()))).await;
    }
    env.store.done(put(&message("held", 0).in_order())).await;
    let sending = sender(&env.store.0, deliver).start().await.unwrap();
    gate.reached_by(1).await;
    let busy = MAILS.discard(&env.other.0, "held").await;
    assert!(matches!(busy, Err(OutboxError::UnderWay { .. })), "{busy:?}");
    gate.let_through(1);
    until("one is left, and is blocked", async || {
        MAILS.count_blocked(&env.other.0).await.unwrap() == 1
            && MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows.len() == 1
    })
    .await;
    let stuck = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows.remove(0);
    assert_eq!((stuck.id.as_str(), stuck.in_order_of.as_deref()), ("bad-1", Some("bad")));
    assert!(matches!(stuck.state, MessageState::Blocked { .. }), "{stuck:?}");
    assert_eq!(world.numbers()["good"], [0, 1, 2, 3]);
    assert_eq!(world.numbers()["bad"], [0, 1]);
    MAILS.discard(&env.other.0, "bad").await.unwrap();
    until("the rest is sent", async || is_empty(&env.other).await).await;
    assert_eq!(world.numbers()["bad"], [0, 1, 2, 3]);
    sending.shutdown().await;
}

/// Discarding a message that was looked up removes only that one: neither its successor nor one behind it.
pub async fn i8_only_the_found_message_is_discarded(env: &Env) {
    for n in 0..3 {
        env.store.done(put(&message("line", n).in_order())).await;
    }
    let waiting = async || {
        let rows = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows;
        rows.first().map(|view| view.id.clone())
    };
    let first = MAILS.find(&env.store.0, "line").await.unwrap();
    assert_eq!(first.view.id, "line-0");
    // Another caller was faster.
    MAILS.discard(&env.other.0, "line").await.unwrap();
    let late = MAILS.discard_found(&env.store.0, &first).await;
    assert!(matches!(late, Err(OutboxError::Unknown { ref message, .. }) if message == "line-0"), "{late:?}");
    assert_eq!(waiting().await.as_deref(), Some("line-1"));
    let second = MAILS.find(&env.store.0, "line").await.unwrap();
    MAILS.discard_found(&env.store.0, &second).await.unwrap();
    assert_eq!(waiting().await.as_deref(), Some("line-2"));
    // An id takes precedence.
    env.store.done(put(&message("other", 0).id("line"))).await;
    assert_eq!(MAILS.find(&env.store.0, "line").await.unwrap().view.in_order_of, None);
    let unknown = MAILS.find(&env.store.0, "missing").await;
    assert!(matches!(unknown, Err(OutboxError::Unknown { .. })), "{unknown:?}");
}

/// An undecodable message is visible, so that an operator can discard it.
pub async fn i7_a_message_that_does_not_read_is_seen(env: &Env) {
    let row = Key::new("tidelock.outbox", ["mails", "odd"]).unwrap();
    let seven = tidelock_core::payload::Payload::of(&7).unwrap();
    let row = NewWork::once(row, "outbox.mails".parse().unwrap()).payload(seven);
    env.store.done(Batch::new().enqueue(row)).await;
    let seen = MAILS.list(&env.other.0, Page::first(10)).await.unwrap().rows.remove(0);
    assert_eq!((seen.id.as_str(), seen.destination.as_str(), seen.payload.as_str()), ("odd", "", "7"));
    MAILS.discard(&env.store.0, "odd").await.unwrap();
    assert!(is_empty(&env.other).await);
}

//! Queue limits (W11 and W12): concurrency and rate over all processes, and fairness.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{Ctx, Queue, QueueLimits, Workflow, WorkflowEngine, WorkflowError};

use crate::fault_proxy::{Detour, Readings};
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const MAIL: &str = "mail";

/// Counts concurrent entries.
#[derive(Clone, Default)]
struct Room {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    entered: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
}

impl Room {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }
}

/// Starts a worker of a queue, with code whose only step waits at a gate.
async fn driving(
    conn: &Conn,
    queue: impl Into<Queue>,
    room: &Room,
    gate: &Gate,
) -> WorkerHandle<WorkflowEngine> {
    let (room, gate) = (room.clone(), gate.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let step = cx.step("wait", async |_| {
            room.enter();
            gate.pass().await;
            room.leave();
            Ok(n)
        });
        Ok(step.await?)
    };
    worker(conn).queues([queue]).register(JOB, code).start().await.unwrap()
}

async fn start(conn: &Conn, runs: std::ops::Range<u32>) {
    for n in runs {
        client(conn).start(JOB, &n).id(format!("r{n}")).queue(MAIL).await.unwrap();
    }
}

async fn ended(env: &Env, runs: u32) {
    for n in 0..runs {
        assert_eq!(client(&env.store).handle(JOB, &format!("r{n}")).result().await.unwrap(), n);
    }
}

/// Two workers, each with capacity for all runs, drive at most two runs at once. In the end all runs are done.
pub async fn w11_a_queue_is_limited_over_all_processes(env: &Env) {
    let (room, gate) = (Room::default(), Gate::closed());
    let one = driving(&env.store, Queue::new("mail").concurrency(2), &room, &gate).await;
    let two = driving(&env.other, Queue::new("mail"), &room, &gate).await;
    start(&env.other, 0..12).await;
    until("two are driven", async || room.now() == 2).await;
    for done in 1..=12_usize {
        gate.open(1);
        until("the next one is driven", async || room.entered() >= (done + 2).min(12)).await;
    }
    ended(env, 12).await;
    assert_eq!((room.most.load(Ordering::SeqCst), room.entered()), (2, 12));
    assert_eq!(one.shutdown().await.ended + two.shutdown().await.ended, 12);
}

/// The slots of a dead process become free when its lease expires, and an unused slot is released at once.
pub async fn w11_the_seats_of_a_dead_worker_are_taken_over(env: &Env) {
    let (room, shut, open) = (Room::default(), Gate::closed(), Gate::closed());
    open.open(100);
    let dies = driving(&env.store, Queue::new("mail").concurrency(1), &room, &shut).await;
    start(&env.store, 0..2).await;
    until("one is driven", async || room.now() == 1).await;
    dies.abort().await;
    let lives = driving(&env.other, Queue::new("mail"), &room, &open).await;
    assert_eq!(lives.stats().activations, 0);
    env.pass(LEASE);
    ended(env, 2).await;
    let elsewhere = driving(&env.store, Queue::new("mail"), &room, &open).await;
    start(&env.store, 2..4).await;
    ended(env, 4).await;
    lives.shutdown().await;
    start(&env.store, 4..6).await;
    ended(env, 6).await;
    elsewhere.shutdown().await;
}

/// Limits can be changed while workers run: more slots, fewer, none at all.
pub async fn w11_the_limits_of_a_queue_are_changed_under_way(env: &Env) {
    let (room, gate) = (Room::default(), Gate::closed());
    let here = client(&env.other);
    let limit = async |most| {
        let limits = QueueLimits { concurrency: most, ..QueueLimits::default() };
        here.limit_queue(MAIL, limits).await.unwrap();
    };
    limit(Some(1)).await;
    let readings = Arc::new(Readings::default());
    let store = Conn(Detour::over(Arc::clone(&readings), &env.store.0));
    let driven = driving(&store, MAIL, &room, &gate).await;
    start(&env.store, 0..20).await;
    until("one is driven", async || room.now() == 1).await;
    limit(Some(4)).await;
    until("four are driven", async || room.now() == 4).await;
    limit(Some(2)).await;
    assert_eq!(here.queue_limits(MAIL).await.unwrap().concurrency, Some(2));
    // A claim in flight may not know the new limit yet; the next one does. A claim reads the limit at most twice.
    let before = readings.so_far();
    until("the limit is known", async || readings.so_far() > before + 2).await;
    // The runs in flight end; after that the limit of two holds.
    for left in 1..=6 {
        gate.open(1);
        until("one leaves", async || room.left() == left).await;
    }
    until("two are driven", async || room.now() == 2).await;
    room.most.store(0, Ordering::SeqCst);
    for left in 7..=9 {
        gate.open(1);
        until("another one is driven", async || room.left() == left && room.now() == 2).await;
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 2);
    limit(Some(3)).await;
    until("three are driven", async || room.now() == 3).await;
    limit(None).await;
    until("all are driven", async || room.entered() == 20).await;
    gate.open(20);
    ended(env, 20).await;
    driven.shutdown().await;
}

/// Invalid limits are rejected, and nothing changes.
pub async fn w9_limits_that_make_no_sense_are_refused(env: &Env) {
    let here = client(&env.store);
    let sound = QueueLimits { concurrency: Some(3), ..QueueLimits::default() };
    here.limit_queue(MAIL, sound).await.unwrap();
    for concurrency in [0, 1_001] {
        let limits = QueueLimits { concurrency: Some(concurrency), ..QueueLimits::default() };
        let refused = here.limit_queue(MAIL, limits).await.unwrap_err();
        assert!(matches!(refused, WorkflowError::Invalid(_)), "{refused}");
        assert!(refused.to_string().contains("mail"), "{refused}");
    }
    let queue = Queue::new("mail").rate(0, secs(1));
    let refused = worker(&env.store).queues([queue]).start().await.unwrap_err();
    assert!(matches!(refused, WorkflowError::Invalid(_)), "{refused}");
    assert_eq!(here.queues().await.unwrap(), [(MAIL.to_owned(), sound)]);
}

/// A queue with undecodable limits stops until they are repaired, and other queues continue.
pub async fn w12_a_queue_whose_limits_do_not_read_holds_up_no_other(env: &Env) {
    let limits = Key::new("tidelock.queue", [MAIL]).unwrap();
    env.store
        .done(Batch::new().put(&limits, Expect::Absent, payload(json!({ "concurrency": "many" }))))
        .await;
    start(&env.store, 0..1).await;
    let both = [Queue::new("mail"), Queue::new("default")];
    let code = async |_: &Ctx, n: u32| Ok(n);
    let driven = worker(&env.store).queues(both).register(JOB, code).start().await.unwrap();
    let other = client(&env.other).start(JOB, &7).id("other").await.unwrap();
    assert_eq!(other.result().await.unwrap(), 7);
    assert_eq!(driven.stats().activations, 1, "that of the other queue");
    env.store.done(Batch::new().put(&limits, Expect::Any, payload(json!({ "concurrency": null })))).await;
    let mended = QueueLimits { concurrency: Some(2), ..QueueLimits::default() };
    client(&env.other).limit_queue(MAIL, mended).await.unwrap();
    ended(env, 1).await;
    driven.shutdown().await;
}

/// Runs of a queue start at the configured rate, however many workers there are. A run that resumes after a wait does
/// not count.
pub async fn w11_runs_of_a_queue_begin_at_a_rate(env: &Env) {
    let begun = Tally::default();
    let counted = begun.clone();
    let code = async move |cx: &Ctx, n: u32| {
        cx.step("begin", async |_| {
            counted.add("begun");
            Ok(())
        })
        .await?;
        cx.sleep(secs(10)).await?;
        cx.step("go on", async |_| {
            counted.add("continued");
            Ok(())
        })
        .await?;
        Ok(n)
    };
    let queue = Queue::new("mail").rate(1, secs(60)).concurrency(5);
    let one = worker(&env.store).queues([queue]).register(JOB, code.clone()).start().await.unwrap();
    let two = worker(&env.other).queues([MAIL]).register(JOB, code).start().await.unwrap();
    start(&env.store, 0..3).await;
    until("the first one begins", async || begun.of("begun") == 1).await;
    until("it rests", async || one.stats().active + two.stats().active == 0).await;
    env.pass(secs(59));
    until("the run continues", async || begun.of("continued") == 1).await;
    assert_eq!(begun.of("begun"), 1);
    env.pass(secs(1));
    until("the second one begins", async || begun.of("begun") == 2).await;
    until("it rests", async || one.stats().active + two.stats().active == 0).await;
    env.pass(secs(60));
    until("the third one begins", async || begun.of("begun") == 3).await;
    until("it rests", async || one.stats().active + two.stats().active == 0).await;
    env.pass(secs(10));
    ended(env, 3).await;
    one.shutdown().await;
    two.shutdown().await;
}

/// A tenant with many runs does not delay one with few.
pub async fn w12_every_tenant_gets_its_share(env: &Env) {
    let gate = Gate::closed();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (noted, waits) = (Arc::clone(&order), gate.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let step = cx.step("note", async |_| {
            waits.pass().await;
            noted.lock().unwrap().push(n);
            Ok(n)
        });
        Ok(step.await?)
    };
    let driving = worker(&env.store).queues([MAIL]).concurrency(1).register(JOB, code).start().await.unwrap();
    let here = client(&env.other);
    let mut last = None;
    for n in 0..63 {
        let whose = if n < 60 { "the one with many" } else { "the one with few" };
        let run = here.start(JOB, &n).id(format!("r{n}")).queue(MAIL).fairness_key(whose);
        last = Some(if n % 2 == 0 {
            run.await.unwrap()
        } else {
            let (id, batch) = run.batch().unwrap();
            env.other.done(batch).await;
            here.handle(JOB, &id)
        });
    }
    assert!(here.queue_limits(MAIL).await.unwrap().fair);
    gate.open(63);
    assert_eq!(last.unwrap().result().await.unwrap(), 62);
    ended(env, 63).await;
    let order = order.lock().unwrap().clone();
    let few = order.iter().rposition(|n| *n >= 60).unwrap();
    assert!(few < 45, "the last of the few was number {few} of {order:?}");
    assert_eq!(order.len(), 63);
    driving.shutdown().await;
}

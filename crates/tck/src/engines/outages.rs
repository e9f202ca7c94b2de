//! Workers during store outages: failing reads, missing hints, and requests without an answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use tidelock_core::store::layer::StoreLayer;
use tidelock_core::workflow::{ArchivedRun, Ctx, Retention, RunStatus, Workflow};

use crate::partition::Wire;
use crate::prelude::*;
use crate::reacting::{LEASE, until};
use crate::running::*;

const JOB: Workflow<u32, u32> = Workflow::new("job");
const KID: Workflow<u32, u32> = Workflow::new("kid");

/// A store with injected faults.
#[derive(Default)]
struct Trouble {
    store: Option<SharedStore>,
    /// Reads of the journal and the clock fail.
    unreadable: AtomicBool,
    /// No request is answered.
    silent: AtomicBool,
    /// A watcher whose hints never arrive.
    hints: Option<Watcher>,
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trouble").finish_non_exhaustive()
    }
}

impl Trouble {
    fn with(conn: &Conn) -> Self {
        Self { store: Some(Arc::clone(&conn.0)), ..Self::default() }
    }

    fn read(&self) -> Result<(), StoreError> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Busy, "cannot read", "the database is locked"));
        }
        Ok(())
    }

    async fn answers(&self) {
        if self.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl StoreLayer for Trouble {
    fn inner(&self) -> &dyn Store {
        self.store.as_deref().expect("it has a store")
    }

    async fn apply(&self, batch: Batch) -> Result<Receipt, ApplyError> {
        self.answers().await;
        self.inner().apply(batch).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        self.answers().await;
        self.inner().claim(claim).await
    }

    async fn read_stream(&self, query: StreamQuery) -> Result<EventPage, StoreError> {
        self.read()?;
        self.inner().read_stream(query).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read()?;
        self.inner().now().await
    }

    fn watch(&self) -> Watch {
        match &self.hints {
            Some(never) => never.listen(),
            None => self.inner().watch(),
        }
    }
}

fn troubled(store: &Arc<Trouble>) -> tidelock_core::workflow::Worker {
    let store: SharedStore = Arc::<Trouble>::clone(store);
    tidelock_core::workflow::Worker::new(store).poll_interval(Duration::from_millis(5)).lease_ttl(LEASE)
}

/// A step continues while the journal and the clock cannot be read: the lease is held, and the outage passes.
pub async fn w2_a_step_continues_while_the_journal_cannot_be_read(env: &Env) {
    let (tally, gate) = (Tally::default(), Gate::closed());
    let (counted, passed) = (tally.clone(), gate.clone());
    let code = async move |cx: &Ctx, n: u32| {
        let work = cx.step("work", async |step| {
            counted.add(if step.may_have_run() { "again" } else { "first" });
            passed.pass().await;
            Ok(())
        });
        // The timer makes the worker read the clock while the step runs.
        let (work, slept) = tokio::join!(work, cx.sleep(secs(1)));
        work?;
        slept?;
        Ok(n)
    };
    let store = Arc::new(Trouble::with(&env.store));
    let driving = troubled(&store).register(JOB, code).start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("r").await.unwrap();
    until("the step runs", async || tally.of("first") == 1).await;
    store.unreadable.store(true, Ordering::SeqCst);
    // Each write sends the run a hint about possible changes.
    for n in 0..10 {
        env.store.done(Batch::new().put(&key("beside"), Expect::Any, number(n))).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    store.unreadable.store(false, Ordering::SeqCst);
    env.pass(secs(1));
    gate.open(2);
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 1);
    assert_eq!((tally.of("first"), tally.of("again")), (1, 0));
    driving.shutdown().await;
}

/// A cancellation reaches a running step, even if the store sends no hints.
pub async fn w17_a_cancel_reaches_a_step_without_hints(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let code = async move |cx: &Ctx, n: u32| {
        cx.step("long", async |step| {
            counted.add("long");
            step.token().cancelled().await;
            Ok(())
        })
        .await?;
        cx.shielded().step("clean", async |_| Ok(())).await?;
        Ok(n)
    };
    let store = Trouble { hints: Some(Watcher::default()), ..Trouble::with(&env.store) };
    let driving = troubled(&Arc::new(store)).register(JOB, code).start().await.unwrap();
    let run = client(&env.other).start(JOB, &1).id("r").await.unwrap();
    until("the step runs", async || tally.of("long") == 1).await;
    // Past the first read of the journal, which needs no hint.
    tokio::time::sleep(Duration::from_millis(500)).await;
    run.cancel("no more").await.unwrap();
    until("it is over", async || run.status().await.unwrap().is_over()).await;
    assert_eq!(run.result().await.unwrap(), 1);
    driving.shutdown().await;
}

/// A shutdown ends although the store answers nothing, neither a claim nor the commit of a step.
pub async fn w21_a_shutdown_ends_on_a_store_that_answers_nothing(env: &Env) {
    for busy in [false, true] {
        let (tally, gate) = (Tally::default(), Gate::closed());
        let (counted, passed) = (tally.clone(), gate.clone());
        let code = async move |cx: &Ctx, n: u32| {
            cx.step("work", async |_| {
                counted.add("work");
                passed.pass().await;
                Ok(())
            })
            .await?;
            Ok(n)
        };
        let store = Arc::new(Trouble::with(&env.store));
        let driving = troubled(&store).shutdown_timeout(Duration::from_millis(100));
        let driving = driving.register(JOB, code).start().await.unwrap();
        if busy {
            client(&env.other).start(JOB, &1).id("r").await.unwrap();
            until("the step runs", async || tally.of("work") == 1).await;
        }
        store.silent.store(true, Ordering::SeqCst);
        gate.open(1);
        // Long enough for the next claim to be sent.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let ended = tokio::time::timeout(secs(60), driving.shutdown()).await;
        assert!(ended.is_ok(), "the shutdown hangs; busy: {busy}");
    }
}

/// A shutdown ends although the archive of a retention never does.
pub async fn w21_a_shutdown_ends_beside_an_archive_that_hangs(env: &Env) {
    let tally = Tally::default();
    let counted = tally.clone();
    let retention = Retention::of(Duration::ZERO).archive(move |archived: ArchivedRun| {
        counted.add(&archived.view.run);
        std::future::pending()
    });
    let driving = worker(&env.store).retention(retention).shutdown_timeout(Duration::from_millis(100));
    let driving = driving.register(JOB, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    let run = client(&env.other).start(JOB, &1).id("r").await.unwrap();
    run.result().await.unwrap();
    env.pass(secs(1));
    until("the archive has it", async || tally.of("r") == 1).await;
    let begun = Instant::now();
    let ended = tokio::time::timeout(secs(60), driving.shutdown()).await;
    assert!(ended.is_ok(), "the shutdown hangs after {:?}", begun.elapsed());
}

/// A panic of the archive does not keep other runs from being removed.
pub async fn w20_a_panic_of_the_archive_is_a_failure_of_one_run(env: &Env) {
    let retention = Retention::of(secs(100)).archive(|archived: ArchivedRun| async move {
        assert!(archived.view.run != "a", "not this one");
        Ok(())
    });
    let driving = worker(&env.store).retention(retention);
    let driving = driving.register(JOB, async |_: &Ctx, n: u32| Ok(n)).start().await.unwrap();
    let there = client(&env.other);
    for id in ["a", "b"] {
        there.start(JOB, &1).id(id).await.unwrap().result().await.unwrap();
    }
    env.pass(secs(100));
    until("the other is gone", async || there.show("b").await.is_err()).await;
    assert!(there.show("a").await.is_ok());
    driving.shutdown().await;
}

/// A child is cancelled with its parent, even if the first cancellation of the child was lost.
pub async fn w17_a_lost_cancel_of_a_child_is_repeated(env: &Env) {
    let parent = async |cx: &Ctx, n: u32| Ok(cx.child("kid", KID, &n).await?);
    let kid = async |cx: &Ctx, n: u32| {
        cx.sleep(secs(3_600)).await?;
        Ok(n)
    };
    let wire = Wire::to(&env.store.0);
    let store: SharedStore = Arc::<Wire>::clone(&wire);
    let driving = tidelock_core::workflow::Worker::new(store).poll_interval(Duration::from_millis(5));
    let driving = driving.lease_ttl(LEASE).register(JOB, parent).register(KID, kid);
    let driving = driving.start().await.unwrap();
    let there = client(&env.other);
    let run = there.start(JOB, &1).id("p").await.unwrap();
    let rests = async |run: &str| match there.show(run).await {
        Ok(view) => matches!(view.doing, tidelock_core::workflow::RunActivity::Waits { .. }),
        Err(_) => false,
    };
    until("both rest", async || rests("p").await && rests("p/kid").await && driving.stats().active == 0)
        .await;
    wire.drop_the_next();
    run.cancel("no more").await.unwrap();
    let kid = there.handle(KID, "p/kid");
    until("the child is cancelled", async || kid.status().await.unwrap() == RunStatus::Cancelled).await;
    driving.shutdown().await;
}

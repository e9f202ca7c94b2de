//! A worker process of the demo. It executes orders, reacts to stock events and takes stock on a schedule.
//!
//! It may be killed at any point. Other workers claim its work when its leases expire.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::housekeeping::{Housekeeping, HousekeepingHandle};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, ReactionEngine, Reactions};
use tidelock::schedule::{CatchUp, Overlap, Schedule, ScheduleEngine, Scheduler};
use tidelock::store::Event;
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{Ctx, Worker, WorkflowEngine};

use super::order_workflow::{self, LEASE, OrderWorkflow};
use super::shop::{ORDER, Order, Sales, Shop, Stock, StockEvent};
use crate::address::Address;
use crate::args::DemoWorker;
use crate::exit::Exit;
use crate::output;
use crate::parent_death::ParentPipe;

/// The interval of the stock-taking schedule.
pub(crate) const TAKE_EVERY: Duration = Duration::from_millis(500);
/// The maximum age of a missed fire that is still caught up.
const MAKE_UP: Duration = Duration::from_mins(5);
/// The number of orders one worker drives concurrently.
const AT_ONCE: usize = 16;
/// The interval between two reports to the parent.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// The time during which a worker retries its start.
const PATIENCE: Duration = Duration::from_mins(1);

/// A report of a worker to its parent, as one JSON line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    /// Journal entries that were replayed instead of executed.
    pub(crate) replayed: u64,
    /// Runs lost to other workers. The store rejected all further writes for them.
    pub(crate) fenced: u64,
}

/// Works until the parent exits or closes the pipe.
pub(crate) async fn work(options: DemoWorker) -> Result<Exit> {
    let mut parent = ParentPipe::listen();
    wake_when_orphaned();
    let begun = async {
        let started = Instant::now();
        loop {
            match AtWork::begin(&options).await {
                // A store that does not respond on a busy machine must not fail the worker.
                Err(error) if started.elapsed() < PATIENCE => {
                    tracing::warn!(%error, "a worker could not begin; it tries again");
                    tokio::time::sleep(TELL_EVERY).await;
                }
                begun => return begun,
            }
        }
    };
    let at_work = tokio::select! {
        begun = begun => begun?,
        () = parent.closed() => return Ok(Exit::Well),
    };
    tokio::select! {
        ended = report_progress(&at_work.driving) => ended?,
        () = parent.closed() => {}
    }
    // A fire aborted here would stay in flight if no other worker follows.
    at_work.schedule.shutdown().await;
    Ok(Exit::Well)
}

/// On Linux, asks the kernel to resume this worker when its parent dies. A suspended worker would otherwise never run again and notice that
/// it is orphaned.
fn wake_when_orphaned() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // If this fails, a suspended orphan has to be killed by hand.
        let _ = set_parent_process_death_signal(Some(Signal::CONT));
    }
}

/// The running parts of a worker.
struct AtWork {
    _housekeeping: HousekeepingHandle,
    _reactions: WorkerHandle<ReactionEngine>,
    schedule: WorkerHandle<ScheduleEngine>,
    driving: WorkerHandle<WorkflowEngine>,
}

impl AtWork {
    async fn begin(options: &DemoWorker) -> Result<Self> {
        let store = Address::handed_over(&options.store)?.open_existing().await?.shared();
        let desk = OrderWorkflow {
            events: Events::new(Arc::clone(&store)),
            locks: Locks::new(),
            shop: Shop::new(&options.run),
            name: options.name.clone(),
            store: Arc::clone(&store),
        };
        let owner: Owner = desk.name.parse()?;
        let _housekeeping = Housekeeping::new(Arc::clone(&store)).spawn();
        let _reactions = Reactions::new(Arc::clone(&store))
            .owner(owner.clone())
            .with(fill_shelves(&desk))
            .with(count_sales(&desk))
            .start()
            .await?;
        let schedule = Scheduler::new(Arc::clone(&store))
            .name(desk.shop.scheduler())
            .owner(owner.clone())
            .lease_ttl(LEASE)
            .with(take_stock(&desk.shop)?)
            .start()
            .await?;
        let (queue, at) = (desk.shop.named("orders"), desk);
        let code = async move |cx: &Ctx, order: Order| order_workflow::order(cx, &at, order).await;
        let driving = Worker::new(store)
            .owner(owner)
            .lease_ttl(LEASE)
            .queues([queue.as_str()])
            .concurrency(AT_ONCE)
            .register(ORDER, code)
            .start()
            .await?;
        Ok(Self { _housekeeping, _reactions, schedule, driving })
    }
}

/// Refills a shelf that ran low. The decision and the progress of the reaction are one commit.
fn fill_shelves(desk: &OrderWorkflow) -> Reaction {
    let (events, shop) = (desk.events.clone(), desk.shop.clone());
    let reaction = of_this_shop(Reaction::new(desk.shop.named("fill-shelves")).on(["RanLow"]), shop);
    reaction.each(async move |_, event| {
        let Some(shelf) = shelf(&event.stream) else { return Ok(Batch::new()) };
        let answers = Some(event.version.0);
        let decided = events.decide(shelf, |stock: &Stock| Ok::<_, Infallible>([stock.fill(answers)]));
        Ok(decided.await?)
    })
}

/// Counts sales in a document. Every event is counted exactly once, even when workers die.
fn count_sales(desk: &OrderWorkflow) -> Reaction {
    let shop = desk.shop.clone();
    let counting = shop.clone();
    let reaction = of_this_shop(Reaction::new(shop.named("count-sales")).on(["Reserved"]), shop);
    reaction.each(async move |_, event| counted(&counting, &event))
}

fn counted(shop: &Shop, event: &Event) -> Result<Batch, Failure> {
    let sold = tidelock::events::decode::<StockEvent>(&event.event_type, &event.payload)?;
    let item = shelf(&event.stream);
    let (Some(item), StockEvent::Reserved { count, done }) =
        (item.as_deref().and_then(|name| shop.without_run(name)), sold)
    else {
        return Ok(Batch::new());
    };
    let sold = shop.sell(item, Sales::of(done.order, count));
    sold.map_err(|error| Failure::permanent(format!("{error:#}")))
}

/// Restricts a reaction to the shelves of one demo, with one key per shelf.
fn of_this_shop(reaction: Reaction, shop: Shop) -> Reaction {
    let ours = move |event: &Event| {
        let shelf = shelf(&event.stream)?;
        shop.without_run(&shelf).map(|_| event.stream.clone())
    };
    reaction.streams(KeyPrefix::kind("stock")).to(ours).lease_ttl(LEASE)
}

/// Returns the id of a shelf.
fn shelf(stream: &Key) -> Option<String> {
    match stream.args().into_iter().next() {
        Some(Arg::Str(id)) => Some(id),
        _ => None,
    }
}

/// Records the stock-taking in the same commit that completes the fire.
fn take_stock(shop: &Shop) -> Result<Schedule> {
    let key = shop.takes()?;
    let task = Schedule::new(shop.named("take-stock")).every(TAKE_EVERY);
    // No fire gives up in a demo, regardless of how many times its process loses the lease.
    let task =
        task.catch_up(CatchUp::All(MAKE_UP)).overlap(Overlap::QueueAll).retry_policy(order_workflow::PATIENT);
    Ok(task.run(async move |tick| {
        let none = Payload::from_json(r#"{"fires": []}"#)?;
        let at = tick.time().as_micros();
        Ok(Batch::new().merge_or_create(&key, none, [Delta::push("/fires", at)]))
    }))
}

/// Reports the progress to the parent until a write fails.
async fn report_progress(driving: &WorkerHandle<WorkflowEngine>) -> Result<()> {
    loop {
        let stats = driving.stats();
        output::json_line(&WorkerReport { replayed: stats.replayed, fenced: stats.lost })?;
        tokio::time::sleep(TELL_EVERY).await;
    }
}

//! One worker process: drives orders, reacts to what happens on the shelves, and takes stock when it is time.
//!
//! It is killed in the middle of anything. What it had in hand is somebody else's when the leases end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tidelock::housekeeping::{Housekeeping, HousekeepingHandle};
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, ReactionEngine, ReactionError, Reactions};
use tidelock::schedule::{CatchUp, Overlap, ScheduleEngine, Scheduler, Task};
use tidelock::store::Event;
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{Ctx, Worker, WorkflowEngine};

use super::desk::{self, Desk, LEASE};
use super::shop::{ORDER, Order, Sales, Shop, Stock, StockEvent};
use crate::address::Address;
use crate::args::DemoWorker;
use crate::exit::Exit;
use crate::output;
use crate::parent_death::ParentPipe;

/// How often stock is taken.
pub(crate) const TAKE_EVERY: Duration = Duration::from_millis(500);
/// A fire that was missed is made up for, if it is no older than this.
const MAKE_UP: Duration = Duration::from_mins(5);
/// How many orders one worker drives at once.
const AT_ONCE: usize = 16;
/// How often the parent is told.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// How long a worker tries to begin.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a worker tells its parent, on a line of its own.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Entries of journals that were replayed instead of being run again.
    pub(crate) replayed: u64,
    /// Runs that were lost to others: whatever was still to be written for them was refused.
    pub(crate) fenced: u64,
}

/// Works until the parent is gone or closes the pipe.
pub(crate) async fn work(options: DemoWorker) -> Result<Exit> {
    let mut parent = ParentPipe::listen();
    wake_when_orphaned();
    let begun = async {
        let started = Instant::now();
        loop {
            match AtWork::begin(&options).await {
                // A store that does not answer on a busy machine is no reason to fall.
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
        ended = tell(&at_work.driving) => ended?,
        () = parent.closed() => {}
    }
    // A fire that is broken off when nobody comes after would be under way for ever.
    at_work.schedule.shutdown().await;
    Ok(Exit::Well)
}

/// A worker that stands still when its parent is killed has nobody left who lets it go on: the system does, and it sees that it is alone.
fn wake_when_orphaned() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Without it, somebody has to end the worker by hand.
        let _ = set_parent_process_death_signal(Some(Signal::CONT));
    }
}

/// All that a worker does.
struct AtWork {
    _housekeeping: HousekeepingHandle,
    _reactions: WorkerHandle<ReactionEngine>,
    schedule: WorkerHandle<ScheduleEngine>,
    driving: WorkerHandle<WorkflowEngine>,
}

impl AtWork {
    async fn begin(options: &DemoWorker) -> Result<Self> {
        let store = Address::handed_over(&options.store)?.open_existing().await?.shared();
        let desk = Desk {
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
        let code = async move |cx: &Ctx, order: Order| desk::order(cx, &at, order).await;
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

/// Fills a shelf that ran low. What is decided and the progress of the reaction are one commit.
fn fill_shelves(desk: &Desk) -> Reaction {
    let (events, shop) = (desk.events.clone(), desk.shop.clone());
    of_this_shop(Reaction::new(desk.shop.named("fill-shelves")).on(["RanLow"]), shop).each(move |_, event| {
        let events = events.clone();
        async move {
            let Some(shelf) = shelf(&event.stream) else { return Ok(Batch::new()) };
            let answers = Some(event.version.0);
            let decided = events.decide(shelf, |stock: &Stock| Ok::<_, Infallible>([stock.fill(answers)]));
            decided.await.map_err(ReactionError::from)
        }
    })
}

/// Counts what is sold, in a document: every event once, whoever dies.
fn count_sales(desk: &Desk) -> Reaction {
    let shop = desk.shop.clone();
    let counting = shop.clone();
    of_this_shop(Reaction::new(shop.named("count-sales")).on(["Reserved"]), shop).each(move |_, event| {
        let counted = counted(&counting, &event);
        async move { counted }
    })
}

fn counted(shop: &Shop, event: &Event) -> Result<Batch, ReactionError> {
    let sold = tidelock::events::decode::<StockEvent>(&event.event_type, &event.payload)?;
    let item = shelf(&event.stream);
    let (Some(item), StockEvent::Reserved { count, done }) =
        (item.as_deref().and_then(|name| shop.without_run(name)), sold)
    else {
        return Ok(Batch::new());
    };
    let sold = shop.sell(item, Sales::of(done.order, count));
    sold.map_err(|error| ReactionError::non_retryable(format!("{error:#}")))
}

/// A reaction to the shelves of one demo, shelf by shelf.
fn of_this_shop(reaction: Reaction, shop: Shop) -> Reaction {
    let ours = move |event: &Event| {
        let shelf = shelf(&event.stream)?;
        shop.without_run(&shelf).map(|_| event.stream.clone())
    };
    reaction.streams(KeyPrefix::kind("stock")).to(ours).lease_ttl(LEASE)
}

/// The id of a shelf.
fn shelf(stream: &Key) -> Option<String> {
    match stream.args().into_iter().next() {
        Some(Arg::Str(id)) => Some(id),
        _ => None,
    }
}

/// Notes that stock was taken, in the commit that says that the task has run.
fn take_stock(shop: &Shop) -> Result<Task> {
    let key = shop.takes()?;
    let task = Task::new(shop.named("take-stock")).every(TAKE_EVERY);
    // Nobody gives up in a demo, however often its process loses the lease.
    let task = task.catch_up(CatchUp::All(MAKE_UP)).overlap(Overlap::QueueAll).retry_policy(desk::PATIENT);
    Ok(task.run(move |fire| {
        let key = key.clone();
        async move {
            let none = Payload::from_json(r#"{"fires": []}"#)?;
            let at = fire.time().as_micros();
            Ok::<_, tidelock::schedule::TaskError>(Batch::new().merge_or_create(
                &key,
                none,
                [Delta::push("/fires", at)],
            ))
        }
    }))
}

/// Tells the parent how it goes, for as long as there is one.
async fn tell(driving: &WorkerHandle<WorkflowEngine>) -> Result<()> {
    loop {
        let stats = driving.stats();
        output::json_line(&Told { replayed: stats.replayed, fenced: stats.lost })?;
        tokio::time::sleep(TELL_EVERY).await;
    }
}

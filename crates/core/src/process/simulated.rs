//! Simulated processes: groups of tasks on one thread that have their own process-wide values and crash together.
//!
//! A woken task does not run at once. It offers itself to the [`Scheduler`], which decides the order of all tasks of a
//! simulation. The order in which wakers fire has therefore no effect.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use uuid::Uuid;

thread_local! {
    /// The process whose task is polled or dropped on this thread.
    static CURRENT: RefCell<Option<SimProcess>> = const { RefCell::new(None) };
}

/// The scheduler of a simulation, and the source of everything random in it.
pub trait Scheduler: Send + Sync + fmt::Debug {
    /// Returns a number that no other task of the simulation has.
    fn number(&self) -> u64;
    /// Takes the turn of a woken task. The task runs once the turn is granted.
    fn offer(&self, turn: SimTurn);
    /// Returns random bits that the seed determines.
    fn random(&self) -> u64;
    /// Returns a UUID v7 that the seed and the simulated time determine. Each is greater than the one before it.
    fn uuid(&self) -> Uuid;
}

/// The turn of a woken task.
#[derive(Debug)]
pub struct SimTurn {
    /// The number of the task.
    pub task: u64,
    /// The process of the task.
    pub process: SimProcess,
    granted: Arc<AtomicBool>,
    waker: Waker,
}

impl SimTurn {
    /// Lets the task run.
    pub fn grant(self) {
        self.granted.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// A simulated process. Clones are handles to the same process.
#[derive(Clone)]
pub struct SimProcess(Arc<Inner>);

struct Inner {
    name: String,
    place: usize,
    scheduler: Arc<dyn Scheduler>,
    crashed: AtomicBool,
    locals: Mutex<HashMap<usize, Arc<dyn Any + Send + Sync>>>,
    tasks: Mutex<BTreeMap<u64, Weak<dyn Droppable>>>,
}

impl fmt::Debug for SimProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimProcess").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl SimProcess {
    /// Creates a process without tasks. A process that replaces a crashed one has the same name and place.
    #[must_use]
    pub fn new(name: impl Into<String>, place: usize, scheduler: Arc<dyn Scheduler>) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            place,
            scheduler,
            crashed: AtomicBool::new(false),
            locals: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    /// Returns the name, which begins the names of its lease owners.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the place of the process among those of the simulation.
    #[must_use]
    pub fn place(&self) -> usize {
        self.0.place
    }

    /// Returns the process whose code runs on this thread.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    pub(super) fn is_current() -> bool {
        CURRENT.try_with(|current| current.borrow().is_some()).unwrap_or(false)
    }

    /// Calls a function as code of this process.
    pub fn enter<R>(&self, call: impl FnOnce() -> R) -> R {
        let _entered = Entered::new(self);
        call()
    }

    /// Returns whether the process has crashed.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.0.crashed.load(Ordering::Relaxed)
    }

    /// Ends the process: its tasks are dropped where they wait, and then its values. A task spawned from now on never runs.
    pub fn crash(&self) {
        self.0.crashed.store(true, Ordering::Relaxed);
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        for task in tasks.into_values().filter_map(|task| task.upgrade()) {
            self.enter(|| task.drop_future());
        }
        let locals = std::mem::take(&mut *self.0.locals.lock());
        self.enter(|| drop(locals));
    }

    pub(super) fn scheduler(&self) -> &dyn Scheduler {
        &*self.0.scheduler
    }

    /// Returns the value of this process for a static at that address.
    pub(super) fn local<T: Send + Sync + 'static>(&self, address: usize, create: fn() -> T) -> Arc<T> {
        let known = self.0.locals.lock().get(&address).cloned();
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return known;
        }
        let created = Arc::new(create());
        let shared: Arc<dyn Any + Send + Sync> = created.clone();
        self.0.locals.lock().insert(address, shared);
        created
    }
}

/// Restores the outer process when a poll or a drop ends or panics.
struct Entered(Option<SimProcess>);

impl Entered {
    fn new(process: &SimProcess) -> Self {
        let process = Some(process.clone());
        Self(CURRENT.try_with(|current| current.replace(process)).ok().flatten())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let outer = self.0.take();
        let _ended = CURRENT.try_with(|current| current.replace(outer));
    }
}

/// A task whose future a crash drops.
trait Droppable: Send + Sync {
    fn drop_future(&self);
}

struct Slot<F>(Mutex<Option<Pin<Box<F>>>>);

impl<F: Send> Droppable for Slot<F> {
    fn drop_future(&self) {
        let future = self.0.lock().take();
        drop(future);
    }
}

/// A future of the process that created it.
pub(super) enum Bound<F> {
    /// A future outside every simulation.
    Free(Pin<Box<F>>),
    Task(Task<F>),
}

pub(super) struct Task<F> {
    process: SimProcess,
    number: u64,
    slot: Arc<Slot<F>>,
    granted: Arc<AtomicBool>,
}

impl<F: Future + Send + 'static> Bound<F> {
    pub(super) fn new(future: F) -> Self {
        let future = Box::pin(future);
        match SimProcess::current() {
            None => Self::Free(future),
            Some(process) => Self::Task(Task::new(process, future)),
        }
    }
}

impl<F: Future + Send + 'static> Task<F> {
    fn new(process: SimProcess, future: Pin<Box<F>>) -> Self {
        let number = process.scheduler().number();
        let alive = !process.has_crashed();
        let slot = Arc::new(Slot(Mutex::new(alive.then_some(future))));
        if alive {
            let shared: Arc<dyn Droppable> = slot.clone();
            process.0.tasks.lock().insert(number, Arc::downgrade(&shared));
        }
        Self { process, number, slot, granted: Arc::default() }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.process.has_crashed() {
            return Poll::Pending;
        }
        if !self.granted.swap(false, Ordering::Relaxed) {
            let (granted, waker) = (Arc::clone(&self.granted), context.waker().clone());
            let process = self.process.clone();
            self.process.scheduler().offer(SimTurn { task: self.number, process, granted, waker });
            return Poll::Pending;
        }
        // Taken out while it runs, because it may crash its own process.
        let Some(mut future) = self.slot.0.lock().take() else { return Poll::Pending };
        let _entered = Entered::new(&self.process);
        let polled = future.as_mut().poll(context);
        if polled.is_pending() && !self.process.has_crashed() {
            *self.slot.0.lock() = Some(future);
        }
        polled
    }
}

impl<F: Future + Send + 'static> Future for Bound<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match &mut *self {
            Self::Free(future) => future.as_mut().poll(context),
            Self::Task(task) => task.poll(context),
        }
    }
}

impl<F> Drop for Task<F> {
    fn drop(&mut self) {
        self.process.0.tasks.lock().remove(&self.number);
        let future = self.slot.0.lock().take();
        self.process.enter(|| drop(future));
    }
}

//! Helpers for schedule cases: schedulers that poll often, and tasks that note their fire times.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock_core::clock::Timestamp;
use tidelock_core::schedule::{Schedule, ScheduleEngine, Scheduler, Schedules, Tick};
use tidelock_core::store::SharedStore;
use tidelock_core::worker::WorkerHandle;

use crate::Env;
use crate::conn::Conn;
use crate::reacting::LEASE;

pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// Returns a scheduler as the cases run it. It polls often, because the clock of the store gives no hints.
pub(crate) fn scheduler(conn: &Conn) -> Scheduler {
    over(&conn.0)
}

/// Returns the same scheduler on any store.
pub(crate) fn over(store: &SharedStore) -> Scheduler {
    Scheduler::new(Arc::clone(store)).poll_interval(Duration::from_millis(5)).lease_ttl(LEASE)
}

pub(crate) fn schedules(conn: &Conn) -> Schedules {
    Schedules::new(Arc::clone(&conn.0))
}

/// The fires for which tasks ran, in order: the time of each, to the minute.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, fire: &Tick) {
        self.0.lock().unwrap().push(short(fire.time()));
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Takes the entries added since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Formats an instant of the day of the cases, without the day.
pub(crate) fn short(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('T').map_or_else(String::new, |(_, time)| time.chars().take(5).collect())
}

/// Returns a task that notes its fire times.
pub(crate) fn noting(name: &str, cron: &str, log: &Log) -> Schedule {
    let log = log.clone();
    Schedule::new(name).cron(cron).run(move |fire| {
        log.add(&fire);
        async { Ok(()) }
    })
}

/// Sets the clock to an instant, forwards or backwards.
pub(crate) fn set(env: &Env, at: &str) {
    env.clock.set(at.parse().expect("an instant"));
}

/// Advances the clock and waits until all due work is done.
pub(crate) async fn pass(env: &Env, running: &WorkerHandle<ScheduleEngine>, by: Duration) {
    env.pass(by);
    running.quiesce().await.expect("the store answers");
}

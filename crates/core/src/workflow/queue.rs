//! Queues of runs: their names, and the limits that the workers of all processes enforce together.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::client::WorkflowClient;
use super::error::WorkflowError;
use super::keys;
use crate::error::InvalidInput;
use crate::id::QueueName;
pub use crate::model::rate::Rate;
use crate::payload::Payload;
use crate::store::{Batch, Delta, NewWork, Page, SharedStore, limits};

/// The highest concurrency limit of a queue. A queue that needs more needs no limit.
pub const MAX_QUEUE_CONCURRENCY: u32 = 1_000;

/// The limits of a queue, which its workers enforce in all processes. They are kept in the store. Workers apply a change
/// within their poll interval, by default a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimits {
    /// The maximum number of its runs that are driven at once. Runs that wait do not count.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// The maximum rate at which its runs begin. A run that continues after a wait does not count.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Whether runs were ever started with a fairness key: see [`StartRequest::fairness_key`](super::StartRequest::fairness_key).
    #[serde(default)]
    pub fair: bool,
}

impl QueueLimits {
    /// Returns whether the queue has a concurrency or a rate limit.
    #[must_use]
    pub fn any(&self) -> bool {
        self.concurrency.is_some() || self.rate.is_some()
    }

    fn validate(&self, queue: &str) -> Result<(), InvalidInput> {
        let refuse = |reason: String| Err(InvalidInput::name("the limits of a queue", queue, reason));
        match (self.concurrency, self.rate) {
            (Some(0), _) => {
                refuse("no run could ever be driven; leave its workers out to stop it".to_owned())
            }
            (Some(runs), _) if runs > MAX_QUEUE_CONCURRENCY => {
                refuse(format!("{runs} runs at once are asked for, at most {MAX_QUEUE_CONCURRENCY} can be"))
            }
            (_, Some(Rate { runs: 0, .. })) => refuse("no run could ever begin".to_owned()),
            (_, Some(Rate { per, .. })) if per.is_zero() || per > Duration::from_hours(24) => {
                refuse(format!("a rate is per 1 µs to 24 h, not per {per:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// A queue by its name, optionally with limits for its workers. A name without limits follows those in the store.
///
/// ```
/// use std::time::Duration;
/// use tidelock_core::workflow::Queue;
///
/// /// Ten at once, in all processes together, and no more than a hundred a minute.
/// const MAIL: Queue = Queue::new("mail").concurrency(10).rate(100, Duration::from_mins(1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub(super) name: Cow<'static, str>,
    pub(super) declared: Option<QueueLimits>,
}

const NONE: QueueLimits = QueueLimits { concurrency: None, rate: None, fair: false };

impl Queue {
    /// Creates a queue with this name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), declared: None }
    }

    /// Limits how many runs are driven at once, in all processes together. Runs that wait do not count.
    #[must_use]
    pub const fn concurrency(mut self, runs: u32) -> Self {
        let limits = self.so_far();
        self.declared = Some(QueueLimits { concurrency: Some(runs), ..limits });
        self
    }

    /// Limits how many runs begin per period, in all processes together. Their starts are spread evenly.
    #[must_use]
    pub const fn rate(mut self, runs: u32, per: Duration) -> Self {
        let limits = self.so_far();
        let burst = match limits.rate {
            Some(rate) => rate.burst,
            None => 1,
        };
        self.declared = Some(QueueLimits { rate: Some(Rate { runs, per, burst }), ..limits });
        self
    }

    /// Sets how many runs may begin at once when none has begun for a while. It has no effect unless a rate is set before.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        let limits = self.so_far();
        if let Some(rate) = limits.rate {
            self.declared = Some(QueueLimits { rate: Some(Rate { burst, ..rate }), ..limits });
        }
        self
    }

    /// Removes all limits, including those in the store.
    #[must_use]
    pub const fn unlimited(mut self) -> Self {
        self.declared = Some(NONE);
        self
    }

    const fn so_far(&self) -> QueueLimits {
        match self.declared {
            Some(limits) => limits,
            None => NONE,
        }
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl From<&str> for Queue {
    fn from(name: &str) -> Self {
        Self { name: Cow::Owned(name.to_owned()), declared: None }
    }
}

impl From<String> for Queue {
    fn from(name: String) -> Self {
        Self { name: Cow::Owned(name), declared: None }
    }
}

impl WorkflowClient {
    /// Sets the limits of a queue for the workers of all processes. They apply them within their poll interval, by default a
    /// second. Runs that are already driven are not interrupted. Until they have finished, more runs may be driven than a lower
    /// limit allows.
    ///
    /// # Errors
    /// [`WorkflowError`] when the limits are not valid, or the store fails.
    ///
    /// # Crash safety
    /// One commit: the limits are the old ones or the new ones.
    pub async fn limit_queue(&self, queue: &str, limits: QueueLimits) -> Result<(), WorkflowError> {
        let batch = declare(&self.store, queue, limits).await?;
        self.store.apply(batch).await?;
        keys::wake(queue);
        Ok(())
    }

    /// Returns the limits of a queue.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn queue_limits(&self, queue: &str) -> Result<QueueLimits, WorkflowError> {
        read(&self.store, queue).await
    }

    /// Returns the queues that have a document in the store, with their limits.
    ///
    /// # Errors
    /// [`WorkflowError`] when the store cannot be read.
    pub async fn queues(&self) -> Result<Vec<(String, QueueLimits)>, WorkflowError> {
        let (mut queues, mut page) = (Vec::new(), Page::first(limits::PAGE_ROWS));
        loop {
            let found = self.store.documents(&keys::all_queues(), page).await?;
            for document in &found.rows {
                if let Some(name) = keys::queue_of(&document.key) {
                    queues.push((name, document.value.parse()?));
                }
            }
            match found.next {
                Some(next) => page = Page::after(&next, limits::PAGE_ROWS),
                None => return Ok(queues),
            }
        }
    }
}

/// Returns the lane of a queue's seats, its concurrency slots: work rows, of which a worker holds one for each run that it drives.
///
/// # Errors
/// [`InvalidInput`] when a queue cannot have this name.
pub fn seats_of(queue: &str) -> Result<QueueName, InvalidInput> {
    keys::seats(queue)
}

/// Reads the limits of a queue from the store.
pub(super) async fn read(store: &SharedStore, queue: &str) -> Result<QueueLimits, WorkflowError> {
    match store.document(&keys::queue(queue)?).await? {
        Some(document) => Ok(document.value.parse()?),
        None => Ok(QueueLimits::default()),
    }
}

/// Returns the batch that sets the limits of a queue and enqueues its additional seats.
pub(super) async fn declare(
    store: &SharedStore,
    queue: &str,
    limits: QueueLimits,
) -> Result<Batch, WorkflowError> {
    keys::check("the name of a queue", queue, keys::MAX_NAME_BYTES)?;
    limits.validate(queue)?;
    let so_far = read(store, queue).await?.concurrency.unwrap_or(0);
    let mut batch = set(
        queue,
        [Delta::set("/concurrency", value(&limits.concurrency)?), Delta::set("/rate", value(&limits.rate)?)],
    )?;
    for seat in so_far..limits.concurrency.unwrap_or(0) {
        batch = batch.enqueue(NewWork::once(keys::seat(queue, seat)?, keys::seats(queue)?));
    }
    Ok(batch)
}

fn value<T: Serialize>(of: &T) -> Result<serde_json::Value, InvalidInput> {
    serde_json::to_value(of).map_err(|error| InvalidInput::Payload { reason: error.to_string() })
}

/// Returns the batch that announces runs with a fairness key to the workers of a queue.
pub(super) fn declare_fair(queue: &str) -> Result<Batch, InvalidInput> {
    set(queue, [Delta::set("/fair", true)])
}

fn set(queue: &str, deltas: impl IntoIterator<Item = Delta>) -> Result<Batch, InvalidInput> {
    Ok(Batch::new().merge_or_create(&keys::queue(queue)?, Payload::trusted("{}"), deltas))
}

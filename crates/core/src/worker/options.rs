//! The options that all workers share.

use std::time::Duration;

use crate::id::Owner;

/// The lease time without renewal, by default.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The shortest lease time. A shorter lease expires on a busy machine.
pub const MIN_TTL: Duration = Duration::from_millis(100);
/// The longest lease time, timeout and poll interval.
pub const MAX_TTL: Duration = Duration::from_hours(365 * 24);

/// The options of a worker.
#[derive(Clone, Debug)]
pub(crate) struct WorkerOptions {
    pub(crate) owner: Option<Owner>,
    pub(crate) concurrency: usize,
    pub(crate) lease_ttl: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) shutdown_timeout: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            owner: None,
            concurrency: 16,
            lease_ttl: DEFAULT_TTL,
            poll_interval: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// Limits a timeout to a year, so that its end is a valid instant.
pub(crate) fn bounded(timeout: Duration) -> Duration {
    timeout.min(MAX_TTL)
}

/// Limits a poll interval to a valid range.
pub(crate) fn interval(interval: Duration) -> Duration {
    interval.clamp(Duration::from_millis(1), MAX_TTL)
}

/// Defines the setters of [`WorkerOptions`] on a builder that holds them in `options.worker`.
macro_rules! worker_setters {
    () => {
        /// Sets how many grants this worker executes at once. The default is 16, and 64 for workflows.
        pub fn concurrency(mut self, grants: usize) -> Self {
            self.options.worker.concurrency = grants.max(1);
            self
        }

        /// Sets the owner name of the leases. The default is host name and process id. A unique suffix is added.
        pub fn owner(mut self, owner: $crate::id::Owner) -> Self {
            self.options.worker.owner = Some(owner);
            self
        }

        /// Sets the poll interval: the longest time that due work goes unnoticed when a hint of the store is lost. The
        /// default is 1 second.
        pub fn poll_interval(mut self, interval: ::std::time::Duration) -> Self {
            self.options.worker.poll_interval = $crate::worker::interval(interval);
            self
        }

        /// Sets how long executions may continue after [`WorkerHandle::shutdown`]($crate::worker::WorkerHandle::shutdown).
        /// The default is 10 seconds.
        pub fn shutdown_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.options.worker.shutdown_timeout = $crate::worker::bounded(timeout);
            self
        }

        /// Sets the lease time of a grant. A live worker renews its leases; other workers wait this long for the work of one
        /// that died. The default is 30 seconds.
        pub fn lease_ttl(mut self, ttl: ::std::time::Duration) -> Self {
            self.options.worker.lease_ttl = ttl.clamp($crate::worker::MIN_TTL, $crate::worker::MAX_TTL);
            self
        }
    };
}
pub(crate) use worker_setters;

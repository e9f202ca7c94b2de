//! The handle of a running service.

use std::future::Future;

use tidelock_core::housekeeping::HousekeepingHandle;
use tidelock_core::outbox::{OutboxEngine, SenderStats};
use tidelock_core::projections::ProjectionEngine;
use tidelock_core::reactions::{ReactionEngine, ReactionsStats};
use tidelock_core::schedule::{ScheduleEngine, SchedulerStats};
use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{WorkerStats, WorkflowEngine};
use tokio::time::{Duration, sleep, timeout};

use super::leader::Leading;
use crate::{Error, Tidelock};

/// A running service. Dropping it stops everything at once, like a crash; [`shutdown`](Self::shutdown) is graceful.
#[must_use = "dropping the handle stops the service"]
#[derive(Debug)]
pub struct ServiceHandle {
    tide: Tidelock,
    pub(super) schedules: Option<WorkerHandle<ScheduleEngine>>,
    pub(super) reactions: Option<WorkerHandle<ReactionEngine>>,
    pub(super) projections: Option<WorkerHandle<ProjectionEngine>>,
    pub(super) workflows: Option<WorkerHandle<WorkflowEngine>>,
    pub(super) outboxes: Vec<(&'static str, WorkerHandle<OutboxEngine>)>,
    pub(super) leaders: Vec<Leading>,
    pub(super) housekeeping: Option<HousekeepingHandle>,
    #[cfg(feature = "server")]
    inspectors: Inspectors,
}

/// The inspectors of a service, whose endless responses end with it.
#[cfg(feature = "server")]
#[derive(Clone, Debug, Default)]
struct Inspectors(std::sync::Arc<std::sync::Mutex<Vec<tidelock_server::Server>>>);

#[cfg(feature = "server")]
impl Inspectors {
    fn add(&self, server: tidelock_server::Server) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(server);
    }

    fn end(&self) {
        let servers = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        servers.iter().for_each(tidelock_server::Server::end);
    }
}

/// The final counters of a service in this process. `None` where it had no such worker.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ServiceReport {
    /// Schedules.
    pub schedules: Option<SchedulerStats>,
    /// Reactions.
    pub reactions: Option<ReactionsStats>,
    /// Workflow runs.
    pub workflows: Option<WorkerStats>,
    /// Each outbox, by its name.
    pub outboxes: Vec<(&'static str, SenderStats)>,
}

/// The interval at which [`ServiceHandle::idle`] polls the store.
const IDLE_POLL: Duration = Duration::from_millis(10);
/// The longest time that the second look of [`ServiceHandle::idle`] waits for handlers.
const SETTLED: Duration = Duration::from_secs(1);

impl ServiceHandle {
    pub(super) fn new(tide: Tidelock) -> Self {
        Self {
            tide,
            schedules: None,
            reactions: None,
            projections: None,
            workflows: None,
            outboxes: Vec::new(),
            leaders: Vec::new(),
            housekeeping: None,
            #[cfg(feature = "server")]
            inspectors: Inspectors::default(),
        }
    }

    /// Returns the store of the service.
    #[must_use]
    pub fn tide(&self) -> &Tidelock {
        &self.tide
    }

    /// Waits for SIGTERM or Ctrl-C, for example as the shutdown signal of an HTTP server. A program that cannot listen for
    /// a signal waits for the other one. Then the live views of the inspector end, for which the server would wait otherwise.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        #[cfg(feature = "server")]
        let inspectors = self.inspectors.clone();
        async move {
            signals().await;
            #[cfg(feature = "server")]
            inspectors.end();
        }
    }

    /// Waits until the service is quiescent: every event is handled and projected, and no firing, run or delivery is due or
    /// executing, in any process. Sleeping runs, blocked rows and later firings are not waited for. It is meant for tests.
    ///
    /// # Errors
    /// [`Error`] when the store cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn idle(&self) -> Result<(), Error> {
        loop {
            self.quiesce().await?;
            // Work that ended after the events were handled may have appended more, so all of it is read twice.
            if !self.is_busy().await? && self.is_settled().await && !self.is_busy().await? {
                return Ok(());
            }
            sleep(IDLE_POLL).await;
        }
    }

    /// Returns whether the reactions and projections have handled every event right now.
    async fn is_settled(&self) -> bool {
        timeout(SETTLED, self.quiesce()).await.is_ok_and(|settled| settled.is_ok())
    }

    /// Waits until no schedule is due, and every event is handled and projected.
    async fn quiesce(&self) -> Result<(), Error> {
        if let Some(schedules) = &self.schedules {
            schedules.quiesce().await?;
        }
        if let Some(reactions) = &self.reactions {
            reactions.quiesce().await?;
        }
        if let Some(projections) = &self.projections {
            projections.quiesce().await?;
        }
        Ok(())
    }

    /// Returns whether a firing, a run or a delivery is due or executing.
    async fn is_busy(&self) -> Result<bool, Error> {
        for (_, outbox) in &self.outboxes {
            if !outbox.is_idle().await? {
                return Ok(true);
            }
        }
        match &self.workflows {
            Some(workflows) => Ok(!workflows.is_idle().await?),
            None => Ok(false),
        }
    }

    /// Returns the routes of the inspector and the HTTP API, for `Router::nest`. It shows the locks of this process. Its live
    /// views end with [`stopped`](Self::stopped) and [`shutdown`](Self::shutdown).
    #[cfg(feature = "server")]
    pub fn inspector(&self, options: tidelock_server::ServerOptions) -> axum::Router {
        let server =
            tidelock_server::Server::new(self.tide.store().clone(), options).locks(self.tide.locks());
        let routes = server.router();
        self.inspectors.add(server);
        routes
    }

    /// Stops gracefully and returns the counters. Schedules stop first, so that nothing new begins; then reactions,
    /// projections, runs and deliveries end together; housekeeping stops last. Each of these two phases takes the shutdown timeout
    /// at most. Handlers of leaders are dropped at once. The store stays open.
    ///
    /// # Cancel safety
    /// Dropping the future stops everything at once.
    pub async fn shutdown(self) -> ServiceReport {
        let Self { schedules, reactions, projections, workflows, outboxes, leaders, housekeeping, .. } = self;
        #[cfg(feature = "server")]
        let inspectors = self.inspectors;
        #[cfg(feature = "server")]
        inspectors.end();
        let mut report = ServiceReport::default();
        if let Some(schedules) = schedules {
            report.schedules = Some(schedules.shutdown().await);
        }
        let reactions = async { Some(reactions?.shutdown().await) };
        let projections = async {
            projections?.shutdown().await;
            Some(())
        };
        let workflows = async { Some(workflows?.shutdown().await) };
        let outboxes = futures_util::future::join_all(
            outboxes.into_iter().map(|(name, sender)| async move { (name, sender.shutdown().await) }),
        );
        let leaders = futures_util::future::join_all(leaders.into_iter().map(Leading::shutdown));
        let ended = tokio::join!(reactions, projections, workflows, outboxes, leaders);
        (report.reactions, _, report.workflows, report.outboxes, _) = ended;
        if let Some(housekeeping) = housekeeping {
            housekeeping.shutdown().await;
        }
        report
    }
}

#[cfg(unix)]
async fn signals() {
    use tokio::signal::unix::{SignalKind, signal};
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = ctrl_c => {}
        () = terminate => {}
    }
}

#[cfg(not(unix))]
async fn signals() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

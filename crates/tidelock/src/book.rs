//! The Rust examples of the book, compiled and run as documentation tests. None of them is part of the library.

/// Attaches a page, so that `cargo test --doc` runs its examples.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../../docs/", $path))]
        struct $name;
    };
}

page!(GettingStarted, "getting-started.md");
#[cfg(all(feature = "axum", feature = "server"))]
page!(Tour, "tour.md");

page!(Rows, "concepts/rows.md");
page!(Ladder, "concepts/ladder.md");
page!(LeasesAndFences, "concepts/leases.md");
page!(Positions, "concepts/positions.md");

page!(DistributedLocks, "how-to/distributed-locks.md");
page!(KeyedLocks, "how-to/keyed-locks.md");
page!(JobQueues, "how-to/job-queues.md");
page!(CronSchedules, "how-to/cron-schedules.md");
page!(TransactionalOutbox, "how-to/transactional-outbox.md");
#[cfg(all(feature = "axum", feature = "webhooks"))]
page!(IdempotentRequests, "how-to/idempotent-requests.md");
page!(SafeRetries, "how-to/safe-retries.md");
page!(Workflows, "how-to/workflows.md");
page!(WorkflowSteps, "how-to/workflow-steps.md");
page!(WorkflowSignals, "how-to/workflow-signals.md");
page!(WorkflowChildren, "how-to/workflow-children.md");
page!(WorkflowQueues, "how-to/workflow-queues.md");
page!(WorkflowTesting, "how-to/workflow-testing.md");
page!(Sagas, "how-to/sagas.md");
page!(HumanApproval, "how-to/human-approval.md");
page!(UpgradingWorkflows, "how-to/upgrading-workflows.md");
page!(SharedState, "how-to/state.md");
page!(DocumentSchemas, "how-to/document-schemas.md");
page!(Documents, "how-to/documents.md");
page!(Aggregates, "how-to/aggregates.md");
page!(ReactionsPage, "how-to/reactions.md");
page!(ProjectionsPage, "how-to/projections.md");
page!(Upcasters, "how-to/upcasters.md");
page!(EventStreams, "how-to/event-streams.md");
page!(Archiving, "how-to/archiving.md");
#[cfg(feature = "sealed")]
page!(CryptoShredding, "how-to/crypto-shredding.md");
page!(OwnTransactions, "how-to/own-transactions.md");
page!(ExternalSystems, "how-to/external-systems.md");
#[cfg(feature = "files")]
page!(FilesStorePage, "how-to/files-store.md");
#[cfg(feature = "postgres")]
page!(Postgresql, "how-to/postgresql.md");

page!(Operations, "operate/operations.md");
page!(Runs, "operate/runs.md");
#[cfg(all(feature = "axum", feature = "server"))]
page!(Server, "operate/server.md");
#[cfg(all(feature = "axum", feature = "server"))]
page!(Inspector, "operate/inspector.md");
page!(CommandLine, "operate/command-line.md");
page!(Durability, "operate/durability.md");
#[cfg(feature = "otel")]
page!(Monitoring, "operate/monitoring.md");

#[cfg(all(feature = "axum", feature = "server"))]
page!(OnePage, "one-page.md");
#[cfg(feature = "postgres")]
page!(Configuration, "configuration.md");
page!(HttpApi, "http-api.md");
page!(Comparison, "comparison.md");

//! The Rust examples of the book, compiled and run as documentation tests. None of them is part of the library.

/// Attaches a page, so that `cargo test --doc` runs its examples.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[doc = include_str!(concat!("../../../docs/", $path))]
        struct $name;
    };
}

page!(GettingStarted, "getting-started.md");
page!(Tour, "tour.md");
page!(AppendEvents, "how-to/event-streams.md");
page!(KeepState, "how-to/documents.md");
page!(ChangeState, "how-to/state.md");
page!(Aggregates, "how-to/aggregates.md");
page!(React, "how-to/reactions.md");
page!(MakeProjections, "how-to/projections.md");
page!(CloseTheBooks, "how-to/archiving.md");
page!(Workflows, "how-to/workflows.md");
#[cfg(all(feature = "axum", feature = "webhooks"))]
page!(AnswerOnce, "how-to/idempotent-requests.md");
page!(TellTheWorld, "how-to/transactional-outbox.md");
page!(Schedules, "how-to/cron-schedules.md");
page!(HandOutWork, "how-to/job-queues.md");
page!(Locks, "how-to/keyed-locks.md");
page!(Authority, "how-to/external-systems.md");
page!(Leases, "how-to/distributed-locks.md");
page!(RetrySafely, "how-to/safe-retries.md");
#[cfg(feature = "files")]
page!(Files, "how-to/files-store.md");
#[cfg(feature = "sealed")]
page!(SensitiveData, "how-to/crypto-shredding.md");
#[cfg(feature = "postgres")]
page!(MoveToPostgres, "how-to/postgresql.md");
page!(OwnTables, "how-to/own-transactions.md");
page!(Durability, "operate/durability.md");
page!(Operations, "operate/operations.md");
#[cfg(feature = "otel")]
page!(Observability, "operate/monitoring.md");
page!(CommandLine, "operate/command-line.md");

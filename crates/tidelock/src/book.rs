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
page!(AppendEvents, "guide/append-events.md");
page!(KeepState, "guide/keep-state.md");
page!(ChangeState, "guide/state.md");
page!(Aggregates, "guide/events.md");
page!(React, "guide/reactions.md");
page!(MakeProjections, "guide/projections.md");
page!(CloseTheBooks, "guide/closing.md");
page!(Workflows, "guide/workflows.md");
#[cfg(all(feature = "axum", feature = "webhooks"))]
page!(AnswerOnce, "guide/edge.md");
page!(TellTheWorld, "guide/outbox.md");
page!(Schedules, "guide/schedules.md");
page!(HandOutWork, "guide/hand-out-work.md");
page!(Locks, "guide/locks.md");
page!(Authority, "guide/authority.md");
page!(Leases, "guide/leases.md");
page!(RetrySafely, "guide/retry-safely.md");
#[cfg(feature = "files")]
page!(Files, "guide/files.md");
#[cfg(feature = "sealed")]
page!(SensitiveData, "guide/sensitive-data.md");
#[cfg(feature = "postgres")]
page!(MoveToPostgres, "guide/postgres.md");
page!(OwnTables, "guide/own-tables.md");
page!(Durability, "guide/durability.md");
page!(Operations, "guide/operations.md");
#[cfg(feature = "otel")]
page!(Observability, "guide/observability.md");
page!(CommandLine, "guide/command-line.md");

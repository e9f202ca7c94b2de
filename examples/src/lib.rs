//! Short programs on one handle, one file each: `cargo run -p tidelock-examples --example 00_batch`. Each asserts its results.
//!
//! | program | shows |
//! |---|---|
//! | `00_batch` | one atomic batch over events, documents and work |
//! | `01_lock`, `02_modes` | keyed locks in one process, lock modes as data |
//! | `03_lease` | a distributed lock with a fencing token; its holder is killed |
//! | `04_state`, `05_runtime_state` | optimistic concurrency; a document with schema migration and quarantine |
//! | `06_events` | aggregates and a typed reaction in two services |
//! | `07_workflow_crash`, `08_saga`, `09_signals` | a killed and resumed workflow, compensation, signals with timeout |
//! | `10_agent` | an AI agent as a workflow |
//! | `11_schedule` | cron across a change to summer time |
//! | `12_idempotent_axum` | idempotency keys and a transactional outbox |
//! | `service` | all of it in one axum service with the inspector |
//! | `external_update_git` | optimistic concurrency on a git repository |
//!
//! `examples/tutorial` has the six chapters of the tutorial, from `ch1_state` to `ch6_machines`.

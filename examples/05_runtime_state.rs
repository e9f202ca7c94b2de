//! Runtime state of a scheduler in one document, which survives restarts: the start time, and the record of each task.
//! An older program created the document, and one of its tasks was damaged by a manual edit. No data is lost.
//!
//! `cargo run -p tidelock-examples --example 05_runtime_state`
#![expect(clippy::print_stdout, reason = "a program talks to people")]
#![expect(clippy::indexing_slicing, reason = "an index into JSON is a field that may be missing")]

use std::error::Error;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::prelude::*;
use tidelock::state::{Document, Items, Schema, Transaction};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeState {
    start_time: Option<Timestamp>,
    tasks: Items<TaskRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskRecord {
    name: String,
    cron_expression: String,
    retry_delay_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_success_time: Option<Timestamp>,
}

impl TaskRecord {
    fn new(name: &str, cron_expression: &str) -> Self {
        let (name, cron_expression) = (name.to_owned(), cron_expression.to_owned());
        Self { name, cron_expression, retry_delay_ms: 60_000, last_success_time: None }
    }
}

/// Version 1 had no tasks.
fn schema() -> Schema {
    Schema::new().then(|mut version_1| {
        version_1["tasks"] = json!([]);
        Ok(version_1)
    })
}

/// Adds a task, and keeps all of them in the order of their names.
fn add(tx: &mut Transaction<RuntimeState>, task: &TaskRecord) -> Result<usize, String> {
    let mut state = tx.current();
    if state.tasks.iter().any(|known| known.name == task.name) {
        return Err(format!("there is a task {} already", task.name));
    }
    state.tasks.push(task.clone());
    state.tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let count = state.tasks.len();
    tx.set(state);
    Ok(count)
}

fn names(state: &RuntimeState) -> Vec<&str> {
    state.tasks.iter().map(|task| task.name.as_str()).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(directory.path().join("scheduler.db"), SqliteOptions::default()).await?;
    let key = Key::new("runtime_state", ["current"])?;
    let states = StateRegistry::new(Arc::new(store.clone()));
    let document: Document<RuntimeState> = states.document(&key, schema());

    // Checks before any work that the document is readable and the store accepts writes.
    document.ensure_accessible().await?;

    // An older program has written this document.
    let version_1 = Payload::from_json(r#"{"version": 1, "startTime": 1700000000000000}"#)?;
    store.apply(Batch::new().put(&key, Expect::Absent, version_1)).await?;
    let old = document.read().await?.ok_or("gone")?;
    assert!(old.value.start_time.is_some() && old.value.tasks.is_empty());

    // The first transaction that sets the document migrates it to version 2.
    for task in [TaskRecord::new("send-digest", "0 8 * * *"), TaskRecord::new("back-up", "0 3 * * *")] {
        document.transaction(move |tx| add(tx, &task)).await?;
    }
    let twice = document.transaction(|tx| add(tx, &TaskRecord::new("back-up", "* * * * *"))).await;
    println!("refused: {}", twice.err().ok_or("it was added twice")?);
    let state = document.read().await?.ok_or("gone")?.value;
    assert_eq!(names(&state), ["back-up", "send-digest"]);

    // After a manual edit, one task cannot be decoded. The other tasks can, and the damaged one is kept unchanged.
    let written = store.document(&key).await?.ok_or("gone")?.value;
    assert!(written.as_str().contains(r#""version":2"#), "{written}");
    let damaged = written.as_str().replacen("60000", "\"soon\"", 1);
    store.apply(Batch::new().put(&key, Expect::Any, Payload::from_json(damaged)?)).await?;
    document.transaction(|tx| add(tx, &TaskRecord::new("clean-up", "30 3 * * *"))).await?;
    let state = document.read().await?.ok_or("gone")?.value;
    assert_eq!(names(&state), ["clean-up", "send-digest"]);
    let [bad] = state.tasks.quarantine() else { return Err("one is set aside".into()) };
    println!("set aside: {}: {}", bad.json, bad.reason);
    assert_eq!((bad.place, &bad.json["name"]), (0, &json!("back-up")));

    // A transaction that sets nothing writes nothing.
    let before = store.document(&key).await?.ok_or("gone")?.version;
    let count = document.transaction(|tx| Ok::<_, String>(tx.current().tasks.len())).await?;
    assert_eq!((count.result, count.outcome.version()), (2, before));
    println!("{} tasks, version {before}", count.result);
    Ok(())
}

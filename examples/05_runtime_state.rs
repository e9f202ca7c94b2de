//! Runtime state of a scheduler in one document that survives restarts. An older program has written it, and a manual edit
//! damages one of its entries. The schema migrates it, the damaged entry is quarantined, and no data is lost.
//!
//! `cargo run -p tidelock-examples --example 05_runtime_state`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock::prelude::*;
use tidelock::state::{Document, Items, Schema, Transaction};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct RuntimeState {
    start_time: Option<Timestamp>,
    tasks: Items<Task>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    name: String,
    retry_delay_ms: u64,
}

/// Adds a task, unless its name is taken.
fn add(tx: &mut Transaction<RuntimeState>, name: &str) -> Result<(), String> {
    let mut state = tx.current();
    if state.tasks.iter().any(|known| known.name == name) {
        return Err(format!("the task {name} exists"));
    }
    state.tasks.push(Task { name: name.to_owned(), retry_delay_ms: 60_000 });
    tx.set(state);
    Ok(())
}

async fn names(document: &Document<RuntimeState>) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let state = document.read().await?.ok_or("the document is gone")?.value;
    Ok(state.tasks.iter().map(|task| task.name.clone()).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tide = Tidelock::open("memory:").await?;
    let key = ("runtime_state", "current").into_key()?;

    // Version 1 had no tasks. The first transaction that sets the document writes version 2.
    let version_1 = Payload::from_json(r#"{"version": 1, "start_time": "2023-11-14T22:13:20Z"}"#)?;
    tide.apply(Batch::new().put(&key, Expect::Absent, version_1)).await?;
    let schema = Schema::new().then(|version_1| {
        let start = version_1.get("start_time").cloned();
        Ok(json!({ "start_time": start, "tasks": [] }))
    });
    let document = tide.document::<RuntimeState>(&key, schema)?;
    document.ensure_accessible().await?; // the store accepts writes, and the document decodes
    for name in ["digest", "back-up"] {
        document.transaction(move |tx| add(tx, name)).await?;
    }
    assert_eq!(names(&document).await?, ["digest", "back-up"]);
    let twice = document.transaction(|tx| add(tx, "back-up")).await.err().ok_or("it was added twice")?;
    println!("refused: {twice}");

    // After a manual edit, one task does not decode. The other one does, and the damaged one is kept unchanged.
    let written = tide.store().document(&key).await?.ok_or("the document is gone")?.value;
    let damaged = written.as_str().replacen("60000", "\"soon\"", 1);
    tide.apply(Batch::new().put(&key, Expect::Any, Payload::from_json(damaged)?)).await?;
    document.transaction(|tx| add(tx, "clean-up")).await?;
    assert_eq!(names(&document).await?, ["back-up", "clean-up"]);
    let state = document.read().await?.ok_or("the document is gone")?.value;
    let [bad] = state.tasks.quarantine() else { return Err("one task is quarantined".into()) };
    println!("quarantined: {}: {}", bad.json, bad.reason);
    assert_eq!(bad.json.get("name"), Some(&json!("digest")));
    Ok(())
}

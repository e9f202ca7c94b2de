//! HTTP API of workflow runs on each store, with a worker in the same process.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[macro_use]
mod common;

use std::sync::Arc;

use common::Site;
use serde_json::{Value, json};
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{Ctx, Failure, Signal, Worker, Workflow, WorkflowEngine};

const APPROVED: Signal<bool> = Signal::new("approved");
const ORDER: Workflow<Value, Value> = Workflow::new("order").accepts(APPROVED);

/// Waits for approval, and fails without it.
async fn order(cx: &Ctx, input: Value) -> Result<Value, Failure> {
    let reserved: u32 = cx.step("reserve", async |_| Ok(7)).await?;
    if cx.signal(APPROVED).await? {
        return Ok(json!({"reserved": reserved, "input": input}));
    }
    Ok(cx.step("refuse", async |_| Err::<Value, _>(Failure::permanent("the order was refused"))).await?)
}

/// Starts a worker that has registered the workflow.
async fn worker(site: &Site) -> WorkerHandle<WorkflowEngine> {
    Worker::new(Arc::clone(&site.store)).register(ORDER, order).start().await.unwrap()
}

async fn a_run_is_started_signalled_and_awaited(site: Site) {
    let worker = worker(&site).await;
    let start = json!({"workflow": "order", "id": "o/17", "input": {"n": 1}, "attributes": {"who": "me"}});
    assert_eq!(site.post("/api/v1/runs", &start).await.when(201)["run"], "o/17");
    assert_eq!(site.post("/api/v1/runs", &start).await.when(201)["run"], "o/17", "it is the same run");
    let other = json!({"workflow": "order", "id": "o/17", "input": {"n": 2}});
    assert_eq!(site.post("/api/v1/runs", &other).await.refused(409), "TL1002");

    let waits = site.get("/api/v1/runs/o%2F17/result?wait=20ms").await.when(202);
    assert_eq!((&waits["status"], &waits["output"]), (&json!("running"), &Value::Null));
    let signal = |name: &str| json!({"name": name, "id": "s-1", "value": true});
    assert_eq!(site.post("/api/v1/runs/o%2F17/signals", &signal("odd")).await.refused(422), "TL1004");
    site.post("/api/v1/runs/o%2F17/signals", &signal("approved")).await.when(202);
    let ended = site.get("/api/v1/runs/o%2F17/result?wait=30s").await.when(200);
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["output"], json!({"reserved": 7, "input": {"n": 1}}));

    let shown = site.get("/api/v1/runs/o%2F17").await.when(200);
    assert_eq!((&shown["workflow"], &shown["attributes"]["who"]), (&json!("order"), &json!("me")));
    let steps = site.get("/api/v1/runs/o%2F17/steps").await.when(200);
    assert!(steps["steps"].as_array().unwrap().iter().any(|step| step["name"] == "reserve"), "{steps}");
    let one = site.get("/api/v1/runs/o%2F17/steps?cursor=1&limit=1").await.when(200);
    assert_eq!((&one["count"], &one["next"]), (&json!(2), &Value::Null), "{one}");
    assert_eq!(one["steps"], json!([steps["steps"][1]]));
    assert_eq!(site.get("/api/v1/runs/o%2F17/steps?limit=1").await.when(200)["next"], 1);
    let over = site.post("/api/v1/runs/o%2F17/cancel", &json!({"reason": "late"})).await;
    assert_eq!(over.refused(409), "TL1003");
    assert!(site.get("/metrics").await.text.contains("tidelock_runs{status=\"completed\"} 1\n"));
    let told = site.audit().await;
    assert_eq!(told.first().unwrap(), "write start o/17");
    assert!(told.contains(&"write signal o/17".to_owned()), "{told:?}");
    worker.shutdown().await;
}

async fn a_run_is_cancelled_or_resumed_and_found_by_status(site: Site) {
    let worker = worker(&site).await;
    for id in ["a", "b", "c"] {
        site.post("/api/v1/runs", &json!({"workflow": "order", "id": id})).await.when(201);
    }
    site.post("/api/v1/runs/a/cancel", &json!({"reason": "late"})).await.when(202);
    assert_eq!(site.get("/api/v1/runs/a/result?wait=30s").await.when(200)["status"], "cancelled");
    site.post("/api/v1/runs/b/signals", &json!({"name": "approved", "value": false})).await.when(202);
    let failed = site.get("/api/v1/runs/b/result?wait=30s").await.when(200);
    assert_eq!(failed["status"], "failed");
    assert!(failed["failure"].as_str().unwrap().contains("the order was refused"), "{failed}");
    site.post("/api/v1/runs/b/resume", &json!({"reason": "again"})).await.when(202);
    assert_eq!(
        site.get("/api/v1/runs/b/result?wait=30s").await.when(200)["status"],
        "failed",
        "it was tried again"
    );

    let ids = async |query: &str| {
        let page = site.get(&format!("/api/v1/runs?{query}")).await.when(200);
        let runs = page["runs"].as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().to_owned());
        (runs.collect::<Vec<_>>(), page["next"].clone())
    };
    assert_eq!(ids("status=running").await.0, ["c"]);
    assert_eq!(ids("status=failed&workflow=order").await.0, ["b"]);
    assert_eq!(ids("workflow=other").await.0, [""; 0]);
    assert_eq!(ids("prefix=c").await.0, ["c"]);
    let (newest, next) = ids("limit=2").await;
    assert_eq!(newest, ["c", "b"]);
    let cursor = next.as_str().unwrap();
    assert_eq!(ids(&format!("limit=2&cursor={cursor}")).await, (vec!["a".to_owned()], Value::Null));
    assert_eq!(site.get("/api/v1/runs?cursor=b").await.refused(400), "TL0103");
    let shown = site.get("/api/v1/runs/b").await.when(200);
    assert!(shown["started_at"].as_str() <= shown["ended_at"].as_str(), "{shown}");
    assert_eq!(site.get("/api/v1/runs/c").await.when(200)["ended_at"], Value::Null);
    let counts = site.get("/api/v1/overview").await.when(200)["runs"]["by_status"].clone();
    assert_eq!(counts, json!({"running": 1, "completed": 0, "failed": 1, "cancelled": 1}));
    worker.shutdown().await;
}

async fn unknown_names_are_reported(site: Site) {
    let worker = worker(&site).await;
    assert_eq!(site.post("/api/v1/runs", &json!({"workflow": "odd"})).await.refused(404), "TL1005");
    for path in
        ["/api/v1/runs/x", "/api/v1/runs/x/steps", "/api/v1/runs/x/result", "/api/v1/runs/x/result?wait=1s"]
    {
        assert_eq!(site.get(path).await.refused(404), "TL1001", "{path}");
    }
    let cancel = site.post("/api/v1/runs/x/cancel", &json!({"reason": ""})).await;
    assert_eq!(cancel.refused(404), "TL1001");
    worker.shutdown().await;
}

on_each_store! {
    a_run_is_started_signalled_and_awaited,
    a_run_is_cancelled_or_resumed_and_found_by_status,
    unknown_names_are_reported,
}

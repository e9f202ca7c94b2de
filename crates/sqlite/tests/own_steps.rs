//! Steps with effects in the caller's own tables: each effect happens once, however often workers stop in the middle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{Ctx, Failure, TxStep, Worker, Workflow, WorkflowClient, WorkflowEngine};
use tidelock_sqlite::rusqlite::{self, Connection, TransactionBehavior};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

const ORDER: Workflow<u32, i64> = Workflow::new("order");
const RUNS: u32 = 20;
const STEPS: u32 = 5;

fn failed(error: rusqlite::Error) -> Failure {
    Failure::new(error.to_string())
}

/// Writes an invoice, and the end of the step that wrote it, in one transaction.
fn invoice(store: &SqliteStore, step: &TxStep) -> Result<i64, Failure> {
    let mut mine = Connection::open(store.path()).map_err(failed)?;
    mine.busy_timeout(Duration::from_secs(10)).map_err(failed)?;
    let tx = mine.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    tx.execute("INSERT INTO invoices (step) VALUES (?1)", [step.key()]).map_err(failed)?;
    let number = tx.last_insert_rowid();
    store.apply_in(&tx, &step.end(&number)?).map_err(|error| Failure::new(error.to_string()))?;
    tx.commit().map_err(failed)?;
    Ok(number)
}

async fn driving(store: &SqliteStore) -> WorkerHandle<WorkflowEngine> {
    let mine = store.clone();
    let code = async move |cx: &Ctx, _: u32| {
        let mut sum = 0;
        for n in 0..STEPS {
            let number = cx.scope("invoice", n).step_tx("write", async |step| invoice(&mine, &step));
            sum += number.await?;
        }
        Ok(sum)
    };
    let worker = Worker::new(Arc::new(store.clone())).lease_ttl(Duration::from_secs(1)).concurrency(8);
    worker.register(ORDER, code).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_effects_in_own_tables_are_there_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let options = SqliteOptions { shared: true, ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, options).await.unwrap();
    let mine = Connection::open(&path).unwrap();
    mine.execute_batch("CREATE TABLE invoices (number INTEGER PRIMARY KEY, step TEXT)").unwrap();
    let count = |what: &str| -> i64 {
        mine.query_row(&format!("SELECT count({what}) FROM invoices"), [], |row| row.get(0)).unwrap()
    };
    let client = WorkflowClient::new(Arc::new(store.clone()));
    let mut runs = Vec::new();
    for n in 0..RUNS {
        runs.push(client.start(ORDER, &n).id(format!("o{n}")).await.unwrap());
    }
    for enough in [7, 23, 41, 66] {
        let worker = driving(&store).await;
        let since = Instant::now();
        while count("*") < enough {
            assert!(since.elapsed() < Duration::from_secs(60), "only {} invoices", count("*"));
            tokio::task::yield_now().await;
        }
        worker.abort().await;
    }
    let worker = driving(&store).await;
    let mut sums = 0;
    for run in &runs {
        sums += run.result().await.unwrap();
    }
    worker.shutdown().await;
    let all = i64::from(RUNS * STEPS);
    assert_eq!((count("*"), count("DISTINCT step")), (all, all));
    assert_eq!(sums, all * (all + 1) / 2, "what the runs know is what the table has");
}

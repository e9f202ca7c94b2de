//! Steps with effects in the caller's own tables: each effect happens once, however often workers stop in the middle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Postgres;
use tidelock_core::store::SharedStore;
use tidelock_core::worker::WorkerHandle;
use tidelock_core::workflow::{Ctx, Failure, TxStep, Worker, Workflow, WorkflowClient, WorkflowEngine};
use tidelock_postgres::PostgresStore;

const ORDER: Workflow<u32, i32> = Workflow::new("order");
const RUNS: i32 = 20;
const STEPS: i32 = 5;

/// The program under test: a store, and the schema of its own table.
#[derive(Clone)]
struct Shop {
    store: Arc<PostgresStore>,
    schema: String,
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

impl Shop {
    /// Writes an invoice, and the end of the step that wrote it, in one transaction.
    async fn invoice(&self, step: &TxStep) -> Result<i32, Failure> {
        let mut mine = common::client().await;
        let mut tx = mine.transaction().await.map_err(failed)?;
        let insert = format!("INSERT INTO {}.invoices (step) VALUES ($1) RETURNING number", self.schema);
        let number: i32 = tx.query_one(&insert, &[&step.key()]).await.map_err(failed)?.get(0);
        self.store.apply_in(&mut tx, &step.end(&number)?).await.map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        Ok(number)
    }

    async fn driving(&self) -> WorkerHandle<WorkflowEngine> {
        let shop = self.clone();
        let code = async move |cx: &Ctx, _: u32| {
            let mut sum = 0;
            for n in 0..STEPS {
                let number = cx.scope("invoice", n).step_tx("write", async |step| shop.invoice(&step).await);
                sum += number.await?;
            }
            Ok(sum)
        };
        let store: SharedStore = Arc::clone(&self.store) as SharedStore;
        let worker = Worker::new(store).lease_ttl(Duration::from_secs(1)).concurrency(8);
        worker.register(ORDER, code).start().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_effects_in_own_tables_are_there_once() {
    let backend = Postgres::default();
    let schema = backend.schema();
    let store = Arc::new(common::open(&common::address(&schema), None).await);
    let mine = common::client().await;
    let table = format!("CREATE TABLE {schema}.invoices (number serial, step text)");
    mine.batch_execute(&table).await.unwrap();
    let count = async |what: &str| -> i64 {
        let count = format!("SELECT count({what}) FROM {schema}.invoices");
        mine.query_one(&count, &[]).await.unwrap().get(0)
    };
    let shop = Shop { store: Arc::clone(&store), schema: schema.clone() };
    let client = WorkflowClient::new(store);
    let mut runs = Vec::new();
    for n in 0..u32::try_from(RUNS).unwrap() {
        runs.push(client.start(ORDER, &n).id(format!("o{n}")).await.unwrap());
    }
    for enough in [7, 23, 41, 66] {
        let worker = shop.driving().await;
        let since = Instant::now();
        while count("*").await < enough {
            assert!(since.elapsed() < Duration::from_secs(60), "only {} invoices", count("*").await);
        }
        worker.abort().await;
    }
    let worker = shop.driving().await;
    let mut sums = 0;
    for run in &runs {
        sums += i64::from(run.result().await.unwrap());
    }
    worker.shutdown().await;
    let all = i64::from(RUNS * STEPS);
    assert_eq!((count("*").await, count("DISTINCT step").await), (all, all));
    let sum = format!("SELECT sum(number) FROM {schema}.invoices");
    let sum: i64 = mine.query_one(&sum, &[]).await.unwrap().get(0);
    assert_eq!(sums, sum, "what the runs know is what the table has");
}

//! Steps of a workflow with effects in the user's tables, in a transaction of sqlx.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidelock::postgres::sqlx::{self, AssertSqlSafe, Connection as _, PgConnection};
use tidelock::prelude::*;
use tidelock::worker::WorkerHandle;
use tidelock::workflow::{TxStep, Worker, WorkflowEngine};
use tokio::sync::Notify;

use crate::cases::ORDER;
use crate::kinds::Kind as _;
use crate::postgres::{Sqlx, url};

/// A program whose first attempt of the step blocks forever right after its commit.
#[derive(Clone)]
struct Program {
    tide: Tidelock,
    schema: String,
    stopped: Arc<AtomicBool>,
    committed: Arc<Notify>,
}

impl Program {
    /// Writes an invoice, and the end of the step that wrote it, in one transaction.
    async fn invoice(&self, step: &TxStep, total: u32) -> Result<i32, Failure> {
        let mut mine = PgConnection::connect(&url()).await?;
        let mut tx = mine.begin().await?;
        let insert = format!("INSERT INTO {}.invoices VALUES ($1) RETURNING total", self.schema);
        let total = i32::try_from(total)?;
        let number: i32 = sqlx::query_scalar(AssertSqlSafe(insert)).bind(total).fetch_one(&mut *tx).await?;
        self.tide.apply_in(&mut tx, step.end(&number)?).await?;
        tx.commit().await?;
        if !self.stopped.swap(true, Ordering::SeqCst) {
            self.committed.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(number)
    }

    async fn drive(&self) -> WorkerHandle<WorkflowEngine> {
        let program = self.clone();
        let code = async move |cx: &Ctx, total: u32| {
            let mine = program.clone();
            let number: i32 = cx.step_tx("book", async |step| mine.invoice(&step, total).await).await?;
            Ok(number.unsigned_abs() * 2)
        };
        let worker = Worker::new(self.tide.store().clone()).lease_ttl(Duration::from_secs(1));
        worker.register(ORDER, code).start().await.unwrap()
    }
}

/// The process dies between the commit of the step and the report to the workflow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_whose_process_dies_after_its_commit_is_not_repeated() {
    let mut site = Sqlx::open().await;
    let (tide, schema) = (site.tide.clone(), site.place.0.clone());
    let program = Program { tide, schema, stopped: Arc::default(), committed: Arc::default() };
    let worker = program.drive().await;
    let run = site.tide.start(ORDER, &300).id("order-17").await.unwrap();
    program.committed.notified().await;
    worker.abort().await;
    let worker = program.drive().await;
    assert_eq!(run.result().await.unwrap(), 600);
    assert_eq!(Sqlx::count(&mut site).await, 1);
    worker.shutdown().await;
}

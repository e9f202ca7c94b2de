//! An HTTP service on axum and sqlx that commits a row of its own table, an event and a started workflow run in one transaction.
//!
//! Run it without arguments: it starts the service as a child process, kills the child between the writes and the commit, and shows that
//! nothing is half done. Then it places the order again. It uses the PostgreSQL server of `DATABASE_URL`, in the schemas
//! `tidelock_example` and `tidelock_example_store`, which it drops at the end, or starts a private one.
//!
//! `cargo run -p tidelock-examples --example 14_own_tables`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tidelock::prelude::*;
use tidelock::store::Durability;
use tower::ServiceExt as _;

/// What `main` and the requests return.
type Outcome<T> = Result<T, Box<dyn Error>>;

const ORDER: Workflow<i64, String> = Workflow::new("order");

async fn order(cx: &Ctx, number: i64) -> Result<String, Failure> {
    Ok(cx.step("pack", async |_| Ok(format!("order {number} is packed"))).await?)
}

/// The state of the service: the user's own pool, and the store in the same database.
#[derive(Clone)]
struct Shop {
    pool: PgPool,
    tide: Tidelock,
}

/// Places an order: a row of the user's table, an event, and a run. One commit makes all of them visible.
async fn place(State(shop): State<Shop>, Path(number): Path<i64>) -> Result<String, Failed> {
    let mut tx = shop.pool.begin().await?;
    sqlx::query("INSERT INTO tidelock_example.orders (number) VALUES ($1)")
        .bind(number)
        .execute(&mut *tx)
        .await?;
    let placed = NewEvent::new(EventType::new("Placed")?, Payload::of(&number)?);
    shop.tide.apply_in(&mut tx, Batch::new().append(&orders()?, Expect::Any, [placed])).await?;
    let run = shop.tide.start(ORDER, &number).id(format!("order-{number}")).within(&mut tx).await?;
    // The child process of this program is killed here.
    if std::env::var_os("KILL_BEFORE_COMMIT").is_some() {
        println!("everything is written, nothing is committed");
        std::future::pending::<()>().await;
    }
    tx.commit().await?;
    shop.tide.hint();
    Ok(run.result().await?)
}

fn orders() -> Result<Key, tidelock::Error> {
    Ok(Key::single("orders")?)
}

/// Any error of the handler, as a response.
struct Failed(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

impl Shop {
    async fn open(url: &str) -> Outcome<Self> {
        let pool = PgPoolOptions::new().max_connections(4).connect(url).await?;
        // A server for tests may not flush. Processes are killed here, not machines.
        let options = PostgresOptions { durability: Durability::Relaxed, ..PostgresOptions::default() };
        let tide = Tidelock::options(url).schema("tidelock_example_store").postgres(options).open().await?;
        Ok(Self { pool, tide })
    }

    /// Sends a request to the service and returns its response.
    async fn request(&self, number: i64) -> Outcome<String> {
        let routes = Router::new().route("/orders/{number}", post(place)).with_state(self.clone());
        let request =
            axum::http::Request::post(format!("/orders/{number}")).body(axum::body::Body::empty())?;
        let body = routes.oneshot(request).await?.into_body();
        Ok(String::from_utf8(axum::body::to_bytes(body, 10_000).await?.to_vec())?)
    }

    /// Prints and returns the number of rows, of events, and whether the run exists.
    async fn count(&self) -> Outcome<(i64, usize, bool)> {
        let rows =
            sqlx::query_scalar("SELECT count(*) FROM tidelock_example.orders").fetch_one(&self.pool).await?;
        let events = self.tide.store().read_stream(StreamQuery::forward(&orders()?, 10)).await?.events.len();
        let run = self.tide.runs().handle(ORDER, "order-17").status().await.is_ok();
        println!("rows: {rows}, events: {events}, run: {}", if run { "exists" } else { "none" });
        Ok((rows, events, run))
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    if let Ok(url) = std::env::var("SHOP_CHILD") {
        Shop::open(&url).await?.request(17).await?;
        return Ok(());
    }
    let Some(server) = Server::find()? else {
        println!("no PostgreSQL: set DATABASE_URL or install it to run this example");
        return Ok(());
    };
    prove(&server.url).await
}

async fn prove(url: &str) -> Outcome<()> {
    let shop = Shop::open(url).await?;
    for sql in [
        "DROP SCHEMA IF EXISTS tidelock_example CASCADE",
        "CREATE SCHEMA tidelock_example",
        "CREATE TABLE tidelock_example.orders (number bigint)",
    ] {
        sqlx::query(sql).execute(&shop.pool).await?;
    }
    kill_before_the_commit(url)?;
    if shop.count().await? != (0, 0, false) {
        return Err("the killed process left something".into());
    }
    let service = shop.tide.service().workflow(ORDER, order).start().await?;
    println!("{}", shop.request(17).await?);
    let placed = shop.count().await?;
    service.shutdown().await;
    shop.shielded().await?;
    if placed != (1, 1, true) { Err("the order was not placed once".into()) } else { Ok(()) }
}

impl Shop {
    async fn shielded(self) -> Outcome<()> {
        self.tide.close().await;
        for sql in ["DROP SCHEMA tidelock_example CASCADE", "DROP SCHEMA tidelock_example_store CASCADE"] {
            sqlx::query(sql).execute(&self.pool).await?;
        }
        Ok(())
    }
}

/// Places the order in a child process, and kills the child before its commit.
fn kill_before_the_commit(url: &str) -> Outcome<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .envs([("SHOP_CHILD", url), ("KILL_BEFORE_COMMIT", "1")])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let line = BufReader::new(output).lines().next().ok_or("the child ended early")??;
    println!("child: {line}");
    child.kill()?;
    child.wait()?;
    println!("killed");
    Ok(())
}

/// The server of `DATABASE_URL`, or a private one that ends with this program.
struct Server {
    url: String,
    #[cfg(unix)]
    _private: Option<tidelock_pgserver::Server>,
}

impl Server {
    #[cfg(unix)]
    fn find() -> Outcome<Option<Self>> {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            return Ok(Some(Self { url, _private: None }));
        }
        if tidelock_pgserver::find().is_none() {
            return Ok(None);
        }
        let options =
            tidelock_pgserver::PgServerOptions { durable: false, install: false, ..Default::default() };
        let private = tidelock_pgserver::Server::start(&options)?;
        Ok(Some(Self { url: private.url(), _private: Some(private) }))
    }

    #[cfg(not(unix))]
    fn find() -> Outcome<Option<Self>> {
        Ok(std::env::var("DATABASE_URL").ok().map(|url| Self { url }))
    }
}

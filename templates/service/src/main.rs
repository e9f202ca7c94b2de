//! {{project-name}}: state, a durable workflow, a schedule and the inspector in one process.
//!
//! `cargo run` listens on 127.0.0.1:3000 and stores its data in `app.db`. `TIDELOCK_STORE` names another store, for example
//! `postgres://USER:PASSWORD@HOST/DATABASE`.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Extension, Router};
use tidelock::prelude::*;
use tidelock::server::ServerOptions;

const ORDER: Workflow<u32, String> = Workflow::new("order");

/// The workflow of an order. A crash re-runs at most the step in flight, with the same key.
async fn order(cx: &Ctx, count: u32) -> Result<String, Failure> {
    let charge =
        cx.step("charge", async |step| Ok(format!("{count} apples charged as {}", step.key()))).await?;
    cx.sleep(Duration::from_secs(10)).await?; // also across restarts
    let parcel = cx.step("ship", async |step| Ok(format!("shipped as {}", step.key()))).await?;
    Ok(format!("{charge}, {parcel}"))
}

/// Counts a visit of a page.
async fn visit(State(tide): State<Tidelock>, Path(page): Path<String>) -> Result<String, tidelock::Error> {
    let visits = tide.state::<u64>(("visits", page));
    let counted = visits.mutate(|count| {
        *count += 1;
        *count
    });
    Ok(counted.await?.result.to_string())
}

/// Starts an order. The start and the response are one commit, once for each `Idempotency-Key`, which is the id of the run.
async fn place(
    State(tide): State<Tidelock>,
    Extension(once): Extension<Reservation>,
    Path(count): Path<u32>,
) -> Result<(), tidelock::Error> {
    let (run, start) = tide.start(ORDER, &count).id(once.key()).batch()?;
    once.commit(start, StoredResponse::new(202).text(run)).await?;
    Ok(())
}

/// Waits for the result of an order.
async fn result(State(tide): State<Tidelock>, Path(id): Path<String>) -> Result<String, tidelock::Error> {
    Ok(tide.runs().handle(ORDER, &id).result().await?)
}

/// Writes a report every night. The document and the record of the firing are one commit.
fn report(tide: &Tidelock) -> Schedule {
    let visits = tide.state::<u64>(("visits", "home"));
    Schedule::new("report").cron("30 2 * * *").zone("UTC").run(move |tick| {
        let visits = visits.clone();
        async move {
            let report = ("report", tick.key()).into_key()?;
            Ok(Batch::new().put(&report, Expect::Absent, Payload::of(&visits.get().await?)?))
        }
    })
}

/// Everything that runs in this process.
fn service(tide: &Tidelock) -> Service {
    tide.service().workflow(ORDER, order).schedule(report(tide))
}

fn routes(tide: &Tidelock) -> Router {
    Router::new()
        .route("/orders/{count}", post(place).layer(tide.idempotency().required()))
        .route("/orders/{id}/result", get(result))
        .route("/visits/{page}", post(visit))
        .with_state(tide.clone())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init();
    let url = std::env::var("TIDELOCK_STORE").unwrap_or_else(|_| "sqlite:app.db".to_owned());
    let tide = Tidelock::open(&url).await?;
    let service = service(&tide).start().await?;

    // The inspector shows every row of the store. Put your authentication in front of it before you listen on another address.
    let inspector = service.inspector(ServerOptions::behind_own_auth());
    let app = routes(&tide).nest("/tidelock", inspector);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://127.0.0.1:3000, inspector on http://127.0.0.1:3000/tidelock/ui/");
    axum::serve(listener, app).with_graceful_shutdown(service.stopped()).await?; // Ctrl-C or SIGTERM

    service.shutdown().await;
    tide.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn an_order_is_charged_and_shipped() -> Result<(), tidelock::Error> {
        let clock = Arc::new(ManualClock::default());
        let tide = Tidelock::from(MemoryStore::with_clock(clock.clone()));
        let service = service(&tide).skip_time(clock).start().await?; // the ten seconds pass at once
        let run = tide.start(ORDER, &3).id("order-1").await?;
        assert_eq!(run.result().await?, "3 apples charged as order-1:charge, shipped as order-1:ship");
        service.shutdown().await;
        Ok(())
    }
}

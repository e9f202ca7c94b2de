//! A whole service on one handle: state, an aggregate with a typed reaction, a workflow, a schedule, an outbox, an idempotent
//! POST, and the inspector.
//!
//! `cargo run -p tidelock-examples --example 13_service`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tidelock::outbox::Message;
use tidelock::prelude::*;
use tidelock::server::Options;

#[derive(Clone, Default)]
struct Stock {
    left: u32,
}

#[derive(Serialize, Deserialize)]
enum StockEvent {
    Received(u32),
    Reserved(u32),
}

impl Aggregate for Stock {
    const KIND: &'static str = "stock";
    type Event = StockEvent;

    fn apply(&mut self, event: &StockEvent) {
        match event {
            StockEvent::Received(count) => self.left += count,
            StockEvent::Reserved(count) => self.left -= count,
        }
    }
}

const SHIP: Workflow<u32, String> = Workflow::new("ship");
const MAILS: Outbox = Outbox::new("mails");

/// A crash re-runs at most the step in flight, with the same key.
async fn ship(cx: &Ctx, count: u32) -> Result<String, Failure> {
    let parcel = cx.step("pack", async |step| Ok(format!("{count} apples, {}", step.key()))).await?;
    cx.sleep(Duration::from_millis(10)).await?;
    Ok(parcel)
}

/// Reserves apples once per Idempotency-Key, and starts the run that ships them.
async fn reserve(
    State(tide): State<Tidelock>,
    Path(count): Path<u32>,
) -> Result<Json<String>, tidelock::Error> {
    let decide = |stock: &Stock| {
        if stock.left < count {
            Err(format!("only {} left", stock.left))
        } else {
            Ok([StockEvent::Reserved(count)])
        }
    };
    tide.aggregate::<Stock>("apples").execute(decide).await?;
    let run = tide.start(SHIP, &count).await?;
    Ok(Json(run.result().await?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let tide = Tidelock::open(&format!("sqlite:{}", file.path().display())).await?;

    let service = tide
        .service()
        .workflow(SHIP, ship)
        .reaction(Reaction::of::<Stock>("mail").on(["Reserved"]).each(|_, id, _| async move {
            Ok(MAILS.put(Batch::new(), &Message::new("ann@example.com", &format!("{id} reserved"))?)?)
        }))
        .schedule(Schedule::new("report").cron("@daily").run(|_| async { Ok(()) }))
        .outbox(MAILS, |mail: Delivery| async move {
            println!("mail to {}: {}", mail.destination(), mail.payload());
            Ok(())
        })
        .start()
        .await?;
    let app = Router::new()
        .route("/reserve/{count}", post(reserve))
        .layer(tide.idempotency())
        .with_state(tide.clone())
        .nest("/tidelock", service.inspector(Options::behind_own_auth()));

    // A program would listen until a signal: `axum::serve(listener, app).with_graceful_shutdown(service.stopped())`.
    tide.aggregate::<Stock>("apples").append([StockEvent::Received(5)]).await?;
    let first = request(&app, "order-1", 2).await?;
    let again = request(&app, "order-1", 2).await?; // the same key: the stored response
    assert_eq!(first, again);
    let (status, body) = request(&app, "order-2", 9).await?;
    println!("{} {}\n{status} {body}", first.0, first.1);
    assert_eq!(status, 422);
    service.idle().await?;
    assert_eq!(tide.aggregate::<Stock>("apples").load().await?.state.left, 3);
    println!("{:?}", service.shutdown().await.outboxes);
    Ok(())
}

/// Sends a request to the router, as a client would over HTTP.
async fn request(app: &Router, key: &str, count: u32) -> Result<(u16, String), Box<dyn std::error::Error>> {
    use tower::ServiceExt as _;
    let request = axum::http::Request::post(format!("/reserve/{count}")).header("idempotency-key", key);
    let response = app.clone().oneshot(request.body(axum::body::Body::empty())?).await?;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 64 * 1024).await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

//! A whole service on one handle: an aggregate with a typed reaction, a workflow, a schedule, an outbox, an idempotent POST, and
//! the inspector.
//!
//! `cargo run -p tidelock-examples --example service` sends itself three requests and ends. With `-- ADDRESS`, for example
//! `-- 127.0.0.1:3000`, it serves them and the inspector under `/tidelock/ui/` until Ctrl-C or SIGTERM.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Extension, Router};
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::server::ServerOptions;

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

impl Stock {
    fn reserve(&self, count: u32) -> Result<[StockEvent; 1], String> {
        if self.left < count {
            Err(format!("only {} left", self.left))
        } else {
            Ok([StockEvent::Reserved(count)])
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

/// Reserves apples and starts the run that ships them. Both and the response are one commit, once for each Idempotency-Key.
async fn order(
    State(tide): State<Tidelock>,
    Extension(once): Extension<Reservation>,
    Path(count): Path<u32>,
) -> Result<(), tidelock::Error> {
    let reserved = tide.aggregate::<Stock>("apples").decide(|stock| stock.reserve(count)).await?;
    let (run, started) = tide.start(SHIP, &count).id(once.key()).batch()?;
    once.commit(reserved.and(started), StoredResponse::new(202).text(run)).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let tide = Tidelock::open(&directory.path().join("shop.db").display().to_string()).await?;

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
        .route("/orders/{count}", post(order))
        .layer(tide.idempotency().required())
        .with_state(tide.clone())
        .nest("/tidelock", service.inspector(ServerOptions::behind_own_auth()));

    tide.aggregate::<Stock>("apples").append([StockEvent::Received(5)]).await?;
    if let Some(address) = std::env::args().nth(1) {
        let listener = tokio::net::TcpListener::bind(address).await?;
        axum::serve(listener, app).with_graceful_shutdown(service.stopped()).await?;
    } else {
        let first = request(&app, "order-1", 2).await?;
        assert_eq!(first, request(&app, "order-1", 2).await?); // the same key: the stored response
        assert_eq!(first, (202, "order-1".to_owned()));
        let refused = request(&app, "order-2", 9).await?;
        println!("{first:?}\n{refused:?}");
        assert_eq!(refused.0, 422);
        service.idle().await?;
        println!("shipped: {}", tide.runs().handle(SHIP, "order-1").result().await?);
        assert_eq!(tide.aggregate::<Stock>("apples").load().await?.state.left, 3);
    }
    println!("{:?}", service.shutdown().await.outboxes);
    Ok(())
}

/// Sends a request to the router, as a client would over HTTP.
async fn request(app: &Router, key: &str, count: u32) -> Result<(u16, String), Box<dyn std::error::Error>> {
    use tower::ServiceExt as _;
    let request = axum::http::Request::post(format!("/orders/{count}")).header("idempotency-key", key);
    let response = app.clone().oneshot(request.body(axum::body::Body::empty())?).await?;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 64 * 1024).await?;
    Ok((status, String::from_utf8(body.to_vec())?))
}

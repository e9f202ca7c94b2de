//! Idempotency keys with axum: a client may repeat an order, and gets one order, one mail, and the same response each time.
//!
//! One batch commits the effect, the stored response and the outgoing mail (transactional outbox). Run it without arguments: it sends the
//! same request four times concurrently, then the same key with another order, and prints the results.
//!
//! `cargo run -p tidelock-examples --example 12_idempotent_axum`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use tidelock::edge::http::{IdempotencyLayer, Problem};
use tidelock::edge::{Answer, Reservation};
use tidelock::outbox::{Delivery, Message, Outbox, Sender};
use tidelock::prelude::*;
use tower::ServiceExt as _;

const MAILS: Outbox = Outbox::new("mails");

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[derive(Serialize)]
struct Placed<'a> {
    number: &'a str,
    item: &'a str,
}

/// Returns the key of the document that counts the orders.
fn ordered() -> Result<Key, Problem> {
    Ok(Key::single("ordered")?)
}

/// Places an order. The handler runs once for each idempotency key. Repeated requests get the committed response, now and later.
async fn place(
    Extension(once): Extension<Reservation>,
    Json(order): Json<Order>,
) -> Result<&'static str, Problem> {
    let effect = Batch::new().merge_or_create(
        &ordered()?,
        Payload::from_json(r#"{"orders": 0, "items": 0}"#)?,
        [Delta::inc("/orders", 1), Delta::inc("/items", i64::from(order.count))],
    );
    let mail = Message::new("ada@example.com", &order)?.id(once.key());
    let effect = MAILS.put(effect, &mail)?;
    let placed = Placed { number: once.key(), item: &order.item };
    once.commit(effect, Answer::new(201).header("location", "/orders").json(&placed)?).await?;
    Ok("what was committed is the answer")
}

async fn show(State(store): State<SharedStore>) -> Result<String, Problem> {
    let document = store.document(&ordered()?).await?;
    Ok(document.map_or_else(String::new, |document| document.value.to_string()))
}

fn app(store: &SharedStore) -> Router {
    // The layer applies only to the routes above it.
    let once = IdempotencyLayer::new(store).required().wait(std::time::Duration::from_secs(5));
    Router::new()
        .route("/orders", post(place))
        .layer(once)
        .route("/orders", get(show))
        .with_state(store.clone())
}

fn request(item: &str) -> Result<axum::extract::Request, axum::http::Error> {
    let body = format!(r#"{{"item": "{item}", "count": 3}}"#);
    axum::http::Request::post("/orders")
        .header("content-type", "application/json")
        .header("idempotency-key", "order-17")
        .body(body.into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let app = app(&store);

    // Four concurrent requests, as an impatient client or a retrying proxy sends them.
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        clients.spawn(app.clone().oneshot(request("apples")?));
    }
    while let Some(answer) = clients.join_next().await {
        let answer = answer??;
        let again = answer.headers().contains_key("idempotency-replayed");
        println!("{}, {}", answer.status(), if again { "stored" } else { "run" });
    }

    // The same key with another payload.
    let other = app.clone().oneshot(request("pears")?).await?;
    println!("{}", other.status());

    let seen = app.oneshot(axum::http::Request::get("/orders").body(axum::body::Body::empty())?).await?;
    let seen = axum::body::to_bytes(seen.into_body(), 1_000).await?;
    println!("ordered: {}", String::from_utf8_lossy(&seen));

    // The mail was committed with the order. A sender delivers it, here or in another process.
    let (sent, mut received) = tokio::sync::mpsc::unbounded_channel();
    let deliver = move |mail: Delivery| {
        let sent = sent.clone();
        async move {
            let line = format!("mail {} to {}: {}", mail.key(), mail.destination(), mail.payload());
            sent.send(line).map_err(|_| Failure::new("nobody reads"))
        }
    };
    let sending = Sender::new(store, MAILS, deliver).start().await?;
    println!("{}", received.recv().await.ok_or("no mail")?);
    sending.shutdown().await;
    Ok(())
}

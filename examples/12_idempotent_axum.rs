//! Idempotency keys with axum: a client may repeat an order, and gets one order, one mail, and the same response each time. One
//! batch commits the effect, the stored response and the outgoing mail (transactional outbox).
//!
//! `cargo run -p tidelock-examples --example 12_idempotent_axum`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tower::ServiceExt as _;

const MAILS: Outbox = Outbox::new("mails");

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

/// Places an order once for each key. Repeated requests get the committed response, also after a restart.
async fn place(
    Extension(once): Extension<Reservation>,
    Json(order): Json<Order>,
) -> Result<(), tidelock::Error> {
    let empty = Payload::from_json(r#"{"orders": 0, "items": 0}"#)?;
    let counts = [Delta::inc("/orders", 1), Delta::inc("/items", i64::from(order.count))];
    let effect = Batch::new().merge_or_create(&"ordered".into_key()?, empty, counts);
    let effect = MAILS.put(effect, &Message::new("ada@example.com", &order)?.id(once.key()))?;
    once.commit(effect, StoredResponse::new(201).text(format!("order {}", once.key()))).await?;
    Ok(())
}

fn request(item: &str) -> Result<axum::extract::Request, axum::http::Error> {
    let request = axum::http::Request::post("/orders").header("idempotency-key", "order-17");
    let body = format!(r#"{{"item": "{item}", "count": 3}}"#);
    request.header("content-type", "application/json").body(body.into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tide = Tidelock::open("memory:").await?;
    let layer = tide.idempotency().required().wait(std::time::Duration::from_secs(5));
    let app: Router = Router::new().route("/orders", post(place)).layer(layer);

    // Four concurrent requests, as an impatient client or a retrying proxy sends them.
    let (mut clients, mut stored) = (tokio::task::JoinSet::new(), 0);
    for _ in 0..4 {
        clients.spawn(app.clone().oneshot(request("apples")?));
    }
    while let Some(response) = clients.join_next().await {
        let response = response??;
        assert_eq!(response.status(), 201);
        stored += usize::from(response.headers().contains_key("idempotency-replayed"));
    }
    println!("four requests: {} run, {stored} stored responses", 4 - stored);
    let other = app.oneshot(request("pears")?).await?; // the same key with another payload
    assert_eq!((stored, other.status().as_u16()), (3, 422));
    let ordered = tide.store().document(&"ordered".into_key()?).await?.ok_or("no order")?.value;
    println!("ordered: {ordered}");
    assert!(ordered.as_str().contains(r#""orders":1"#));

    // The mail was committed with the order. A service delivers it, here or in another process.
    let deliver = |mail: Delivery| async move {
        println!("mail {} to {}: {}", mail.key(), mail.destination(), mail.payload());
        Ok(())
    };
    let service = tide.service().outbox(MAILS, deliver).start().await?;
    service.idle().await?;
    println!("{:?}", service.shutdown().await.outboxes);
    Ok(())
}

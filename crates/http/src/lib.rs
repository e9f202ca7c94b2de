//! `Idempotency-Key` for any HTTP stack on [tower], and signed webhooks in and out, on a Tidelock store.
//!
//! A client that gets no response sends its request again, with the same `Idempotency-Key`. [`IdempotencyLayer`] runs
//! the first request, and gives its response to the duplicates, also after a restart, and on every instance that uses
//! the store. The engine beneath is [`tidelock_core::idempotency`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::routing::post;
//! use axum::{Extension, Router};
//! use tidelock_core::idempotency::{StoredResponse, Reservation};
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::store::{Batch, Delta, MemoryStore, SharedStore};
//! use tidelock_http::{IdempotencyLayer, Problem};
//! use tower::ServiceExt as _;
//!
//! // The effect and its answer are one commit.
//! async fn order(Extension(once): Extension<Reservation>) -> Result<(), Problem> {
//!     let count = Batch::new().merge_or_create(
//!         &Key::single("orders")?,
//!         Payload::from_json(r#"{"n": 0}"#)?,
//!         [Delta::inc("/n", 1)],
//!     );
//!     once.commit(count, StoredResponse::new(201).text("ordered")).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let app: Router = Router::new().route("/orders", post(order)).layer(IdempotencyLayer::new(&store).required());
//!
//! for _ in 0..2 {
//!     let request = http::Request::post("/orders").header("idempotency-key", "17").body(axum::body::Body::empty())?;
//!     assert_eq!(app.clone().oneshot(request).await?.status(), 201);
//! }
//! let count = store.document(&Key::single("orders")?).await?.ok_or("no orders")?;
//! assert_eq!(count.value, Payload::from_json(r#"{"n": 1}"#)?);
//! # Ok(())
//! # }
//! ```
//!
//! # What a request is answered
//!
//! | the request | status | code |
//! |---|---|---|
//! | is the first with its key | what the handler answers | |
//! | was answered before | the stored answer, with `Idempotency-Replayed: true` | |
//! | was answered before with something that was too large to keep | 409 | TL1214 |
//! | has a key that is in flight | 409 with `Retry-After`, or the answer when it is there, by [policy](IdempotencyLayer::wait) | TL1202 |
//! | has the key of another request | 422 | TL1211 |
//! | has no key, and needs one | 400 | TL1212 |
//! | has a key that is none | 400 | TL1201 |
//! | has a larger body than is read | 413 | TL1213 |
//!
//! Rejections are `application/problem+json` with the code.
//!
//! # Order of layers
//!
//! Any caller that knows a key gets its response. So put authentication outside this layer, and separate the keys of
//! different callers by [`IdempotencyLayer::scope`]. Put compression outside it as well: the layer stores the handler's
//! own response.
//!
//! [tower]: https://docs.rs/tower

mod answer;
mod body;
mod error;
mod key;
mod layer;
mod problem;
mod service;
pub mod webhook;

pub use answer::REPLAYED;
pub use error::RequestError;
pub use key::IDEMPOTENCY_KEY;
pub use layer::IdempotencyLayer;
pub use problem::{Problem, Reply};
pub use service::IdempotencyService;

//! Idempotency keys for requests that may arrive twice. [`Idempotency`] lets one of them run and returns its response
//! to the others.
//!
//! A client that gets no response sends its request again under the same key. The first request with a key
//! [reserves](Idempotency::reserve) it and runs. Its [`StoredResponse`] is stored as a document for the configured time, so it
//! survives restarts and is shared by all processes on the store. A duplicate that arrives while the first request is
//! in flight gets [`ReserveOutcome::InFlight`]. One with a different payload gets [`ReserveOutcome::OtherPayload`].
//!
//! The reservation is a leased row. It is renewed while its process lives, however long the request takes, and expires
//! when the process dies. So there is no timeout to guess. [`Reservation::commit`] applies the effects of a request and
//! its response in one batch under the fencing token of that lease: both or neither, once.
//!
//! This module does not depend on HTTP. `tidelock-http` provides the HTTP layer.
//!
//! ```
//! use std::sync::Arc;
//! use tidelock_core::idempotency::{StoredResponse, Fingerprint, Idempotency, ReserveOutcome};
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::store::{Batch, Expect, MemoryStore, SharedStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let once = Idempotency::new(&store);
//! let request = Fingerprint::of([b"order".as_slice(), b"3 apples"]);
//!
//! let ReserveOutcome::Run(reservation) = once.reserve("shop-1", "order-17", &request).await? else { return Err("it is new".into()) };
//! let effect = Batch::new().put(&Key::new("order", ["17"])?, Expect::Absent, Payload::of("3 apples")?);
//! reservation.commit(effect, StoredResponse::new(201).text("ordered")).await?;
//!
//! // The same again, here or in another process, now or after a restart.
//! let ReserveOutcome::Stored(answer) = once.reserve("shop-1", "order-17", &request).await? else { return Err("it ran".into()) };
//! assert_eq!((answer.status, answer.body.as_slice()), (201, b"ordered".as_slice()));
//! # Ok(())
//! # }
//! ```

mod client;
mod error;
mod fingerprint;
mod keys;
mod record;
mod reservation;
mod response;
mod view;

pub use client::{DEFAULT_TTL, Idempotency, InFlight, ReserveOutcome};
pub use error::IdempotencyError;
pub use fingerprint::Fingerprint;
pub use keys::{MAX_KEY_BYTES, MAX_SCOPE_BYTES};
pub use record::StorePolicy;
pub use reservation::Reservation;
pub use response::{MAX_BODY_BYTES, MAX_HEADERS_BYTES, StoredResponse};
pub use view::{IdempotencyKeyState, IdempotencyKeyView};

#[cfg(test)]
pub(crate) mod error_pages_tests;
#[cfg(test)]
mod tests;

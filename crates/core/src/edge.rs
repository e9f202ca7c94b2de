//! Idempotency keys for requests that may arrive twice. [`Idempotency`] lets one of them run and returns its response
//! to the others.
//!
//! A client that gets no response sends its request again under the same key. The first request with a key
//! [reserves](Idempotency::reserve) it and runs. Its [`Answer`] is stored as a document for the configured time, so it
//! survives restarts and is shared by all processes on the store. A duplicate that arrives while the first request is
//! in flight gets [`Reserved::InFlight`]. One with a different payload gets [`Reserved::OtherPayload`].
//!
//! The reservation is a leased row. It is renewed while its process lives, however long the request takes, and expires
//! when the process dies. So there is no timeout to guess. [`Reservation::commit`] applies the effects of a request and
//! its response in one batch under the fencing token of that lease: both or neither, once.
//!
//! This module does not depend on HTTP. `tidelock-edge` provides the HTTP layer.
//!
//! ```
//! use std::sync::Arc;
//! use tidelock_core::edge::{Answer, Fingerprint, Idempotency, Reserved};
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
//! let Reserved::Run(reservation) = once.reserve("shop-1", "order-17", &request).await? else { return Err("it is new".into()) };
//! let effect = Batch::new().put(&Key::new("order", ["17"])?, Expect::Absent, Payload::of("3 apples")?);
//! reservation.commit(effect, Answer::new(201).text("ordered")).await?;
//!
//! // The same again, here or in another process, now or after a restart.
//! let Reserved::Stored(answer) = once.reserve("shop-1", "order-17", &request).await? else { return Err("it ran".into()) };
//! assert_eq!((answer.status, answer.body.as_slice()), (201, b"ordered".as_slice()));
//! # Ok(())
//! # }
//! ```

mod answer;
mod error;
mod fingerprint;
mod idempotency;
mod names;
mod record;
mod reservation;
mod view;

pub use answer::{Answer, MAX_BODY_BYTES, MAX_HEADERS_BYTES};
pub use error::EdgeError;
pub use fingerprint::Fingerprint;
pub use idempotency::{DEFAULT_TTL, Idempotency, InFlight, Reserved};
pub use names::{MAX_KEY_BYTES, MAX_SCOPE_BYTES};
pub use record::Kept;
pub use reservation::Reservation;
pub use view::{KeyState, KeyView};

#[cfg(test)]
pub(crate) mod pages_tests;
#[cfg(test)]
mod tests;

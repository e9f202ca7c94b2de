//! Distributed leases: exclusive ownership of a key across processes. [`request`] a key, work, [`release`](LeaseGuard::release)
//! it.
//!
//! A lease is a `work` row in a separate queue. Only the store's clock decides when it expires, and the fencing token
//! decides whose writes count. The holder uses its own monotonic clock, by which the lease ends a margin earlier. So
//! its [`token`](LeaseGuard::token) fires before another process can own the lease. One thread of the process renews all
//! leases and does nothing else. Neither a blocked executor nor thousands of waiters can therefore cause the loss of a
//! lease.
//!
//! [Waiters](LeaseRequest::acquire) queue in the store, in the order of arrival over all processes, and the queue is visible
//! there. The leases and queue entries of a process that dies expire.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidelock_core::key::Key;
//! use tidelock_core::lease;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::store::{Batch, Expect, MemoryStore, SharedStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let nightly = Key::new("report", ["nightly"])?;
//!
//! let held = lease::request(&store, &nightly).ttl(Duration::from_secs(30)).try_acquire().await?;
//! let write = Batch::new().put(&nightly, Expect::Any, Payload::of(&42)?);
//! store.apply(held.guard(write)?).await?; // rejected if another holder has the lease by then
//! held.release().await?;
//! # Ok(())
//! # }
//! ```

mod acquire;
mod background;
mod error;
mod guard;
mod keys;
mod local_queue;
mod registry;
mod request;
mod row;
mod view;
mod wait_queue;

pub use crate::worker::{DEFAULT_TTL, LostReason, MAX_TTL, MIN_TTL};
pub use error::LeaseError;
pub use guard::LeaseGuard;
pub use keys::{queue, row_of};
pub use request::{LeaseRequest, request};
pub use row::Stolen;
pub use view::{LeaseView, LeaseWaiter, list, view};

pub(crate) use background::run as in_background;
pub(crate) use row::NEVER;

#[cfg(test)]
mod tests;

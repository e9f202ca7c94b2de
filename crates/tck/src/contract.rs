//! Cases of the store contract, for every backend. They use [`Store`](tidelock_core::store::Store) and housekeeping, and no engine.

pub mod bounds;
pub mod events;
pub mod exact;
pub mod expiry;
pub mod idempotency;
pub mod lease;
pub mod limits;
pub mod operators;
pub mod order;
pub mod paging;
pub mod processes;
pub mod properties;
pub mod reactions;
pub mod reads;
pub mod repeat;
pub mod resolve;
pub mod runtime_state;
pub mod schedules;
pub mod state;
pub mod store;
pub mod truncation;
pub mod workflow;

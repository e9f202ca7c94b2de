//! Event-sourced aggregates: state that is the fold of its events. It changes only by commands whose rules hold at the
//! commit.
//!
//! [`Events::execute`] loads an aggregate, lets a command decide on it, and appends the resulting events at the version
//! of the decision (optimistic concurrency). This also holds for a new stream. If a concurrent writer was faster, the
//! command decides again on the newer state.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::events::{Aggregate, Events};
//! use tidelock_core::store::MemoryStore;
//!
//! #[derive(Clone, Default)]
//! struct Stock {
//!     left: u32,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! enum StockEvent {
//!     Received { count: u32 },
//!     Reserved { order: String, count: u32 },
//! }
//!
//! impl Aggregate for Stock {
//!     const KIND: &'static str = "stock";
//!     type Event = StockEvent;
//!
//!     fn apply(&mut self, event: &StockEvent) {
//!         match event {
//!             StockEvent::Received { count } => self.left += count,
//!             StockEvent::Reserved { count, .. } => self.left -= count,
//!         }
//!     }
//! }
//!
//! impl Stock {
//!     fn reserve(&self, order: &str, count: u32) -> Result<Vec<StockEvent>, String> {
//!         if count > self.left {
//!             return Err(format!("only {} left", self.left));
//!         }
//!         Ok(vec![StockEvent::Reserved { order: order.to_owned(), count }])
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let events = Events::new(Arc::new(MemoryStore::new()));
//! events.append::<Stock>("apples", [StockEvent::Received { count: 3 }]).await?;
//! let done = events.execute("apples", |stock: &Stock| stock.reserve("o-1", 2)).await?;
//! assert_eq!(done.state.left, 1);
//! let refused = events.execute("apples", |stock: &Stock| stock.reserve("o-2", 2)).await;
//! assert_eq!(refused.err().map(|e| e.to_string()).as_deref(), Some("only 1 left"));
//! # Ok(())
//! # }
//! ```

mod aggregate;
mod as_of;
mod cache;
mod codec;
mod error;
mod execute;
mod fairness;
pub mod fixture;
mod inline;
mod json;
mod load;
mod metadata;
mod schema;
mod snapshot;
mod subscribe;
mod tags;
mod typed;
mod unit_of_work;
mod upcast;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use aggregate::{Aggregate, Executed, Loaded};
pub use as_of::AsOf;
pub use codec::{decode, encode, types_of};
pub use error::{EventsError, ExecuteError};
pub use json::EventJson;
pub use metadata::EventMetadata;
pub use schema::{EventSchema, UnknownEvents};
pub use subscribe::{StartFrom, Subscription, SubscriptionFilter};
pub use tags::{Tag, TaggedEvent};
pub use typed::{TypedEvent, TypedSubscription};
pub use unit_of_work::UnitOfWork;

pub(crate) use schema::stamped_shape;
pub(crate) use snapshot::begins_anew;
pub(crate) use typed::{EventDecoder, EventNames};
pub(crate) use upcast::Upcasters;

use crate::store::SharedStore;

/// Options of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsOptions {
    /// Maximum number of attempts of a command that loses to concurrent writers, the first one included: 100.
    pub attempts: u32,
    /// Timeout of these attempts: 30 seconds.
    pub limit: Duration,
    /// Approximate number of aggregates that are cached in memory: 4,096. With 0, none is cached.
    pub cached: usize,
}

impl Default for EventsOptions {
    fn default() -> Self {
        Self { attempts: 100, limit: Duration::from_secs(30), cached: 4_096 }
    }
}

/// The aggregates of a program in a store. Clones share their cache.
#[derive(Clone)]
pub struct Events {
    store: SharedStore,
    options: EventsOptions,
    context: EventMetadata,
    cache: Arc<cache::Cache>,
    snapshots: snapshot::Snapshots,
    inline: inline::Hooks,
}

impl Events {
    /// Creates a handle on the aggregates in this store.
    #[must_use]
    pub fn new(store: SharedStore) -> Self {
        Self::with_options(store, EventsOptions::default())
    }

    /// Creates a handle on the aggregates in this store, with options.
    #[must_use]
    pub fn with_options(store: SharedStore, options: EventsOptions) -> Self {
        let cache = Arc::new(cache::Cache::new(options.cached));
        Self {
            store,
            options,
            context: EventMetadata::default(),
            cache,
            snapshots: snapshot::Snapshots::default(),
            inline: inline::Hooks::default(),
        }
    }

    /// Returns a handle whose appended events carry this context: correlation, causation and notes.
    #[must_use]
    pub fn within(&self, context: EventMetadata) -> Self {
        Self { context, ..self.clone() }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.store
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, options, context, .. } = self;
        f.debug_struct("Events")
            .field("store", store)
            .field("options", options)
            .field("context", context)
            .finish_non_exhaustive()
    }
}

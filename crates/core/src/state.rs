//! Shared state that many tasks and processes change at once, without lost updates.
//!
//! A [`Scope`] names the owner of the state. A [`State`] holds one value of a serde type there, in memory or in a
//! store. Mutations run one after another in the order of arrival. In a store, mutations that wait together share one
//! write. The version of the record detects writes of other processes (optimistic concurrency), and a mutation that
//! lost runs again on the newer value.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::state::{Scope, StateRegistry};
//! use tidelock_core::store::MemoryStore;
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct Cart {
//!     items: Vec<String>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let states = StateRegistry::new(Arc::new(MemoryStore::new()));
//! let cart = states.state::<Cart>(&Scope::session("s-1"), "cart")?;
//! let count = cart.mutate(|cart| {
//!     cart.items.push("apples".to_owned());
//!     cart.items.len()
//! });
//! assert_eq!(count.await?.result, 1);
//! # Ok(())
//! # }
//! ```

mod codec;
mod combiner;
mod document;
mod error;
mod handle;
mod history;
mod memory;
mod mutation;
mod mutator;
mod observe;
mod patch;
mod quarantine;
mod reentry;
mod registry;
mod schema;
mod scope;
mod submit;
mod watch;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use document::{Document, Record, Transaction};
pub use error::{MutateError, Stage, StateError};
pub use handle::State;
pub use history::{
    HistoryChange, HistoryEntry, HistoryPage, history, history_batch, history_key, history_page,
};
pub use observe::{Change, Observer};
pub use quarantine::{Items, QuarantinedItem};
pub use schema::Schema;
pub use scope::{Scope, StateRegistry};
pub use watch::{WatchStream, versions};

use crate::id::DocVersion;

/// A type that a state can hold. A record that does not exist has the default value.
pub trait StateValue: Serialize + DeserializeOwned + Clone + Default + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Default + Send + Sync + 'static> StateValue for T {}

/// Options of mutations in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The timeout of a mutation, waiting included: 30 seconds. `None` for no timeout.
    pub limit: Option<Duration>,
    /// Maximum number of attempts that a mutation may lose to other writers. The default is `None`: no bound but the
    /// timeout.
    pub attempts: Option<u32>,
    /// Maximum number of mutations that share a write: 1,024.
    pub most: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self { limit: Some(Duration::from_secs(30)), attempts: None, most: 1_024 }
    }
}

/// The effect of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The value was written as this version.
    Committed {
        /// The version.
        version: DocVersion,
    },
    /// The value is unchanged, and the store has confirmed that this version is the newest.
    Unchanged {
        /// The version.
        version: DocVersion,
    },
}

impl WriteOutcome {
    /// Returns the version of the record after the mutation.
    #[must_use]
    pub fn version(self) -> DocVersion {
        match self {
            Self::Committed { version } | Self::Unchanged { version } => version,
        }
    }
}

/// The result of a mutation, with its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutated<R> {
    /// The result of the mutator in the run that was committed.
    pub result: R,
    /// The effect of the mutation.
    pub outcome: WriteOutcome,
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The version.
    pub version: DocVersion,
    /// The value.
    pub value: T,
}

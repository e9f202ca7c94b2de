//! Projections (read models): documents that are derived from events, for queries.
//!
//! A [`Projection`] is a function from an event to changes of rows, which are documents. It runs in one of two ways:
//!
//! - **In the same commit** as the events: [`Projection::inline`] passes it to [`Events`](crate::events::Events). A
//!   read after a command sees its result. Each command pays the cost.
//! - **After the commit**, exactly once: [`Projections`] runs it as a reaction. A row and the progress of the
//!   projection are one commit. It may lag behind, and it can be rebuilt.
//!
//! A projection that runs after the commit has a version. Increase it when the function changes. The new version is
//! built from the beginning of the log beside the current one, and replaces it in one step when it has caught up. Then
//! the rows of the old version are deleted. Readers use [`ReadModel`], which reads the old version until the switch and
//! the new version from then on.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tidelock_core::key::Key;
//! use tidelock_core::payload::Payload;
//! use tidelock_core::projections::{Projection, Projections, ReadModel};
//! use tidelock_core::store::{Batch, Delta, Expect, MemoryStore, NewEvent, SharedStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: SharedStore = Arc::new(MemoryStore::new());
//! let sold = Projection::new("sold", 1, |fact, rows| {
//!     let item: String = fact.payload.parse()?;
//!     rows.merge([item], &serde_json::json!({ "count": 0 }), [Delta::inc("/count", 1)])?;
//!     Ok(())
//! });
//! let running = Projections::new(Arc::clone(&store)).with(sold.on(["Sold"])).start().await?;
//!
//! let sale = NewEvent::new("Sold".parse()?, Payload::of(&"apples")?);
//! store.apply(Batch::new().append(&Key::new("sale", ["s-1"])?, Expect::Absent, [sale])).await?;
//! running.quiesce().await?; // for tests
//! let row: Option<serde_json::Value> = ReadModel::new(store, "sold").get(["apples"]).await?;
//! assert_eq!(row, Some(serde_json::json!({ "count": 1 })));
//! running.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod cutover;
mod engine;
mod error;
mod keys;
mod projection;
mod read;
mod typed;
mod watermark;

pub use engine::{ProjectionEngine, Projections};
pub use error::ProjectionsError;
pub use projection::{Projection, ProjectionEvent, Rows};
pub use read::{ReadModel, RowPage};
pub use typed::TypedProjection;
pub use watermark::Watermark;

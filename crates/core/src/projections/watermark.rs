//! Watermark of a read model in the user's own tables.

use serde::{Deserialize, Serialize};

use super::error::ProjectionsError;
use crate::id::{DocVersion, Position};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Expect, LogQuery, Store};

/// The log position of a read model in your own tables. It is a document that `apply_in` of the SQL stores writes in the
/// transaction that changes the tables. The rows and the position are one commit, so no event is projected twice or
/// skipped, even after a crash. If two processes project at once, the second is refused, and reads again.
///
/// The page *Projections* of the book has the complete loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    key: Key,
    position: Position,
    version: Option<DocVersion>,
}

#[derive(Serialize, Deserialize)]
struct StoredWatermark {
    position: Position,
}

impl Watermark {
    /// Reads the current watermark of a read model.
    ///
    /// # Errors
    /// Returns [`ProjectionsError`] when the name is invalid, or the store fails.
    pub async fn read(store: &dyn Store, name: &str) -> Result<Self, ProjectionsError> {
        let key = Key::new("tidelock.watermark", [name])?;
        let found = store.document(&key).await?;
        let kept = found.as_ref().map(|document| document.value.parse::<StoredWatermark>()).transpose()?;
        let position = kept.map_or(Position(0), |kept| kept.position);
        Ok(Self { key, position, version: found.map(|document| document.version) })
    }

    /// Returns the position up to which every event is in the tables.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the query for the events after it, for [`Store::read_log`].
    #[must_use]
    pub fn after(&self, limit: usize) -> LogQuery {
        LogQuery::after(self.position, limit)
    }

    /// Returns the batch that advances it, for `apply_in`. The batch is refused (TL0202) when another process was faster:
    /// roll back then.
    ///
    /// # Errors
    /// Returns [`ProjectionsError`] when the position cannot be encoded.
    pub fn moved_to(&self, position: Position) -> Result<Batch, ProjectionsError> {
        let expect = self.version.map_or(Expect::Absent, Expect::Exact);
        Ok(Batch::new().put(&self.key, expect, Payload::of(&StoredWatermark { position })?))
    }
}

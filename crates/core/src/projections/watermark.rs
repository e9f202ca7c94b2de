//! How far a read model has come that lives in the user's own tables.

use serde::{Deserialize, Serialize};

use super::error::ProjectionsError;
use crate::id::{DocVersion, Position};
use crate::key::Key;
use crate::payload::Payload;
use crate::store::{Batch, Expect, LogQuery, Store};

/// How far a read model in your own tables has come in the log: a document that is written in the transaction that changes
/// the tables, with `apply_in` of the SQL stores. So the rows and the position are one commit: nothing is projected twice, and
/// nothing is left out, whoever dies. If two processes project at once, the one that comes second is refused, and reads again.
///
/// The page *Projections* of the book has the whole loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermark {
    key: Key,
    position: Position,
    version: Option<DocVersion>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    position: Position,
}

impl Watermark {
    /// How far the read model of that name has come, by now.
    ///
    /// # Errors
    /// [`ProjectionsError`] when the name cannot be one, or the store fails.
    pub async fn read(store: &dyn Store, name: &str) -> Result<Self, ProjectionsError> {
        let key = Key::new("tidelock.watermark", [name])?;
        let found = store.document(&key).await?;
        let kept = found.as_ref().map(|document| document.value.parse::<Kept>()).transpose()?;
        let position = kept.map_or(Position(0), |kept| kept.position);
        Ok(Self { key, position, version: found.map(|document| document.version) })
    }

    /// Everything up to here is in the tables.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The events after it, for [`Store::read_log`].
    #[must_use]
    pub fn after(&self, limit: usize) -> LogQuery {
        LogQuery::after(self.position, limit)
    }

    /// The batch that moves it on, for `apply_in`. It is refused (TL0202) when somebody else was faster: roll back then.
    ///
    /// # Errors
    /// [`ProjectionsError`] when the position cannot be written.
    pub fn moved_to(&self, position: Position) -> Result<Batch, ProjectionsError> {
        let expect = self.version.map_or(Expect::Absent, Expect::Exact);
        Ok(Batch::new().put(&self.key, expect, Payload::of(&Kept { position })?))
    }
}

//! Readers: the rows of the version that is read, whichever that is.

use serde::de::DeserializeOwned;

use super::error::ProjectionsError;
use super::names::{self, Pointer};
use crate::key::{Arg, Key};
use crate::store::{Document, Page, SharedStore};

/// The rows of a projection, for reading.
#[derive(Clone, Debug)]
pub struct ReadModel {
    pub(super) store: SharedStore,
    pub(super) name: String,
    fixed: Option<u32>,
}

/// Some rows, in the order of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPage<R> {
    /// The version of the projection that they are of.
    pub version: u32,
    /// The rows, with the arguments that name them.
    pub rows: Vec<(Vec<Arg>, R)>,
    /// Whether there are more: go on after the name of the last one.
    pub more: bool,
}

impl ReadModel {
    /// The rows of the version that is read at the time.
    #[must_use]
    pub fn new(store: SharedStore, name: impl Into<String>) -> Self {
        Self { store, name: name.into(), fixed: None }
    }

    /// The rows of one version: of a projection that is [inline](super::Projection::inline), or of one that is being built.
    #[must_use]
    pub fn of_version(store: SharedStore, name: impl Into<String>, version: u32) -> Self {
        Self { store, name: name.into(), fixed: Some(version) }
    }

    /// The version that is read.
    ///
    /// # Errors
    /// [`ProjectionsError::Unknown`] when the projection was never started, and what the store says.
    pub async fn version(&self) -> Result<u32, ProjectionsError> {
        match self.fixed {
            Some(version) => Ok(version),
            None => Ok(self.pointer().await?.1.live),
        }
    }

    /// A row by its name; `None` when there is none.
    ///
    /// # Errors
    /// As [`version`](Self::version), and when the row is no `R`.
    pub async fn get<R: DeserializeOwned>(
        &self,
        row: impl IntoIterator<Item = impl Into<Arg>>,
    ) -> Result<Option<R>, ProjectionsError> {
        let args: Vec<Arg> = row.into_iter().map(Into::into).collect();
        let mut version = self.version().await?;
        loop {
            let found = self.store.document(&names::row(&self.name, version, &args)?).await?;
            if let Some(document) = found {
                return Ok(Some(document.value.parse()?));
            }
            // It may be missing because another version has taken its place.
            let now = self.version().await?;
            if now == version {
                return Ok(None);
            }
            version = now;
        }
    }

    /// Rows after a name, in the order of their names; from the first one with `None`. Each page is of one version, and a
    /// later page may be of a later one.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn rows<R: DeserializeOwned>(
        &self,
        after: Option<&[Arg]>,
        limit: usize,
    ) -> Result<RowPage<R>, ProjectionsError> {
        let mut version = self.version().await?;
        loop {
            let after = after.map(|args| names::row(&self.name, version, args)).transpose()?;
            let found =
                self.store.documents(&names::rows(&self.name, version), Page { after, limit }).await?;
            let now = self.version().await?;
            if now != version {
                version = now;
                continue;
            }
            let more = found.next.is_some();
            let rows = found.rows.iter().map(|row| Ok((row.key.args(), row.value.parse()?)));
            return Ok(RowPage { version, rows: rows.collect::<Result<_, ProjectionsError>>()?, more });
        }
    }

    /// What says which version is read.
    pub(super) async fn pointer(&self) -> Result<(Document, Pointer), ProjectionsError> {
        let key: Key = names::pointer(&self.name)?;
        let Some(document) = self.store.document(&key).await? else {
            return Err(ProjectionsError::Unknown { name: self.name.clone() });
        };
        let pointer = document.value.parse()?;
        Ok((document, pointer))
    }
}

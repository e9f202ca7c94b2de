//! Readers of a projection's live rows.

use serde::de::DeserializeOwned;

use super::error::ProjectionsError;
use super::keys::{self, Pointer};
use crate::key::{Arg, Key};
use crate::store::{Page, SharedStore, StoredDocument};

/// A reader of the rows of a projection.
#[derive(Clone, Debug)]
pub struct ReadModel {
    pub(super) store: SharedStore,
    pub(super) name: String,
    fixed: Option<u32>,
}

/// A page of rows, in the order of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPage<R> {
    /// The version of the projection that the rows belong to.
    pub version: u32,
    /// The rows, with the arguments of their keys.
    pub rows: Vec<(Vec<Arg>, R)>,
    /// Whether there are more rows: continue after the name of the last one.
    pub more: bool,
}

impl ReadModel {
    /// Creates a reader of the live version.
    #[must_use]
    pub fn new(store: SharedStore, name: impl Into<String>) -> Self {
        Self { store, name: name.into(), fixed: None }
    }

    /// Creates a reader of one version: of an [inline](super::Projection::inline) projection, or of one that is being
    /// built.
    #[must_use]
    pub fn of_version(store: SharedStore, name: impl Into<String>, version: u32) -> Self {
        Self { store, name: name.into(), fixed: Some(version) }
    }

    /// Returns the version that is read.
    ///
    /// # Errors
    /// Returns [`ProjectionsError::Unknown`] when the projection was never started, or the error of the store.
    pub async fn version(&self) -> Result<u32, ProjectionsError> {
        match self.fixed {
            Some(version) => Ok(version),
            None => Ok(self.pointer().await?.1.live),
        }
    }

    /// Returns a row by its name; `None` when it does not exist.
    ///
    /// # Errors
    /// Returns the errors of [`version`](Self::version), and an error when the row cannot be decoded as `R`.
    pub async fn get<R: DeserializeOwned>(
        &self,
        row: impl IntoIterator<Item = impl Into<Arg>>,
    ) -> Result<Option<R>, ProjectionsError> {
        let args: Vec<Arg> = row.into_iter().map(Into::into).collect();
        let mut version = self.version().await?;
        loop {
            let found = self.store.document(&keys::row(&self.name, version, &args)?).await?;
            if let Some(document) = found {
                return Ok(Some(document.value.parse()?));
            }
            // The row may be missing because another version has become live.
            let now = self.version().await?;
            if now == version {
                return Ok(None);
            }
            version = now;
        }
    }

    /// Returns rows after a name, in the order of their names; `None` starts with the first. Each page belongs to one
    /// version, and a later page may belong to a later version.
    ///
    /// # Errors
    /// Returns the errors of [`get`](Self::get).
    pub async fn rows<R: DeserializeOwned>(
        &self,
        after: Option<&[Arg]>,
        limit: usize,
    ) -> Result<RowPage<R>, ProjectionsError> {
        let mut version = self.version().await?;
        loop {
            let after = after.map(|args| keys::row(&self.name, version, args)).transpose()?;
            let found = self.store.documents(&keys::rows(&self.name, version), Page { after, limit }).await?;
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

    /// Reads the document that names the live version.
    pub(super) async fn pointer(&self) -> Result<(StoredDocument, Pointer), ProjectionsError> {
        let key: Key = keys::pointer(&self.name)?;
        let Some(document) = self.store.document(&key).await? else {
            return Err(ProjectionsError::Unknown { name: self.name.clone() });
        };
        let pointer = document.value.parse()?;
        Ok((document, pointer))
    }
}

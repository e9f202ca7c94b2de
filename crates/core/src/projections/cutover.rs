//! Swap of the live version, and deletion of old versions.

use std::sync::Arc;

use super::error::ProjectionsError;
use super::keys::{self, Pointer};
use super::read::ReadModel;
use crate::error::InvalidInput;
use crate::payload::Payload;
use crate::reactions::{Operator, ReactionsError};
use crate::store::{ApplyError, Batch, Expect, Page, Refusal};

/// The number of rows that are deleted at once.
const PAGE: usize = 1_000;

impl ReadModel {
    /// Makes a version live, if it is later than the live one and has caught up. The swap is atomic: readers see the old
    /// rows before it and the new rows after it. [`Projections`](super::Projections) calls this automatically.
    ///
    /// Returns `false` when this version, or a later one, was live already.
    ///
    /// # Errors
    /// Returns [`ProjectionsError::Behind`] when the version has not caught up. Returns [`ProjectionsError::Unknown`] when
    /// the projection was never started, or the error of the store.
    pub async fn swap_to(&self, version: u32) -> Result<bool, ProjectionsError> {
        loop {
            let (document, pointer) = self.pointer().await?;
            if pointer.live >= version {
                return Ok(false);
            }
            let behind = self.operator().behind(&keys::reaction(&self.name, version)).await?;
            if let Some(reason) = behind {
                let (name, live) = (self.name.clone(), pointer.live);
                return Err(ProjectionsError::Behind { name, version, live, reason });
            }
            let next = Payload::of(&Pointer { live: version, ..pointer })?;
            if self.put(Batch::new().put(&document.key, Expect::Exact(document.version), next)).await? {
                return Ok(true);
            }
        }
    }

    /// Deletes all versions below the live one in steps, even those that never became live. It deletes the progress of each
    /// version, then its rows. Returns the number of deleted rows. [`Projections`](super::Projections) calls this
    /// automatically.
    ///
    /// # Errors
    /// Returns [`ReactionsError::Running`] when a process still writes rows of one of them. Returns
    /// [`ProjectionsError::Unknown`] when the projection was never started, or the error of the store. Completed steps
    /// persist; call it again.
    pub async fn delete_old(&self) -> Result<u64, ProjectionsError> {
        let mut deleted = 0;
        loop {
            let (document, pointer) = self.pointer().await?;
            if pointer.cleared >= pointer.live {
                return Ok(deleted);
            }
            for reaction in self.operator().registered().await? {
                let version = keys::version_of(&self.name, &reaction);
                let old = |version: &u32| (pointer.cleared..pointer.live).contains(version);
                if let Some(version) = version.filter(old) {
                    deleted += self.delete_version_now(version).await?;
                }
            }
            let next = Payload::of(&Pointer { cleared: pointer.live, ..pointer })?;
            self.put(Batch::new().put(&document.key, Expect::Exact(document.version), next)).await?;
        }
    }

    /// Deletes a version that is not live, such as an abandoned build. The version cannot be restored; build the next
    /// number instead. Returns the number of deleted rows.
    ///
    /// # Errors
    /// Returns [`ProjectionsError::Invalid`] when the version is live, and [`ReactionsError::Running`] when a process still
    /// writes its rows. Returns [`ProjectionsError::Unknown`] when the projection was never started, or the error of the
    /// store.
    pub async fn delete_version(&self, version: u32) -> Result<u64, ProjectionsError> {
        if self.pointer().await?.1.live == version {
            let reason = format!("version {version} is the one that is read; build another one first");
            return Err(InvalidInput::name("the version to delete", &self.name, reason).into());
        }
        self.delete_version_now(version).await
    }

    async fn delete_version_now(&self, version: u32) -> Result<u64, ProjectionsError> {
        match self.operator().end_reaction(&keys::reaction(&self.name, version)).await {
            Ok(_) | Err(ReactionsError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.delete_rows(version).await
    }

    async fn delete_rows(&self, version: u32) -> Result<u64, ProjectionsError> {
        let (range, mut deleted) = (keys::rows(&self.name, version), 0);
        loop {
            let found = self.store.documents(&range, Page::first(PAGE)).await?.rows;
            if found.is_empty() {
                return Ok(deleted);
            }
            deleted += found.len() as u64;
            let rows = found.iter();
            let batch = rows.fold(Batch::new(), |batch, row| batch.delete(&row.key, Expect::Any));
            self.store.apply(batch).await?;
        }
    }

    /// Applies a batch. Returns `false` when a document was not as expected.
    pub(super) async fn put(&self, batch: Batch) -> Result<bool, ProjectionsError> {
        match self.store.apply(batch).await {
            Ok(_) => Ok(true),
            Err(ApplyError::Refused(refusal)) if matches!(*refusal, Refusal::Document { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn operator(&self) -> Operator {
        Operator::new(Arc::clone(&self.store))
    }
}

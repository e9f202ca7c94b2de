//! Sweeping: removes rows that are invisible to every reader, in one commit. The same commit raises the floor above the
//! deleted versions.

use tidelock_core::id::DocVersion;
use tidelock_core::model::rows::DocumentRow;
use tidelock_core::store::{StoreError, Sweep, Swept};

use crate::directory::{Change, Folder};
use crate::journal;
use crate::session::{self, Marker, Session};

impl Session<'_> {
    /// Executes a sweep. The session holds the exclusive lock.
    pub(crate) fn sweep(&self, sweep: &Sweep) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let mut changes = Vec::new();
        self.sweep_documents(sweep, &mut swept, &mut changes)?;
        self.sweep_operations(sweep, &mut swept, &mut changes)?;
        journal::commit(self.disk, &changes)?;
        Ok(swept)
    }

    fn sweep_documents(
        &self,
        sweep: &Sweep,
        swept: &mut Swept,
        changes: &mut Vec<Change>,
    ) -> Result<(), StoreError> {
        let limit = u64::try_from(sweep.limit).unwrap_or(u64::MAX);
        let marker = self.marker()?;
        let mut floor = DocVersion(marker.document_floor);
        for (_, name) in self.keys(|_| true).map_err(session::exclusive)? {
            let Some((key, mut row)) = self.load(&name).map_err(session::exclusive)? else { continue };
            let mut write = false;
            let expired = row.value.is_some() && row.expires_at.is_some_and(|at| at.has_come(self.now));
            if expired && swept.expired < limit {
                row = DocumentRow { value: None, expires_at: None, ..row };
                swept.expired += 1;
                write = true;
            }
            let old = sweep.tombstones_before.is_some_and(|before| row.updated_at < before);
            if row.value.is_none() && old && swept.tombstones < limit {
                floor = floor.max(row.version);
                swept.tombstones += 1;
                changes.push(Change { folder: Folder::Documents, name, content: None });
            } else if write {
                changes.push(session::document(name, &key, &row));
            }
        }
        if floor.0 != marker.document_floor {
            changes.push(Marker { document_floor: floor.0, ..marker }.change());
        }
        Ok(())
    }

    fn sweep_operations(
        &self,
        sweep: &Sweep,
        swept: &mut Swept,
        changes: &mut Vec<Change>,
    ) -> Result<(), StoreError> {
        let Some(before) = sweep.operations_before else { return Ok(()) };
        let limit = u64::try_from(sweep.limit).unwrap_or(u64::MAX);
        for name in self.disk.names(Folder::Operations)? {
            if swept.operations >= limit {
                break;
            }
            let Some(content) = self.disk.read(Folder::Operations, &name)? else { continue };
            if self.recorded(&name, &content)?.at() < before {
                swept.operations += 1;
                changes.push(Change { folder: Folder::Operations, name, content: None });
            }
        }
        Ok(())
    }
}

//! A write-ahead journal for several files that change together: all of them or none, whenever the process dies.
//!
//! The intended contents are written to one file with its checksum, flushed, and renamed to `.journal`: that rename is
//! the commit. Then the files are put in place and the journal is removed. The next process, reader or writer, executes
//! an existing journal before anything else. Executing it twice changes nothing. A journal that was never renamed is
//! ignored.

use std::fs;

use tidelock_core::store::StoreError;

use crate::directory::{self, Change, DirectoryLayout, Folder};
use crate::error::{self, WriteFailure};
use crate::file_names;

const JOURNAL: &str = ".journal";

/// Executes changes, all or none. The caller holds the exclusive lock, and nothing is left to recover.
pub(crate) fn commit(disk: &DirectoryLayout, changes: &[Change]) -> Result<(), WriteFailure> {
    match changes {
        [] => Ok(()),
        // A single rename is atomic.
        [change] => {
            disk.put(change).map_err(WriteFailure::before)?;
            disk.sync(change.folder).map_err(WriteFailure::after)
        }
        several => {
            let body = serde_json::to_string(several).map_err(|e| {
                WriteFailure::before(error::corrupt(&disk.path(Folder::Root, JOURNAL), e.to_string()))
            })?;
            let text = format!("{}\n{body}", file_names::digest(&body));
            let journal = Change { folder: Folder::Root, name: JOURNAL.to_owned(), content: Some(text) };
            disk.put(&journal).map_err(WriteFailure::before)?;
            disk.sync(Folder::Root).map_err(WriteFailure::after)?;
            write_all(disk, several).map_err(WriteFailure::after)
        }
    }
}

/// Returns whether a batch was interrupted after its commit.
pub(crate) fn is_pending(disk: &DirectoryLayout) -> bool {
    fs::symlink_metadata(disk.path(Folder::Root, JOURNAL)).is_ok()
}

/// Completes a batch that a dead process had committed. The caller holds the exclusive lock.
pub(crate) fn recover(disk: &DirectoryLayout) -> Result<(), StoreError> {
    let Some(text) = disk.read(Folder::Root, JOURNAL)? else { return Ok(()) };
    write_all(disk, &parse(disk, &text)?)
}

fn parse(disk: &DirectoryLayout, text: &str) -> Result<Vec<Change>, StoreError> {
    let damaged = |detail: String| error::corrupt(&disk.path(Folder::Root, JOURNAL), detail);
    let (sum, body) = text.split_once('\n').ok_or_else(|| damaged("the journal is cut off".to_owned()))?;
    if sum != file_names::digest(body) {
        return Err(damaged("the journal does not fit its checksum".to_owned()));
    }
    let changes: Vec<Change> = serde_json::from_str(body).map_err(|e| damaged(e.to_string()))?;
    if let Some(outside) = changes.iter().find(|c| c.name.contains('/') || c.name.starts_with('.')) {
        return Err(damaged(format!("it names the file {:?}, which is none of the store's", outside.name)));
    }
    Ok(changes)
}

fn write_all(disk: &DirectoryLayout, changes: &[Change]) -> Result<(), StoreError> {
    for change in changes {
        disk.put(change)?;
    }
    for folder in [Folder::Documents, Folder::Operations, Folder::Root] {
        if changes.iter().any(|change| change.folder == folder) {
            disk.sync(folder)?;
        }
    }
    let journal = disk.path(Folder::Root, JOURNAL);
    directory::remove(&journal).map_err(|e| error::map("removing", &journal, &e))?;
    // If a power cut lost the removal, the journal would come back and undo later writes.
    disk.sync(Folder::Root)
}

#[cfg(test)]
mod tests {
    use super::{
        Change, DirectoryLayout, Folder, JOURNAL, commit, file_names, is_pending, recover, write_all,
    };
    use crate::directory::create_directory;

    fn disk(root: &std::path::Path) -> DirectoryLayout {
        let disk = DirectoryLayout::new(root.to_owned());
        create_directory(&disk.folder(Folder::Documents)).unwrap();
        create_directory(&disk.folder(Folder::Operations)).unwrap();
        disk
    }

    fn change(folder: Folder, name: &str, content: Option<&str>) -> Change {
        Change { folder, name: name.to_owned(), content: content.map(str::to_owned) }
    }

    fn changes() -> Vec<Change> {
        vec![
            change(Folder::Documents, "a.json", Some("new a")),
            change(Folder::Documents, "b.json", None),
            change(Folder::Operations, "o.json", Some("new o")),
            change(Folder::Root, "tidelock.json", Some("new marker")),
        ]
    }

    fn check(disk: &DirectoryLayout) {
        for change in changes() {
            assert_eq!(disk.read(change.folder, &change.name).unwrap(), change.content, "{}", change.name);
        }
        assert!(!is_pending(disk));
    }

    #[test]
    fn a_batch_that_was_left_after_any_file_is_finished() {
        for done in 0..=changes().len() {
            let root = tempfile::tempdir().unwrap();
            let disk = disk(root.path());
            let old = ["a.json", "b.json"].map(|name| change(Folder::Documents, name, Some("old")));
            commit(&disk, &old).unwrap();
            let body = serde_json::to_string(&changes()).unwrap();
            let text = format!("{}\n{body}", file_names::digest(&body));
            disk.put(&change(Folder::Root, JOURNAL, Some(&text))).unwrap();
            for change in changes().iter().take(done) {
                disk.put(change).unwrap();
            }
            assert!(is_pending(&disk));
            recover(&disk).unwrap();
            check(&disk);
            write_all(&disk, &changes()).unwrap();
            check(&disk);
        }
    }

    #[test]
    fn a_batch_that_was_not_committed_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        let disk = disk(root.path());
        disk.prepare(Folder::Root, "half a jour").unwrap();
        recover(&disk).unwrap();
        assert_eq!(disk.read(Folder::Documents, "a.json").unwrap(), None);
        commit(&disk, &changes()).unwrap();
        check(&disk);
    }

    #[test]
    fn a_journal_never_writes_elsewhere() {
        for name in ["../x", ".lock", "a/b"] {
            let root = tempfile::tempdir().unwrap();
            let disk = disk(root.path());
            let body = serde_json::to_string(&[change(Folder::Root, name, Some("x"))]).unwrap();
            let text = format!("{}\n{body}", file_names::digest(&body));
            disk.put(&change(Folder::Root, JOURNAL, Some(&text))).unwrap();
            assert!(recover(&disk).is_err(), "{name}");
        }
    }
}

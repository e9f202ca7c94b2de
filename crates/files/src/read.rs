//! Listing of documents: names are sorted by the keys that they encode, and only the files of one page are read.

use std::collections::BTreeMap;

use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::store::{Get, Page, PageOf, Resolution, RowSet, StoredDocument, StoredRow};

use crate::directory::Folder;
use crate::error::{self, Failure};
use crate::file_names::{self, ParsedName};
use crate::session::Session;

impl Session<'_> {
    /// Returns a document that readers see.
    pub(crate) fn document(&self, key: &Key) -> Result<Option<StoredDocument>, Failure> {
        let row = self.load(&file_names::encode(key))?;
        Ok(row.and_then(|(key, row)| row.visible(&key, self.now)))
    }

    /// Returns documents and receipts as they are while the lock is held, in the order of the request.
    pub(crate) fn rows(&self, gets: &[Get]) -> Result<RowSet, Failure> {
        let row = |get: &Get| {
            Ok::<_, Failure>(match get {
                Get::Document(key) => self.document(key)?.map(StoredRow::Document),
                Get::Operation(id) => {
                    self.operation(*id)?.and_then(Resolution::into_receipt).map(StoredRow::Operation)
                }
                Get::Stream(_) | Get::Work(_) => None,
            })
        };
        Ok(RowSet { rows: gets.iter().map(row).collect::<Result<_, _>>()?, now: self.now })
    }

    /// Returns a page of documents that readers see.
    pub(crate) fn documents(
        &self,
        prefix: &KeyPrefix,
        page: &Page,
        limit: usize,
    ) -> Result<PageOf<StoredDocument>, Failure> {
        let wanted = |key: &Key| prefix.contains(key) && page.after.as_ref().is_none_or(|after| key > after);
        let visible = self.keys(wanted)?.into_iter().filter_map(|(key, name)| {
            let loaded = self.load(&name).map(|found| found?.1.visible(&key, self.now));
            loaded.transpose()
        });
        PageOf::gathered(visible, limit, self.now, |row| row.key.clone(), |row| row.value.len())
    }

    fn long_key(&self, name: &str) -> Result<Option<Key>, Failure> {
        if let Some(key) = self.long_keys.get(name) {
            return Ok(Some(key));
        }
        let key = self.load(name)?.map(|(key, _)| key);
        if let Some(key) = &key {
            self.long_keys.remember(name, key);
        }
        Ok(key)
    }

    /// Returns the wanted keys of all files in order, each with its file name.
    pub(crate) fn keys(&self, wanted: impl Fn(&Key) -> bool) -> Result<BTreeMap<Key, String>, Failure> {
        let mut keys = BTreeMap::new();
        for name in self.disk.names(Folder::Documents)? {
            let key = match file_names::decode(&name) {
                Some(ParsedName::Key(key)) => Some(key),
                Some(ParsedName::Inside) => self.long_key(&name)?,
                None => {
                    let detail = "its name is not that of any key: rename or move the file";
                    return Err(error::corrupt(&self.disk.path(Folder::Documents, &name), detail).into());
                }
            };
            if let Some(key) = key.filter(|key| wanted(key)) {
                keys.insert(key, name);
            }
        }
        Ok(keys)
    }
}

//! Checks of every reply of the store: fences, versions, and acknowledged writes.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tidelock_core::id::{DocVersion, Fence, Owner, StreamVersion};
use tidelock_core::key::Key;
use tidelock_core::store::{Claimed, MemoryStore, Receipt, Store as _};

/// The acknowledged numbers of a run.
#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<Acknowledged>);

#[derive(Debug, Default)]
struct Acknowledged {
    fences: BTreeMap<Fence, (Key, Owner)>,
    streams: BTreeMap<Key, StreamVersion>,
    documents: BTreeMap<Key, DocVersion>,
}

impl Audit {
    /// Checks the grants of a claim. A fence belongs to one row and one owner, forever.
    pub(crate) fn claimed(&self, claimed: &Claimed) -> Result<(), String> {
        let mut known = self.0.lock();
        for grant in &claimed.grants {
            let Some(lease) = &grant.row.lease else {
                return Err(format!("{} was granted without a lease", grant.row.key));
            };
            let holder = (grant.row.key.clone(), lease.owner.clone());
            let first = known.fences.entry(grant.fence).or_insert_with(|| holder.clone());
            if *first != holder {
                let (key, owner) = first.clone();
                return Err(format!(
                    "fence {} of {} for {} repeats that of {key} for {owner}",
                    grant.fence, holder.0, holder.1
                ));
            }
        }
        Ok(())
    }

    /// Remembers an acknowledged write.
    pub(crate) fn applied(&self, receipt: &Receipt) {
        let mut known = self.0.lock();
        for appended in &receipt.appended {
            let version = known.streams.entry(appended.stream.clone()).or_insert(appended.last_version);
            *version = (*version).max(appended.last_version);
        }
        for written in &receipt.documents {
            let version = known.documents.entry(written.key.clone()).or_insert(written.version);
            *version = (*version).max(written.version);
        }
    }

    /// Checks that every acknowledged write is present.
    pub(crate) async fn present(&self, store: &MemoryStore) -> Result<(), String> {
        let (streams, documents) = {
            let known = self.0.lock();
            (known.streams.clone(), known.documents.clone())
        };
        for (key, version) in streams {
            let found = store.stream(&key).await.map_err(|error| error.to_string())?;
            // Housekeeping removes whole streams of ended work.
            if found.as_ref().and_then(|stream| stream.head).is_some_and(|found| found < version) {
                return Err(format!("acknowledged event {version} of {key} is missing"));
            }
        }
        for (key, version) in documents {
            let found = store.document(&key).await.map_err(|error| error.to_string())?;
            if found.is_some_and(|found| found.version < version) {
                return Err(format!("acknowledged version {version} of {key} is missing"));
            }
        }
        Ok(())
    }
}

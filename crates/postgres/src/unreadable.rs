//! Only here: the work rows that claims of this process skip, because they do not decode. On SQLite the writer's
//! session keeps them.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tidelock_core::store::StoreError;
use tidelock_core::store::report;

/// The keys of the rows.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<BTreeSet<String>>);

impl Unreadable {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Records a row that does not decode, and reports it once.
    pub(crate) fn pass_over(&self, key: &str, error: &StoreError) {
        if self.0.lock().insert(key.to_owned()) {
            report::unreadable_work(key, error);
        }
    }

    /// Removes a row that decodes again.
    pub(crate) fn reads(&self, key: &str) {
        let mut keys = self.0.lock();
        if !keys.is_empty() {
            keys.remove(key);
        }
    }
}

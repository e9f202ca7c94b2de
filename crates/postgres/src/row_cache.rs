//! Only here: a cache of rows as this process last saw them. A batch is decided on them, and the server writes it only
//! if they are unchanged. SQLite's writer detects the writes of other connections; here the cache gets no notification.

use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;
use tidelock_core::id::{DocVersion, Epoch};
use tidelock_core::key::Key;
use tidelock_core::model::rows::{DocumentRow, StreamRow, WorkRow};
use tidelock_core::model::working_set::Footprint;

use crate::rows::Stamp;
use crate::scan_bounds::ScanBounds;

/// The number of rows beyond which the cache is cleared. Hot rows return quickly.
const ROWS: usize = 50_000;
/// The number of payload bytes beyond which the cache is cleared.
const BYTES: usize = 32 * 1024 * 1024;
/// For this long, a row that another writer changed is read before a batch is decided on it.
const CONTENDED: Duration = Duration::from_secs(1);
/// The number of contended rows beyond which they are forgotten.
const CONTENDED_ROWS: usize = 10_000;

/// The number of kinds of keys beyond which their absence is forgotten.
const KINDS: usize = 1_000;

/// The kind of row that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Noun {
    Stream,
    Document,
    Work,
}

/// A work row with the stamp that identifies its state.
pub(crate) type Stamped = (WorkRow, Stamp);

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) streams: HashMap<Key, Option<StreamRow>>,
    pub(crate) documents: HashMap<Key, Option<DocumentRow>>,
    pub(crate) work: HashMap<Key, Option<Stamped>>,
    pub(crate) floor: Option<DocVersion>,
    contended: HashMap<(Noun, Key), Instant>,
    /// By kind of key: whether the last row that was written without being cached was new.
    new_kinds: HashMap<(Noun, String), bool>,
    bytes: usize,
    /// The epoch that the rows belong to.
    epoch: Epoch,
}

/// The cached rows of this process.
#[derive(Debug, Default)]
pub(crate) struct RowCache {
    rows: Mutex<Rows>,
    /// Where index scans of ready work start.
    pub(crate) bounds: ScanBounds,
}

impl RowCache {
    /// Accesses the rows of an epoch. Rows of earlier epochs are dropped. Returns `None` when a later epoch has begun.
    pub(crate) fn with<T>(&self, epoch: Epoch, look: impl FnOnce(&mut Rows) -> T) -> Option<T> {
        let mut rows = self.rows.lock();
        if rows.epoch < epoch {
            *rows = Rows { epoch, ..Rows::default() };
            self.bounds.clear();
        }
        (rows.epoch == epoch).then(|| look(&mut rows))
    }

    /// Drops the rows of a footprint, which proved outdated. For a while they are read before a decision.
    pub(crate) fn invalidate(&self, footprint: &Footprint) {
        let mut rows = self.rows.lock();
        if rows.contended.len() > CONTENDED_ROWS {
            rows.contended = HashMap::new();
        }
        let until = Instant::now() + CONTENDED;
        for key in &footprint.streams {
            rows.streams.remove(key);
            rows.contended.insert((Noun::Stream, key.clone()), until);
        }
        for key in &footprint.documents {
            rows.documents.remove(key);
            rows.contended.insert((Noun::Document, key.clone()), until);
        }
        for key in &footprint.work {
            rows.work.remove(key);
            rows.contended.insert((Noun::Work, key.clone()), until);
        }
    }

    /// Drops everything: the server was unreachable, or a write bypassed the cache.
    pub(crate) fn clear(&self) {
        let mut rows = self.rows.lock();
        *rows = Rows { epoch: rows.epoch, ..Rows::default() };
        self.bounds.clear();
    }
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            streams: HashMap::new(),
            documents: HashMap::new(),
            work: HashMap::new(),
            floor: None,
            contended: HashMap::new(),
            new_kinds: HashMap::new(),
            bytes: 0,
            epoch: Epoch(0),
        }
    }
}

impl Rows {
    /// Returns whether another writer changed this row recently.
    pub(crate) fn is_contended(&self, noun: Noun, key: &Key) -> bool {
        !self.contended.is_empty()
            && self.contended.get(&(noun, key.clone())).is_some_and(|until| *until > Instant::now())
    }

    /// Returns whether a row that is not cached is probably new: the last one of its kind was.
    pub(crate) fn is_probably_new(&self, noun: Noun, key: &Key) -> bool {
        !self.new_kinds.is_empty() && self.new_kinds.get(&(noun, key.kind())).is_some_and(|new| *new)
    }

    /// Records whether a row that was written without being cached was new.
    pub(crate) fn record_new(&mut self, noun: Noun, key: &Key, new: bool) {
        if self.new_kinds.len() > KINDS {
            self.new_kinds = HashMap::new();
        }
        self.new_kinds.insert((noun, key.kind()), new);
    }

    /// Adds payload bytes to the count, and clears the cache when there are too many.
    pub(crate) fn weigh(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        let rows = self.streams.len() + self.documents.len() + self.work.len();
        if rows > ROWS || self.bytes > BYTES {
            let contended = std::mem::take(&mut self.contended);
            let new_kinds = std::mem::take(&mut self.new_kinds);
            *self = Self { contended, new_kinds, floor: self.floor, epoch: self.epoch, ..Self::default() };
        }
    }
}

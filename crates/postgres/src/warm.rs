//! Only here: rows as this process last saw them. A batch is decided on them, and the server writes it only if they are
//! still so. SQLite's writer is told when somebody else wrote; here nobody is told anything.

use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt as _};
use parking_lot::Mutex;
use tidelock_core::id::{DocVersion, Epoch};
use tidelock_core::key::Key;
use tidelock_core::model::facts::Footprint;
use tidelock_core::model::rows::{DocumentRow, StreamRow, WorkRow};

use crate::rows::Stamp;
use crate::scan_bounds::ScanBounds;

/// More rows than this are forgotten all at once: hot ones come back.
const ROWS: usize = 50_000;
/// More payload bytes than this are forgotten all at once.
const BYTES: usize = 32 * 1024 * 1024;
/// How long a row that somebody else changed is looked at before it is decided on.
const CONTENDED: Duration = Duration::from_secs(1);
/// More contended rows than this are forgotten.
const CONTENDED_ROWS: usize = 10_000;

/// Which noun a key names a row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Noun {
    Stream,
    Document,
    Work,
}

/// A work row with what tells its states apart.
pub(crate) type Stamped = (WorkRow, Stamp);

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) streams: HashMap<Key, Option<StreamRow>>,
    pub(crate) documents: HashMap<Key, Option<DocumentRow>>,
    pub(crate) work: HashMap<Key, Option<Stamped>>,
    pub(crate) floor: Option<DocVersion>,
    contended: HashMap<(Noun, Key), Instant>,
    bytes: usize,
    /// The epoch that they belong to.
    epoch: Epoch,
}

/// The rows.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    rows: Mutex<Rows>,
    /// Where index scans of ready work start.
    pub(crate) bounds: ScanBounds,
}

impl Warm {
    /// Looks at the rows of an epoch. Those of the epochs before are dropped; `None` when a later one has begun.
    pub(crate) fn with<T>(&self, epoch: Epoch, look: impl FnOnce(&mut Rows) -> T) -> Option<T> {
        let mut rows = self.rows.lock();
        if rows.epoch < epoch {
            *rows = Rows { epoch, ..Rows::default() };
            self.bounds.clear();
        }
        (rows.epoch == epoch).then(|| look(&mut rows))
    }

    /// Forgets the rows of a footprint, which turned out to be others: for a while they are looked at first.
    pub(crate) fn distrust(&self, footprint: &Footprint) {
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

    /// Forgets everything: the server was away, or something was written that nobody kept account of.
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
            bytes: 0,
            epoch: Epoch(0),
        }
    }
}

impl Rows {
    /// Whether somebody else changed this row lately.
    pub(crate) fn is_contended(&self, noun: Noun, key: &Key) -> bool {
        !self.contended.is_empty()
            && self.contended.get(&(noun, key.clone())).is_some_and(|until| *until > Instant::now())
    }

    /// Counts payload bytes that were put in, and forgets everything when they have become too many.
    pub(crate) fn weigh(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        let rows = self.streams.len() + self.documents.len() + self.work.len();
        if rows > ROWS || self.bytes > BYTES {
            let contended = std::mem::take(&mut self.contended);
            *self = Self { contended, floor: self.floor, epoch: self.epoch, ..Self::default() };
        }
    }
}

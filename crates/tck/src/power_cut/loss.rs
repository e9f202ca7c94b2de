//! The choice of what a power cut loses, by a seed.

use std::collections::{BTreeMap, HashMap};

use super::disk::{DirectoryState, FileState, ObjectId, Pending};
use crate::rng::Rng;

/// The unit that a device writes as a whole.
const SECTOR: usize = 512;

/// How much of the unflushed changes is lost. A cut draws one for each file and each directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All unflushed changes.
    Everything,
    /// None: the cache was written back just in time.
    Nothing,
    /// All changes after some moment.
    Tail,
    /// Each change independently.
    Changes,
    /// The changes of each sector after some moment, independent of other sectors.
    Sectors,
    /// The same, and sectors that were being written hold garbage.
    Garbage,
}

const EXTENTS: [Extent; 6] =
    [Extent::Everything, Extent::Nothing, Extent::Tail, Extent::Changes, Extent::Sectors, Extent::Garbage];

/// A source of decisions for one cut.
#[derive(Debug)]
pub(crate) struct Loss {
    rng: Rng,
    always: Option<Extent>,
}

impl Loss {
    /// Draws the extent of each file and directory.
    pub(crate) fn seeded(rng: Rng) -> Self {
        Self { rng, always: None }
    }

    /// Loses the same extent everywhere.
    pub(crate) fn always(extent: Extent) -> Self {
        Self { rng: Rng::new(0), always: Some(extent) }
    }

    fn extent(&mut self) -> Extent {
        let drawn = self.rng.pick(&EXTENTS);
        self.always.unwrap_or(drawn)
    }

    /// Returns the names that a directory has after the cut.
    pub(crate) fn names(&mut self, directory: &DirectoryState) -> BTreeMap<String, ObjectId> {
        let mut names = directory.durable.clone();
        let (extent, count) = (self.extent(), directory.pending.len());
        let tail = self.moment(extent, count);
        let mut moments: HashMap<&str, usize> = HashMap::new();
        for (i, change) in directory.pending.iter().enumerate() {
            let own = || if extent == Extent::Tail { tail } else { self.moment(extent, count) };
            if i < *moments.entry(&change.name).or_insert_with(own) {
                match change.target {
                    Some(object) => names.insert(change.name.clone(), object),
                    None => names.remove(&change.name),
                };
            }
        }
        names
    }

    /// Returns the content of a file after the cut.
    pub(crate) fn content(&mut self, file: &FileState<'_>) -> Vec<u8> {
        let (extent, count) = (self.extent(), file.pending.len());
        if count == 0 {
            return file.durable.clone();
        }
        let tail = self.moment(extent, count);
        let length = if extent == Extent::Tail { tail } else { self.moment(extent, count) };
        let mut lengths = vec![file.durable.len()];
        let mut content = file.durable.clone();
        let mut sectors = Sectors { moments: HashMap::new(), extent, tail, count, length };
        if extent == Extent::Changes {
            sectors.draw_by_change(file, &mut self.rng);
        }
        for (i, change) in file.pending.iter().enumerate() {
            let before = lengths[i];
            let (from, to, end) = match *change {
                Pending::Write { offset, data } => {
                    let end = offset + data.len();
                    (offset, end, end.max(before))
                }
                Pending::Truncate { length } => (length.min(before), before.max(length), length),
            };
            lengths.push(end);
            if content.len() < to {
                content.resize(to, 0);
            }
            self.apply_partly(i, change, from..to, &mut content, &mut sectors);
        }
        content.resize(lengths[length], 0);
        content
    }

    /// Makes one change in those sectors that still see it.
    fn apply_partly(
        &mut self,
        i: usize,
        change: &Pending<'_>,
        range: std::ops::Range<usize>,
        content: &mut [u8],
        sectors: &mut Sectors,
    ) {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / SECTOR + 1) * SECTOR);
            let moment = match change {
                Pending::Write { .. } => sectors.moment(at / SECTOR, self),
                // A truncation changes the length of the file. Its sectors are cut off with it.
                Pending::Truncate { .. } => sectors.length,
            };
            let seen = i < moment;
            match *change {
                Pending::Write { offset, data } if seen => {
                    content[at..end].copy_from_slice(&data[at - offset..end - offset]);
                }
                Pending::Write { .. } if sectors.extent == Extent::Garbage && self.rng.one_in(4) => {
                    content[at..end].fill_with(|| self.rng.draw() as u8);
                }
                Pending::Truncate { .. } if seen => content[at..end].fill(0),
                Pending::Write { .. } | Pending::Truncate { .. } => {}
            }
            at = end;
        }
    }

    /// Draws the number of changes that are kept, of `count`.
    fn moment(&mut self, extent: Extent, count: usize) -> usize {
        let drawn = self.rng.below(count + 1);
        match extent {
            Extent::Everything => 0,
            Extent::Nothing => count,
            // Old and new content are as likely as one of many moments in between.
            Extent::Tail | Extent::Changes | Extent::Sectors | Extent::Garbage => match self.rng.below(4) {
                0 => 0,
                1 => count,
                _ => drawn,
            },
        }
    }
}

/// The number of changes that each sector still sees.
struct Sectors {
    moments: HashMap<usize, usize>,
    extent: Extent,
    tail: usize,
    count: usize,
    /// The number of changes that the length still sees.
    length: usize,
}

impl Sectors {
    fn moment(&mut self, sector: usize, loss: &mut Loss) -> usize {
        match self.extent {
            Extent::Everything => 0,
            Extent::Nothing => self.count,
            Extent::Tail => self.tail,
            Extent::Changes => self.moments.get(&sector).copied().unwrap_or(0),
            Extent::Sectors | Extent::Garbage => {
                let (extent, count) = (self.extent, self.count);
                *self.moments.entry(sector).or_insert_with(|| loss.moment(extent, count))
            }
        }
    }

    /// Keeps or loses each change as a whole. A sector that sees a change also sees the earlier ones.
    fn draw_by_change(&mut self, file: &FileState<'_>, rng: &mut Rng) {
        for (i, change) in file.pending.iter().enumerate() {
            let Pending::Write { offset, data } = change else { continue };
            if rng.one_in(2) {
                continue;
            }
            for sector in offset / SECTOR..(offset + data.len()).div_ceil(SECTOR) {
                self.moments.insert(sector, i + 1);
            }
        }
    }
}

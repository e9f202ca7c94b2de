//! The first yardstick: how often per second this device can be told to keep something.
//!
//! A log that grows pays for new blocks with every flush, one that is overwritten does not; both are measured, and
//! the faster one is what the store is compared with.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::measure::per_second;
use super::plan::Place;

const BLOCK: [u8; 4096] = [0x5a; 4096];
/// Blocks of the file that is overwritten: 4 MiB.
const BLOCKS: usize = 1024;

/// Two files in the measured directory.
#[derive(Debug)]
pub(crate) struct Flusher {
    growing: File,
    standing: File,
    at: usize,
}

impl Flusher {
    /// Makes both files; the standing one is written in full.
    pub(crate) fn new(place: &Place) -> Result<Self> {
        let make = |name| OpenOptions::new().create(true).truncate(true).write(true).open(place.file(name));
        let mut standing = make("standing.log")?;
        for _ in 0..BLOCKS {
            standing.write_all(&BLOCK)?;
        }
        standing.sync_all()?;
        Ok(Self { growing: make("growing.log")?, standing, at: 0 })
    }

    /// Flushes per second of a log that grows.
    pub(crate) fn append(&mut self, length: Duration) -> Result<f64> {
        repeat(length, || {
            self.growing.write_all(&BLOCK)?;
            self.growing.sync_data()
        })
    }

    /// Flushes per second of a file that is overwritten in place.
    pub(crate) fn overwrite(&mut self, length: Duration) -> Result<f64> {
        repeat(length, || {
            if self.at == 0 {
                self.standing.seek(SeekFrom::Start(0))?;
            }
            self.at = (self.at + 1) % BLOCKS;
            self.standing.write_all(&BLOCK)?;
            self.standing.sync_data()
        })
    }
}

fn repeat(length: Duration, mut flush: impl FnMut() -> std::io::Result<()>) -> Result<f64> {
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < length {
        flush()?;
        count += 1;
    }
    Ok(per_second(count, started.elapsed()))
}

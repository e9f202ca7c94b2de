//! The device baseline: `fdatasync` calls per second.
//!
//! A growing log pays for new blocks with every flush, and one that is overwritten does not. Both are measured; reports
//! compare the store with the faster one.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::directory::WorkDirectory;
use super::statistics::per_second;

const BLOCK: [u8; 4096] = [0x5a; 4096];
/// Blocks of the file that is overwritten: 4 MiB.
const BLOCKS: usize = 1024;

/// A growing and an overwritten file in the measured directory.
#[derive(Debug)]
pub struct Flusher {
    growing: File,
    overwritten: File,
    at: usize,
}

impl Flusher {
    /// Creates both files, and writes the overwritten one in full.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn new(directory: &WorkDirectory) -> Result<Self> {
        let make =
            |name| OpenOptions::new().create(true).truncate(true).write(true).open(directory.file(name));
        let mut overwritten = make("overwritten.log")?;
        for _ in 0..BLOCKS {
            overwritten.write_all(&BLOCK)?;
        }
        overwritten.sync_all()?;
        Ok(Self { growing: make("growing.log")?, overwritten, at: 0 })
    }

    /// Returns flushes per second of a growing log.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append(&mut self, length: Duration) -> Result<f64> {
        repeat(length, || {
            self.growing.write_all(&BLOCK)?;
            self.growing.sync_data()
        })
    }

    /// Returns flushes per second of a file that is overwritten in place.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn overwrite(&mut self, length: Duration) -> Result<f64> {
        repeat(length, || {
            if self.at == 0 {
                self.overwritten.seek(SeekFrom::Start(0))?;
            }
            self.at = (self.at + 1) % BLOCKS;
            self.overwritten.write_all(&BLOCK)?;
            self.overwritten.sync_data()
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

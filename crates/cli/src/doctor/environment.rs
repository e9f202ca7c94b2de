//! Diagnostics of a machine: whether files can be written and flushed, and how fast.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use super::report::{Report, Status};
use crate::{filesystem, output};

/// The number of flushes tried.
const FLUSHES: u32 = 50;
/// The time limit of the whole trial.
const LONGEST: Duration = Duration::from_secs(3);
/// The flush time above which a warning is reported.
const SLOW: Duration = Duration::from_millis(20);

/// Checks the linked SQLite, the cores, the directory for temporary files, flushing, and free
/// space.
pub(crate) fn check() -> Report {
    let mut report = Report::new("this machine");
    let directory = std::env::temp_dir();
    report.ok("tidelock", env!("CARGO_PKG_VERSION"));
    report.ok("sqlite", format!("{} (linked in)", rusqlite::version()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.ok("cores", cores.to_string());
    match tempfile::tempfile_in(&directory) {
        Ok(file) => {
            report.ok("temporary files", format!("{} can be written", directory.display()));
            flush(&mut report, file, &filesystem::file_system(&directory));
        }
        Err(e) => {
            let found = format!("{} cannot be written: {e}", directory.display());
            report.add("temporary files", Status::Fail, found, "set TMPDIR to a directory of yours");
        }
    }
    free_space(&mut report, &directory);
    report
}

fn flush(report: &mut Report, mut file: File, kind: &str) {
    let started = Instant::now();
    let mut count = 0;
    while count < FLUSHES && started.elapsed() < LONGEST {
        if let Err(e) = file.write_all(&[0; 4096]).and_then(|()| file.sync_data()) {
            let next = "check the device and the system log";
            return report.add("flush", Status::Fail, format!("flushing failed: {e}"), next);
        }
        count += 1;
    }
    let each = started.elapsed().checked_div(count).unwrap_or_default();
    let found =
        format!("{kind}: {} µs per flush", output::number(each.as_micros().try_into().unwrap_or(u64::MAX)));
    if filesystem::is_memory(kind) {
        report.warn("flush", found, "nothing here survives a power cut; keep stores on a disk");
    } else if each > SLOW {
        report.warn("flush", found, "each commit waits that long; group commit helps, a faster disk more");
    } else {
        report.ok("flush", found);
    }
}

/// Reports the free space.
pub(crate) fn free_space(report: &mut Report, directory: &std::path::Path) {
    const SCARCE: u64 = 1 << 30;
    const NONE: u64 = 64 << 20;
    let Some(free) = filesystem::free_bytes(directory) else { return };
    let found = format!("{} free", output::bytes(free));
    if free < NONE {
        report.add("disk space", Status::Fail, found, "free space: writes will fail with TL0302");
    } else if free < SCARCE {
        report.warn("disk space", found, "free space soon");
    } else {
        report.ok("disk space", found);
    }
}

//! File-system facts about a store's directory.

use std::path::{Path, PathBuf};

/// Returns the path of a file that SQLite keeps beside the database, such as its log (`-wal`).
#[must_use]
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the directory of a file.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the type of a directory's file system, as Linux names it; `unknown` elsewhere.
#[must_use]
pub fn file_system(directory: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    file_system_in(&mounts, &directory).unwrap_or_else(|| "unknown".to_owned())
}

/// Finds the longest mount point that holds the directory. A line of mountinfo reads
/// `id parent device root MOUNT-POINT options [fields…] - TYPE source …`; of equal mount points, the last one counts.
fn file_system_in(mounts: &str, directory: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let Some(point) = place.split(' ').nth(4).map(|point| point.replace("\\040", " ")) else { continue };
        let holds = directory.starts_with(&point);
        if holds && best.is_none_or(|(length, _)| point.len() >= length) {
            best = kind.split(' ').next().map(|kind| (point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// Returns whether a file system is in memory, where flushing costs nothing.
#[must_use]
pub fn is_memory(file_system: &str) -> bool {
    matches!(file_system, "tmpfs" | "ramfs")
}

/// Returns the free bytes for this user below a directory; `None` where the system does not report them.
#[must_use]
#[cfg(unix)]
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(directory).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Returns the free bytes for this user below a directory; `None` where the system does not report them.
#[must_use]
#[cfg(not(unix))]
pub fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}

/// Flushes the page cache, so that the next measurement does not pay for earlier writes.
#[cfg(unix)]
pub fn flush_page_cache() {
    rustix::fs::sync();
}

/// Flushes the page cache, so that the next measurement does not pay for earlier writes.
#[cfg(not(unix))]
pub fn flush_page_cache() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_wins() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(file_system_in(mounts, Path::new("/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(file_system_in(mounts, Path::new("/tmpfoo")).as_deref(), Some("ext4"));
        assert_eq!(file_system_in("", Path::new("/")), None);
    }
}

//! Where a store is: what `--store` means, and facts about the directory that it lives in.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::exit::WrongUse;

/// The file that a store's name means: a path, or `sqlite:` followed by one.
pub(crate) fn sqlite_path(name: &str) -> Result<PathBuf> {
    let path = match name.split_once(':') {
        Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        // One letter is a Windows drive, not a scheme.
        Some((scheme, _)) if scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            let known = "this program opens sqlite://PATH and plain paths";
            return Err(WrongUse(format!("a store of kind {scheme:?} cannot be opened; {known}")).into());
        }
        _ => name,
    };
    if path.is_empty() {
        return Err(
            WrongUse("the store's name holds no path; write sqlite://PATH or a path".to_owned()).into()
        );
    }
    Ok(path.into())
}

/// A file that SQLite keeps beside the database, such as its log (`-wal`).
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The directory that a file lies in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The kind of file system under a directory, as Linux names it; `unknown` elsewhere.
pub(crate) fn file_system(directory: &Path) -> String {
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

/// Whether flushing costs nothing there, so that nothing measured says anything about a disk.
pub(crate) fn is_memory(file_system: &str) -> bool {
    matches!(file_system, "tmpfs" | "ramfs")
}

/// Bytes that this user may still write under a directory; `None` where the system does not tell.
#[cfg(unix)]
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let facts = rustix::fs::statvfs(directory).ok()?;
    Some(facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Bytes that this user may still write under a directory; `None` where the system does not tell.
#[cfg(not(unix))]
pub(crate) fn free_bytes(_directory: &Path) -> Option<u64> {
    None
}

/// Lets the system write what it still holds back, so that the next measurement does not pay for it.
#[cfg(unix)]
pub(crate) fn settle() {
    rustix::fs::sync();
}

/// Lets the system write what it still holds back, so that the next measurement does not pay for it.
#[cfg(not(unix))]
pub(crate) fn settle() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_or_a_url() {
        assert_eq!(sqlite_path("app.db").unwrap(), Path::new("app.db"));
        assert_eq!(sqlite_path("sqlite:///var/app.db").unwrap(), Path::new("/var/app.db"));
        assert_eq!(sqlite_path("sqlite:app.db").unwrap(), Path::new("app.db"));
        assert!(sqlite_path("postgres://host/db").unwrap_err().is::<WrongUse>());
        assert!(sqlite_path("sqlite://").unwrap_err().is::<WrongUse>());
    }

    #[test]
    fn the_longest_mount_point_wins() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n";
        assert_eq!(file_system_in(mounts, Path::new("/tmp/x")).as_deref(), Some("tmpfs"));
        assert_eq!(file_system_in(mounts, Path::new("/tmpfoo")).as_deref(), Some("ext4"));
        assert_eq!(file_system_in("", Path::new("/")), None);
    }
}

//! The disk or server to measure, from the name of a store.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::address::Address;
use crate::filesystem;
use crate::server_url::ServerUrl;

/// The disk or server to measure.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The store in memory.
    Memory,
    /// The file system of a directory.
    Directory(PathBuf),
    /// A PostgreSQL database.
    Server(ServerUrl),
}

impl Target {
    /// Parses `mem:`, a directory, or the address of a store. A SQLite file need not exist; its directory counts.
    pub(super) fn parse(store: Option<&str>) -> Result<Self> {
        let name = match store {
            None => return Ok(Self::Directory(std::env::temp_dir())),
            Some("mem:" | "memory:" | "mem" | "memory") => return Ok(Self::Memory),
            Some(name) => name,
        };
        Ok(match Address::parse(name, None)? {
            Address::File(path) if path.is_dir() => Self::Directory(path),
            Address::File(path) => Self::Directory(directory_of(&path)),
            Address::Schema { url, .. } => Self::Server(url),
        })
    }
}

fn directory_of(path: &Path) -> PathBuf {
    filesystem::directory_of(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_names_the_disk_or_server_that_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let target = |name: &str| Target::parse(Some(name)).unwrap();
        let inside = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let here = Target::Directory(directory.path().to_owned());
        assert_eq!(target(directory.path().to_str().unwrap()), here);
        assert_eq!(target(&inside("app.db")), here);
        assert_eq!(target(&format!("sqlite://{}", inside("app.db"))), here);
        assert_eq!(target("mem:"), Target::Memory);
        assert!(matches!(target("postgres://host/db?schema=shop"), Target::Server(_)));
        assert_eq!(Target::parse(None).unwrap(), Target::Directory(std::env::temp_dir()));
        assert!(Target::parse(Some("mysql://host/db")).is_err());
    }
}

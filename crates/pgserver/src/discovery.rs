//! Discovery of PostgreSQL's programs. It only reads directories; it starts nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// The programs that a directory must hold.
const PROGRAMS: [&str; 4] = ["initdb", "postgres", "pg_ctl", "psql"];

/// Version directories: the base, the prefix before the version, and the subdirectory after it. They cover Debian and
/// Ubuntu, the RPM packages of postgresql.org, and Homebrew on both kinds of Mac.
const PACKAGES: [(&str, &str, &str); 4] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
];

/// The environment variable that names the directory of PostgreSQL's programs.
pub const BIN_VARIABLE: &str = "TIDELOCK_POSTGRES_BIN";

/// Returns the directory of PostgreSQL's programs: the one that [`BIN_VARIABLE`] names, else one on `PATH`, else the highest
/// version among the installed packages. A variable that names an incomplete directory yields `None`, never another version.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(BIN_VARIABLE).filter(|named| !named.is_empty()) {
        return complete(Path::new(&named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find_map(|directory| complete(&directory));
    on_path.or_else(|| PACKAGES.iter().find_map(|(base, prefix, bin)| newest(Path::new(base), prefix, bin)))
}

/// Returns the directory, or the one that its `postgres` links to, if it holds all programs.
fn complete(directory: &Path) -> Option<PathBuf> {
    let has_all = |directory: &Path| PROGRAMS.iter().all(|program| directory.join(program).is_file());
    if !directory.is_absolute() {
        return None;
    }
    if has_all(directory) {
        return Some(directory.to_owned());
    }
    let real = directory.join("postgres").canonicalize().ok()?;
    real.parent().filter(|parent| has_all(parent)).map(Path::to_owned)
}

/// Returns the highest version below `base`.
fn newest(base: &Path, prefix: &str, bin: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(base).ok()?.filter_map(Result::ok);
    let versions = entries.filter_map(|entry| {
        let name = entry.file_name();
        let version = version(name.to_str()?.strip_prefix(prefix)?)?;
        Some((version, complete(&entry.path().join(bin))?))
    });
    versions.max().map(|(_, directory)| directory)
}

/// Parses `9.6` as numbers, so that 10 comes after it.
fn version(name: &str) -> Option<Vec<u32>> {
    name.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{PROGRAMS, complete, newest};

    fn install(bin: &Path) {
        fs::create_dir_all(bin).unwrap();
        PROGRAMS.iter().for_each(|program| fs::write(bin.join(program), "").unwrap());
    }

    #[test]
    fn the_highest_version_is_taken() {
        let base = tempfile::tempdir().unwrap();
        for version in ["9.6", "15", "common"] {
            install(&base.path().join(version).join("bin"));
        }
        fs::create_dir_all(base.path().join("17/bin")).unwrap();
        assert_eq!(newest(base.path(), "", "bin"), Some(base.path().join("15/bin")));
        assert_eq!(newest(base.path(), "pgsql-", "bin"), None);
    }

    #[test]
    fn a_directory_of_links_leads_to_the_real_one() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (real, links) = (base.join("15/bin"), base.join("links"));
        install(&real);
        fs::create_dir(&links).unwrap();
        assert_eq!(complete(&links), None);
        symlink(real.join("postgres"), links.join("postgres")).unwrap();
        assert_eq!(complete(&links), Some(real.clone()));
        assert_eq!(complete(&real), Some(real.clone()));
        fs::remove_file(real.join("psql")).unwrap();
        assert_eq!(complete(&links), None);
    }
}

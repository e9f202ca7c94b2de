//! The directory of a server: its data, its log, and the notes of the guard.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::{Error, tail};
use crate::os_user::Account;

/// A directory that is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    directory: TempDir,
    pub(crate) data: PathBuf,
    pub(crate) log: PathBuf,
}

impl Home {
    /// Creates the directory, which only `account` can enter.
    pub(crate) fn make(parent: Option<&Path>, account: &Account) -> Result<Self, Error> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = || format!("making a directory in {}", parent.display());
        let parent = parent.canonicalize().map_err(Error::io(failed()))?;
        let directory = tempfile::Builder::new()
            .prefix("tidelock-pg-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .map_err(Error::io(failed()))?;
        let path = directory.path();
        fs::create_dir(path.join(crate::watchdog::NOTES)).map_err(Error::io(failed()))?;
        account.own(path)?;
        account.own(&path.join(crate::watchdog::NOTES))?;
        let home = Self { data: path.join("data"), log: path.join("log"), directory };
        home.check_entry(account)?;
        Ok(home)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Checks that the account can enter the directory: its parents may be closed to the account.
    fn check_entry(&self, account: &Account) -> Result<(), Error> {
        let Account::Other { name, .. } = account else { return Ok(()) };
        let mut entering = Command::new("/bin/sh");
        entering.args(["-c", ":"]).current_dir(self.path()).stdin(Stdio::null());
        account.apply(&mut entering);
        if entering.status().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(Error::Unreachable { directory: self.path().to_owned(), account: name.clone() })
    }

    /// Opens the log for appending.
    pub(crate) fn open_log(&self) -> Result<File, Error> {
        let opened = OpenOptions::new().create(true).append(true).open(&self.log);
        opened.map_err(Error::io(format!("opening the log {}", self.log.display())))
    }

    /// Returns the last lines of the log, starting at the byte offset `start`.
    pub(crate) fn log_since(&self, start: u64) -> String {
        let read = || {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        tail(&String::from_utf8_lossy(&read().unwrap_or_default()))
    }
}

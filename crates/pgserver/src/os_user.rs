//! The OS account of the server: the caller's, or another one when the caller is root.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// The accounts used instead of root, in order of preference.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

/// The account that runs PostgreSQL's programs, which refuse to run as root.
#[derive(Clone, Debug)]
pub enum Account {
    /// The caller's account.
    Own,
    /// Another account, because the caller is root.
    Other {
        /// The name of the user.
        name: String,
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
    },
}

impl Account {
    /// Chooses the account for this process.
    ///
    /// # Errors
    ///
    /// The caller is root, and there is neither a user `postgres` nor `nobody`.
    pub fn choose() -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let passwd = fs::read_to_string("/etc/passwd").map_err(Error::io("reading /etc/passwd"))?;
        STAND_INS.iter().find_map(|name| lookup(&passwd, name)).ok_or(Error::NoAccount)
    }

    /// Makes a command run as this account.
    pub fn apply(&self, command: &mut Command) {
        if let Self::Other { uid, gid, .. } = self {
            command.uid(*uid).gid(*gid);
        }
    }

    /// Transfers a file or directory to this account.
    ///
    /// # Errors
    ///
    /// The file does not exist, or the caller may not give it away.
    pub fn own(&self, path: &Path) -> Result<(), Error> {
        match self {
            Self::Own => Ok(()),
            Self::Other { name, uid, gid } => std::os::unix::fs::chown(path, Some(*uid), Some(*gid))
                .map_err(Error::io(format!("giving {} to the user {name}", path.display()))),
        }
    }
}

/// Looks up the line of `/etc/passwd` that begins with `name`.
fn lookup(passwd: &str, name: &str) -> Option<Account> {
    let mut fields =
        passwd.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(name))?;
    let uid = fields.nth(2)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account::Other { name: name.to_owned(), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::{Account, lookup};

    #[test]
    fn an_account_is_read_from_its_own_line() {
        let passwd =
            "root:x:0:0:root:/:/bin/sh\npostgresql:x:7:7::/:\npostgres:x:101:104:admin,,,:/var:/bin/bash\n";
        let found = lookup(passwd, "postgres");
        assert!(matches!(found, Some(Account::Other { uid: 101, gid: 104, .. })), "{found:?}");
        assert!(lookup(passwd, "nobody").is_none());
        assert!(lookup("nobody:x:-2:-2", "nobody").is_none());
    }
}

//! Creation of the data directory of a new server.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::binaries::{self, Programs};
use crate::data_directory::Home;
use crate::error::Error;
use crate::random::random;
use crate::server::NAME;

/// Returns a password of 32 hexadecimal digits.
pub(crate) fn password() -> Result<String, Error> {
    let mut password = String::new();
    for byte in random::<16>()? {
        // Writing to a string cannot fail.
        let _ = write!(password, "{byte:02x}");
    }
    Ok(password)
}

/// Runs `initdb`. Every connection requires the password, including those through a socket.
pub(crate) fn create(programs: &Programs, home: &Home, password: &str, durable: bool) -> Result<(), Error> {
    let file = home.path().join("password");
    write_secret(&file, password)?;
    programs.account.own(&file)?;
    let run = |locale: &str| {
        let mut initdb = programs.command("initdb", home.path());
        initdb.arg("--pgdata").arg(&home.data).arg("--pwfile").arg(&file);
        initdb.args(["--username", NAME, "--auth=scram-sha-256", "--encoding=UTF8", locale]);
        if !durable {
            initdb.arg("--no-sync");
        }
        binaries::run(&mut initdb)
    };
    // Some systems do not have the first locale. Both compare text byte by byte.
    let made = match run("--locale=C.UTF-8") {
        Err(Error::Program { output, .. }) if output.contains("locale") => run("--locale=C"),
        made => made,
    };
    let removed = fs::remove_file(&file).map_err(Error::io(format!("removing {}", file.display())));
    made.and(removed)
}

/// Writes a file that no other user can read, at any time.
fn write_secret(path: &Path, secret: &str) -> Result<(), Error> {
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(secret.as_bytes()));
    written.map_err(Error::io(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::password;

    #[test]
    fn passwords_are_long_and_differ() {
        let (one, other) = (password().unwrap(), password().unwrap());
        assert!(one.len() == 32 && one.chars().all(|c| c.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, other);
    }
}

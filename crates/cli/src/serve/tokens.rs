//! The token file of a server, created at the first start and readable by its owner only.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tidelock_server::{Token, Tokens};

use crate::exit::Conflict;

/// The tokens in a file.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    read: Token,
    write: Token,
    /// The tokens of named callers: lines `read NAME TOKEN` and `write NAME TOKEN`.
    named: Vec<NamedToken>,
    new: bool,
}

/// The token of a named caller. The audit log records the name.
#[derive(Debug)]
struct NamedToken {
    writes: bool,
    name: String,
    token: Token,
}

impl NamedToken {
    /// Parses a line; `None` when it has no name.
    fn of(line: &str) -> Result<Option<Self>> {
        let parts: Vec<&str> = line.split(' ').collect();
        let [role @ ("read" | "write"), name, token] = parts.as_slice() else { return Ok(None) };
        let (writes, name) = (*role == "write", (*name).to_owned());
        Ok(Some(Self { writes, name, token: Token::new(*token)? }))
    }
}

impl TokenFile {
    /// Reads the tokens of the file, or creates the file with new ones.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let shown = || format!("the file of tokens {}", path.display());
        match make(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::read(path).with_context(shown),
            Err(error) => Err(error).with_context(shown),
            Ok(mut file) => {
                let kept = Self {
                    path: path.to_owned(),
                    read: Token::generate()?,
                    write: Token::generate()?,
                    named: Vec::new(),
                    new: true,
                };
                file.write_all(kept.shown().as_bytes()).and_then(|()| file.sync_all()).with_context(shown)?;
                Ok(kept)
            }
        }
    }

    fn read(path: &Path) -> Result<Self> {
        private(path)?;
        let text = std::fs::read_to_string(path)?;
        let token = |role: &str| {
            let bare = |line: &&str| !line.contains(' ');
            let found = text.lines().find_map(|line| line.strip_prefix(role)?.strip_prefix(' ').filter(bare));
            let missing =
                || Conflict(format!("it has no line \"{role} TOKEN\"; remove it, and new ones are made"));
            anyhow::Ok(Token::new(found.ok_or_else(missing)?)?)
        };
        let named =
            text.lines().filter_map(|line| NamedToken::of(line).transpose()).collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), read: token("read")?, write: token("write")?, named, new: false })
    }

    pub(super) fn tokens(&self) -> Tokens {
        let known = Tokens::none().read(&self.read).write(&self.write);
        self.named.iter().fold(known, |known, NamedToken { writes, name, token }| {
            if *writes { known.write_as(name, token) } else { known.read_as(name, token) }
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the tokens were just created.
    pub(super) fn is_new(&self) -> bool {
        self.new
    }

    /// Returns the link that logs a browser in.
    pub(super) fn link(&self, url: &str, writes: bool) -> String {
        let token = if writes { &self.write } else { &self.read };
        token.link(url)
    }

    /// Returns the file's contents.
    pub(super) fn shown(&self) -> String {
        format!("read {}\nwrite {}\n", self.read.reveal(), self.write.reveal())
    }
}

/// Creates a file that did not exist, not even as a symbolic link. Only its owner may read it from the
/// start.
fn make(path: &Path) -> std::io::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Rejects a path that is not a regular file or that other users may read.
fn private(path: &Path) -> Result<()> {
    let facts = std::fs::symlink_metadata(path)?;
    if !facts.is_file() {
        return Err(Conflict("it is no file; name another one with --token-file".to_owned()).into());
    }
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o777;
        if mode & 0o077 != 0 {
            let reason = format!("others may read it (mode {mode:o}); remove it, and new ones are made");
            return Err(Conflict(reason).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_name_is_a_named_token() {
        let token = "x".repeat(40);
        let line = |text: &str| NamedToken::of(text).unwrap().map(|named| (named.writes, named.name));
        assert_eq!(line(&format!("write ada {token}")), Some((true, "ada".to_owned())));
        assert_eq!(line(&format!("read ben {token}")), Some((false, "ben".to_owned())));
        assert_eq!(line(&format!("write {token}")), None);
        assert!(NamedToken::of("write ada short").is_err());
    }
}

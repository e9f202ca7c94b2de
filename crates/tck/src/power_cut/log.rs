//! The log of the recorder: file system changes in the order in which they happened.

use std::path::Path;

/// A change below the recorded directory. Files and directories are named by their inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A file was created.
    Create { directory: u64, name: &'a str, inode: u64 },
    /// A directory was created.
    Directory { directory: u64, name: &'a str, inode: u64 },
    /// Bytes were written.
    Write { inode: u64, offset: usize, data: &'a [u8] },
    /// The length was set.
    Truncate { inode: u64, length: usize },
    /// A file or a directory was flushed.
    Flush { inode: u64 },
    /// A name was moved inside its directory.
    Rename { directory: u64, from: &'a str, to: &'a str },
    /// A name was removed.
    Remove { directory: u64, name: &'a str },
}

/// The length of the fixed part of a record. The format is that of `struct header` in recorder.c.
const HEADER: usize = 32;

/// Reads the log of a recorder.
///
/// # Errors
/// A text that names the first change that the model does not know. A record that a kill cut short ends the log.
pub(crate) fn parse(log: &[u8]) -> Result<Vec<Change<'_>>, String> {
    let (mut changes, mut rest) = (Vec::new(), log);
    while let Some((header, after)) = rest.split_at_checked(HEADER) {
        let short = |i: usize| u32::from_ne_bytes(header[4 * i..4 * i + 4].try_into().unwrap()) as usize;
        let long = |i: usize| u64::from_ne_bytes(header[8 * i..8 * i + 8].try_into().unwrap());
        let (kind, lengths) = (short(0), [short(1), short(2), short(3)]);
        let Some((body, next)) = after.split_at_checked(lengths.iter().sum()) else { break };
        let (names, data) = body.split_at(lengths[0] + lengths[1]);
        let text = |bytes| std::str::from_utf8(bytes).map_err(|e| format!("a name is no text: {e}"));
        let (name, second) = (text(&names[..lengths[0]])?, text(&names[lengths[0]..])?);
        changes.push(change(kind, name, second, data, (long(2), long(3)))?);
        rest = next;
    }
    Ok(changes)
}

fn change<'a>(
    kind: usize,
    name: &'a str,
    second: &'a str,
    data: &'a [u8],
    (a, b): (u64, u64),
) -> Result<Change<'a>, String> {
    let size = |n: u64| usize::try_from(n).map_err(|e| e.to_string());
    Ok(match kind {
        1 => Change::Create { directory: a, name, inode: b },
        2 => Change::Directory { directory: a, name, inode: b },
        3 => Change::Write { inode: a, offset: size(b)?, data },
        4 => Change::Truncate { inode: a, length: size(b)? },
        5 => Change::Flush { inode: a },
        6 if a == b => Change::Rename { directory: a, from: name, to: second },
        6 => return Err(format!("{name} was moved to another directory")),
        7 => Change::Remove { directory: a, name },
        _ => return Err(format!("the model does not know the call: {name}")),
    })
}

/// Returns whether a file takes no part in a power cut, because no program expects it to survive one.
pub(crate) fn is_volatile(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with("-shm"))
}

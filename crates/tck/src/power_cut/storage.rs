//! The real directory of a recording, and how it is set to the state after a cut.
//!
//! A file keeps its inode number and its birth time over a power cut, and SQLite's store relies on that: a file with others
//! was copied. So a file of the recording is emptied and filled again, never replaced.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::disk::{Image, Node, ObjectId};
use super::log::is_volatile;
use super::workload::LEDGER;
use crate::rng::Rng;

/// The name of the store in the directory.
const STORE: &str = "store";

/// The directories of one recording.
#[derive(Debug)]
pub(crate) struct Storage {
    root: PathBuf,
    stash: PathBuf,
    log: PathBuf,
    /// The files of the recording that still exist, by inode number.
    known: HashMap<u64, ObjectId>,
}

impl Storage {
    /// Creates an empty directory to record, below `disk`. The log goes to `scratch`.
    pub(crate) fn create(disk: &Path, scratch: &Path) -> Self {
        let disk = fs::canonicalize(disk).expect("the directory exists");
        let (root, stash) = (disk.join("root"), disk.join("stash"));
        for directory in [&root, &stash, &stash.with_extension("2")] {
            let _ = fs::remove_dir_all(directory);
        }
        for directory in [&root, &stash] {
            fs::create_dir(directory).expect("the directory is writable");
        }
        Self { root, stash, log: scratch.join("log"), known: HashMap::new() }
    }

    /// Returns the same directory for a recording that begins with its present content.
    pub(crate) fn next(&self) -> Self {
        let (stash, log) = (self.stash.with_extension("2"), self.log.with_extension("2"));
        let _ = fs::remove_dir_all(&stash);
        fs::create_dir(&stash).expect("the scratch directory is writable");
        Self { root: self.root.clone(), stash, log, known: HashMap::new() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the address of the store.
    pub(crate) fn address(&self) -> String {
        self.root.join(STORE).display().to_string()
    }

    /// Returns the path of the ledger.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.root.join(LEDGER)
    }

    /// Begins the log with the present content of the directory, all of it durable.
    pub(crate) fn write_prelude(&self) {
        let mut log = fs::File::create(&self.log).expect("the scratch directory is writable");
        let root = inode(&self.root);
        put(&mut log, 2, "", &[], (0, root));
        let mut inodes = vec![];
        for (path, node) in self.read() {
            let real = self.root.join(&path);
            let directory = inode(real.parent().expect("it is below the root"));
            let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
            let own = inode(&real);
            match node {
                Node::Directory => put(&mut log, 2, name, &[], (directory, own)),
                Node::File { content, .. } => {
                    put(&mut log, 1, name, &[], (directory, own));
                    put(&mut log, 3, "", &content, (own, 0));
                }
            }
            inodes.push(own);
        }
        for inode in inodes.into_iter().chain([root]) {
            put(&mut log, 5, "", &[], (inode, 0));
        }
    }

    /// Returns whether the files of the recording exist, so that they keep their inodes. Those of a replayed log do not.
    pub(crate) fn keeps_inodes(&self) -> bool {
        !self.known.is_empty()
    }

    /// Ends a recording that began with the content of another one, whose files go back to its stash.
    pub(crate) fn give_back(&self, first: &Self) {
        self.clear();
        for entry in fs::read_dir(&self.stash).expect("the stash is readable") {
            let stashed = entry.expect("the stash is readable").path();
            fs::rename(&stashed, self.root.join(stashed.file_name().expect("it has a name")))
                .expect("the stash is on the same file system");
        }
        first.clear();
    }

    /// Returns the content of the directory.
    pub(crate) fn read(&self) -> Image {
        let mut image = Image::new();
        self.walk(&mut |path, real| {
            let node = if real.is_dir() {
                Node::Directory
            } else {
                Node::File { object: 0, content: fs::read(real).expect("the directory is readable") }
            };
            image.insert(path.to_owned(), node);
        });
        image.retain(|path, _| !is_volatile(path));
        image
    }

    /// Notes which files of the recording are still there.
    pub(crate) fn remember(&mut self, object: impl Fn(u64) -> Option<ObjectId>) {
        let mut known = HashMap::new();
        self.walk(&mut |_, real| {
            let inode = inode(real);
            if !real.is_dir()
                && let Some(object) = object(inode)
            {
                known.insert(inode, object);
            }
        });
        self.known = known;
    }

    /// Sets the directory to the state after a cut. The ledger is as its writer left it: it is no part of the disk.
    pub(crate) fn place(&self, image: &Image, ledger: &[u8], rng: &mut Rng) {
        self.clear();
        for (path, node) in image.iter().filter(|(path, _)| *path != Path::new(LEDGER)) {
            let real = self.root.join(path);
            match node {
                Node::Directory => fs::create_dir(&real).expect("the directory is writable"),
                Node::File { object, content } => {
                    let stashed = self.stash.join(object.to_string());
                    if stashed.exists() {
                        fs::rename(stashed, &real).expect("the stash is on the same file system");
                    }
                    fs::write(&real, content).expect("the directory is writable");
                }
            }
        }
        // SQLite's index of the log is either gone, or whatever the last write-back left.
        let store = self.root.join(STORE);
        if store.is_file() && rng.one_in(2) {
            let garbage: Vec<u8> = (0..32_768).map(|_| rng.draw() as u8).collect();
            let index = format!("{}-shm", store.display());
            fs::write(index, garbage).expect("the directory is writable");
        }
        fs::write(self.ledger(), ledger).expect("the directory is writable");
    }

    /// Empties the directory. Files of the recording go to the stash, where they keep their inodes.
    fn clear(&self) {
        let mut files = Vec::new();
        self.walk(&mut |_, real| files.push(real.to_owned()));
        for real in files.iter().filter(|real| !real.is_dir()) {
            match self.known.get(&inode(real)) {
                Some(object) => fs::rename(real, self.stash.join(object.to_string())),
                None => fs::remove_file(real),
            }
            .expect("the directory is writable");
        }
        for directory in files.iter().rev().filter(|real| real.is_dir()) {
            fs::remove_dir(directory).expect("the directory is writable");
        }
    }

    /// Visits everything below the root, a directory before its content.
    fn walk(&self, visit: &mut dyn FnMut(&Path, &Path)) {
        let mut left = vec![self.root.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).expect("the directory is readable") {
                let real = entry.expect("the directory is readable").path();
                visit(real.strip_prefix(&self.root).expect("it is below the root"), &real);
                if real.is_dir() {
                    left.push(real);
                }
            }
        }
    }
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("the directory is readable").ino()
}

/// Appends a record in the format of the recorder.
fn put(log: &mut fs::File, kind: u32, name: &str, data: &[u8], (a, b): (u64, u64)) {
    let mut record = Vec::with_capacity(32 + name.len() + data.len());
    for number in [kind, name.len() as u32, 0, data.len() as u32] {
        record.extend(number.to_ne_bytes());
    }
    for number in [a, b] {
        record.extend(number.to_ne_bytes());
    }
    record.extend(name.as_bytes());
    record.extend(data);
    log.write_all(&record).expect("the scratch directory is writable");
}

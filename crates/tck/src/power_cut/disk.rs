//! Model of a disk with a cache: the state that is durable, and the changes since that a power cut may lose.
//!
//! The model is the strictest that POSIX allows and that a journaling database can survive:
//!
//! - A write is durable after a flush of its file. Before that, each sector of 512 bytes holds the content of any moment since
//!   the last flush, independent of all other sectors. A sector that was being written may hold anything.
//! - The length of a file is also that of any moment since the last flush. Bytes that were never written read as zeros.
//! - A name is durable after a flush of its directory, and a flush of the file does not make it durable. Before that, each name
//!   independently has the state of any moment since the last flush of the directory.
//! - Bytes outside the range of a write stay as they were. SQLite relies on this (`SQLITE_IOCAP_POWERSAFE_OVERWRITE`).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::Device;
use super::log::Change;
use super::loss::Loss;

/// A file or a directory. It keeps its number when it is renamed, and an inode number that is used again gets a new one.
pub(crate) type ObjectId = usize;

/// A change of a file since its last flush.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending<'a> {
    Write { offset: usize, data: &'a [u8] },
    Truncate { length: usize },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FileState<'a> {
    pub(crate) durable: Vec<u8>,
    pub(crate) pending: Vec<Pending<'a>>,
}

/// A change of a name since the last flush of its directory.
#[derive(Clone, Debug)]
pub(crate) struct PendingName {
    pub(crate) name: String,
    pub(crate) target: Option<ObjectId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryState {
    pub(crate) durable: BTreeMap<String, ObjectId>,
    pub(crate) pending: Vec<PendingName>,
    current: BTreeMap<String, ObjectId>,
}

#[derive(Clone, Debug)]
enum Object<'a> {
    File(FileState<'a>),
    Directory(DirectoryState),
}

/// The content of one path after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    File { object: ObjectId, content: Vec<u8> },
}

/// The files and directories below the recorded directory, by relative path. A directory comes before its content.
pub(crate) type Image = BTreeMap<PathBuf, Node>;

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Disk<'a> {
    objects: Vec<Object<'a>>,
    by_inode: HashMap<u64, ObjectId>,
    device: Device,
}

/// The first object of a log.
const ROOT: ObjectId = 0;

impl<'a> Disk<'a> {
    /// Creates a disk without anything. The first directory of the log is its root.
    pub(crate) fn new(device: Device) -> Self {
        Self { objects: Vec::new(), by_inode: HashMap::new(), device }
    }

    /// Sets how the device treats the next flushes.
    pub(crate) fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// Returns the objects by the inode numbers that they have now.
    pub(crate) fn inodes(&self) -> HashMap<u64, ObjectId> {
        self.by_inode.clone()
    }

    /// Makes a change.
    pub(crate) fn apply(&mut self, change: &Change<'a>) {
        match *change {
            Change::Create { directory, name, inode } => {
                let object = self.add(inode, Object::File(FileState::default()));
                self.directory(directory).set(name, Some(object));
            }
            Change::Directory { directory, name, inode } => {
                let object = self.add(inode, Object::Directory(DirectoryState::default()));
                if object != ROOT {
                    self.directory(directory).set(name, Some(object));
                }
            }
            Change::Write { inode, offset, data } => {
                self.file(inode).pending.push(Pending::Write { offset, data });
            }
            Change::Truncate { inode, length } => {
                self.file(inode).pending.push(Pending::Truncate { length });
            }
            Change::Flush { inode } => self.flush(inode),
            Change::Rename { directory, from, to } => {
                let directory = self.directory(directory);
                let object = directory.current.get(from).copied();
                directory.set(to, object);
                directory.set(from, None);
            }
            Change::Remove { directory, name } => self.directory(directory).set(name, None),
        }
    }

    /// Returns the content of the disk after a power cut at this moment.
    pub(crate) fn cut(&self, loss: &mut Loss) -> Image {
        let mut image = Image::new();
        let mut directories = vec![(PathBuf::new(), ROOT)];
        while let Some((path, object)) = directories.pop() {
            let Object::Directory(directory) = &self.objects[object] else { continue };
            for (name, object) in loss.names(directory) {
                let path = path.join(name);
                let node = match &self.objects[object] {
                    Object::Directory(_) => {
                        directories.push((path.clone(), object));
                        Node::Directory
                    }
                    Object::File(file) => Node::File { object, content: loss.content(file) },
                };
                image.insert(path, node);
            }
        }
        image
    }

    fn add(&mut self, inode: u64, object: Object<'a>) -> ObjectId {
        self.objects.push(object);
        self.by_inode.insert(inode, self.objects.len() - 1);
        self.objects.len() - 1
    }

    fn flush(&mut self, inode: u64) {
        if self.device == Device::Honest {
            let object = self.known(inode);
            self.objects[object].flush();
        }
    }

    fn known(&self, inode: u64) -> ObjectId {
        self.by_inode.get(&inode).copied().expect("the log creates an object before it changes it")
    }

    fn file(&mut self, inode: u64) -> &mut FileState<'a> {
        let object = self.known(inode);
        match &mut self.objects[object] {
            Object::File(file) => file,
            Object::Directory(_) => panic!("the log writes to a directory"),
        }
    }

    fn directory(&mut self, inode: u64) -> &mut DirectoryState {
        let object = self.known(inode);
        match &mut self.objects[object] {
            Object::Directory(directory) => directory,
            Object::File(_) => panic!("the log creates a name in a file"),
        }
    }
}

impl Object<'_> {
    fn flush(&mut self) {
        match self {
            Self::File(file) => {
                for change in std::mem::take(&mut file.pending) {
                    change.apply(&mut file.durable);
                }
            }
            Self::Directory(directory) => {
                directory.durable.clone_from(&directory.current);
                directory.pending.clear();
            }
        }
    }
}

impl DirectoryState {
    fn set(&mut self, name: &str, target: Option<ObjectId>) {
        match target {
            Some(object) => self.current.insert(name.to_owned(), object),
            None => self.current.remove(name),
        };
        self.pending.push(PendingName { name: name.to_owned(), target });
    }
}

impl Pending<'_> {
    /// Makes the change to a whole file.
    pub(crate) fn apply(&self, content: &mut Vec<u8>) {
        match *self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[offset..end].copy_from_slice(data);
            }
            Self::Truncate { length } => content.resize(length, 0),
        }
    }
}

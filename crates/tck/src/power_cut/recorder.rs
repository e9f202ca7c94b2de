//! Recordings: a child process works with the recorder preloaded, and its log becomes a sequence of changes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Device;
use super::disk::{Disk, Image, Node, ObjectId};
use super::log::{self, Change};
use super::loss::{Extent, Loss};
use super::storage::Storage;
use super::workload::{Entry, LEDGER, Work};
use crate::Backend;
use crate::process::{self, Task};

const SOURCE: &str = include_str!("recorder.c");
/// The exit status of a process that the recorder killed after a number of changes.
const KILLED: i32 = 98;

/// Compiles the recorder as a shared library. Returns the reason if that is impossible.
pub(crate) fn compile(scratch: &Path) -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("the recorder needs Linux".to_owned());
    }
    let (source, library) = (scratch.join("recorder.c"), scratch.join("recorder.so"));
    std::fs::write(&source, SOURCE).expect("the scratch directory is writable");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).args(["-ldl", "-lpthread"]);
    match command.output() {
        Ok(output) if output.status.success() => Ok(library),
        Ok(output) => Err(format!("{compiler} failed: {}", String::from_utf8_lossy(&output.stderr))),
        Err(e) => Err(format!("there is no C compiler {compiler}: {e}")),
    }
}

/// The changes of one or more processes that worked one after the other in a directory.
#[derive(Debug)]
pub(crate) struct Recording {
    log: Vec<u8>,
    /// The number of changes that describe the directory before the first process.
    pub(crate) prelude: usize,
}

impl Recording {
    /// Reads a log from a file, and the changes in it that were there before the first process.
    pub(crate) fn read(path: &Path) -> Self {
        let log = std::fs::read(path).expect("the log is readable");
        let mut recording = Self { log, prelude: 0 };
        let changes = recording.changes();
        // The prelude ends with a flush of the root, which is the first directory of the log.
        let root = match changes.first() {
            Some(Change::Directory { inode, .. }) => *inode,
            other => panic!("the log begins with {other:?} and not with its root"),
        };
        let end = changes.iter().position(|change| *change == Change::Flush { inode: root });
        recording.prelude = end.expect("the prelude ends with a flush") + 1;
        recording
    }

    pub(crate) fn changes(&self) -> Vec<Change<'_>> {
        log::parse(&self.log).unwrap_or_else(|problem| panic!("the recording is useless: {problem}"))
    }

    /// Returns the state of the disk after the first changes.
    pub(crate) fn disk(&self, changes: usize, device: Device) -> Disk<'_> {
        let mut disk = Disk::new(Device::Honest);
        for (i, change) in self.changes().iter().take(changes.max(self.prelude)).enumerate() {
            if i == self.prelude {
                disk.set_device(device);
            }
            disk.apply(change);
        }
        disk
    }

    /// Returns the notes that the processes made in the ledger by the first changes.
    pub(crate) fn ledger(&self, changes: usize) -> Vec<Entry> {
        let image = self.disk(changes, Device::Honest).cut(&mut Loss::always(Extent::Nothing));
        let Some(Node::File { content, .. }) = image.get(Path::new(LEDGER)) else { return Vec::new() };
        let lines = std::str::from_utf8(content).expect("the ledger is text").lines();
        lines.map(|line| serde_json::from_str(line).expect("the ledger has whole lines")).collect()
    }
}

/// A process to record.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) work: Work,
    /// The number of changes after which the process is killed.
    pub(crate) kill_after: Option<u64>,
}

/// Runs processes in a directory, one after the other, and records their changes.
pub(crate) async fn record(
    library: &Path,
    backend: &dyn Backend,
    storage: &Storage,
    lives: &[Life],
) -> Recording {
    storage.write_prelude();
    for life in lives {
        run(library, backend, storage, life).await;
    }
    let recording = Recording::read(storage.log());
    explain(&recording, storage);
    recording
}

async fn run(library: &Path, backend: &dyn Backend, storage: &Storage, life: &Life) {
    let task = Task::PowerCut(life.work.clone());
    let mut command = process::command(backend, &storage.address(), task);
    command
        .env("LD_PRELOAD", library)
        .env("TIDELOCK_POWER_CUT_ROOT", storage.root())
        .env("TIDELOCK_POWER_CUT_LOG", storage.log())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(changes) = life.kill_after {
        command.env("TIDELOCK_POWER_CUT_KILL_AFTER", changes.to_string());
    }
    let output = command.output().await.expect("the test program starts again");
    let killed = life.kill_after.is_some() && output.status.code() == Some(KILLED);
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() || killed,
        "a recorded process failed: {}\n{said}\n{error}",
        output.status
    );
}

/// Checks that the log explains the directory: a change that the recorder missed would make every cut wrong.
fn explain(recording: &Recording, storage: &Storage) {
    let changes = recording.changes();
    let disk = recording.disk(changes.len(), Device::Honest);
    let expected = disk.cut(&mut Loss::always(Extent::Nothing));
    let found = storage.read();
    assert!(changes.len() > recording.prelude, "the recorder recorded nothing: it was not preloaded");
    for path in expected.keys().chain(found.keys()) {
        let (expected, found) = (content(&expected, path), content(&found, path));
        assert!(expected == found, "the log does not explain {}", path.display());
    }
}

fn content<'a>(image: &'a Image, path: &Path) -> Option<Option<&'a [u8]>> {
    image.get(path).map(|node| match node {
        Node::Directory => None,
        Node::File { content, .. } => Some(content.as_slice()),
    })
}

/// Returns the number of the object with an inode number at the end of a recording.
pub(crate) fn object_at_end(recording: &Recording) -> impl Fn(u64) -> Option<ObjectId> {
    let disk = recording.disk(usize::MAX, Device::Honest);
    let objects = disk.inodes();
    move |inode| objects.get(&inode).copied()
}

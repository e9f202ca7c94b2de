//! Storage faults: a full database, a damaged file, a read-only directory. Errors are typed, nothing is lost, and the
//! store recovers where it can.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tidelock_core::error::{Explain as _, Outcome, Retry};
use tidelock_core::id::EventType;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    ApplyError, Batch, Expect, NewEvent, Page, Store as _, StoreError, StoreErrorKind, StreamQuery, Sweep,
};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

fn big(n: i64) -> Batch {
    let value = Payload::of(&"x".repeat(20_000)).unwrap();
    let event = NewEvent::new(EventType::new("Filled").unwrap(), Payload::of(&n).unwrap());
    Batch::new().append(&Key::single("log").unwrap(), Expect::Any, [event]).put(
        &Key::new("block", [n]).unwrap(),
        Expect::Absent,
        value,
    )
}

/// Writes until the store fails. Returns the number of writes, and the error.
async fn fill(store: &SqliteStore) -> (i64, ApplyError) {
    for written in 0..2_000 {
        if let Err(error) = store.apply(big(written)).await {
            return (written, error);
        }
    }
    panic!("40 MB went into a store that has no room for them");
}

#[tokio::test]
async fn a_full_database_rejects_and_recovers_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let small = SqliteOptions { max_bytes: Some(1024 * 1024), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, small).await.unwrap();
    let (written, error) = fill(&store).await;
    assert_eq!(error.code().as_str(), "TL0302", "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert!(matches!(error.retry(), Retry::After(_)));
    assert!(written > 10);
    // Every acknowledged write is there, every refused one is not, and the log has no gap.
    let log = store.read_stream(StreamQuery::forward(&Key::single("log").unwrap(), 1000)).await.unwrap();
    assert_eq!(log.events.len(), written as usize);
    let blocks = store.documents(&KeyPrefix::kind("block"), Page::first(1000)).await.unwrap();
    assert_eq!(blocks.rows.len(), written as usize);
    // When room is available again, the store continues without being reopened.
    for n in 0..written {
        store.apply(Batch::new().delete(&Key::new("block", [n]).unwrap(), Expect::Exists)).await.unwrap();
    }
    store.sweep(Sweep::default()).await.unwrap();
    store.apply(big(written)).await.unwrap();
    assert!(store.integrity_check().await.unwrap().is_empty());
}

/// A device of a few megabytes, which only root can create.
struct SmallDevice(tempfile::TempDir);

impl SmallDevice {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(directory))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(Command::new("mount").args(["-o", &options]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0.path()).status());
    }
}

#[tokio::test]
async fn a_full_device_refuses_and_loses_nothing() {
    // Where it cannot be created, the limit of the test above replaces it.
    let Some(device) = SmallDevice::mount("2m") else { return };
    let store = SqliteStore::open(device.0.path().join("a.db"), SqliteOptions::default()).await.unwrap();
    let (written, error) = fill(&store).await;
    let ApplyError::Store { error, outcome } = error else { panic!("{error}") };
    let log = store.read_stream(StreamQuery::forward(&Key::single("log").unwrap(), 1000)).await.unwrap();
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert_eq!(outcome, Outcome::NotApplied);
    assert_eq!(log.events.len(), written as usize);
    device.grow("16m");
    store.apply(big(written)).await.unwrap();
    store.close().await;
    // Every connection is closed: no open file keeps the device busy. (Unmounting would show this as well, but a
    // process that another test starts holds this one's files for a moment.)
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fd.unwrap().path().read_link().ok());
    assert_eq!(open.filter(|path| path.starts_with(device.0.path())).count(), 0);
}

/// The log of a small store is short, so that the log alone does not fill a small device.
#[tokio::test]
async fn a_document_that_is_rewritten_does_not_fill_a_small_device() {
    let Some(device) = SmallDevice::mount("6m") else { return };
    let store = SqliteStore::open(device.0.path().join("a.db"), SqliteOptions::default()).await.unwrap();
    let value = Payload::of(&"x".repeat(5_000)).unwrap();
    for _ in 0..3_000 {
        store.apply(Batch::new().put(&Key::single("d").unwrap(), Expect::Any, value.clone())).await.unwrap();
    }
}

/// When a group cannot be committed, none of its callers learns of a state that never existed.
#[tokio::test(flavor = "multi_thread")]
async fn decisions_based_on_a_failed_neighbour_are_discarded() {
    let Some(device) = SmallDevice::mount("3m") else { return };
    let path = device.0.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let (huge, s) = (Key::single("huge").unwrap(), Key::single("s").unwrap());
    let event = || NewEvent::new(EventType::new("E").unwrap(), Payload::null());
    let first = event();
    let too_much = Payload::of(&"x".repeat(3 << 20)).unwrap();
    let winner = Batch::new().put(&huge, Expect::Absent, too_much).append(&s, Expect::Any, [first.clone()]);
    let loser = Batch::new().put(&huge, Expect::Absent, Payload::null());
    let repetition = Batch::new().append(&s, Expect::Absent, [first]);
    // While another connection holds the database, all of them queue and become one group.
    let other = tidelock_sqlite::rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let nothing = store.apply(Batch::new().guard_document(&huge, Expect::Any));
    let release = async { other.execute_batch("ROLLBACK").unwrap() };
    let (_, won, lost, repeated, ()) =
        tokio::join!(nothing, store.apply(winner), store.apply(loser), store.apply(repetition), release);
    assert_eq!(won.unwrap_err().code().as_str(), "TL0302");
    let there = (store.document(&huge).await.unwrap().is_some(), store.stream(&s).await.unwrap().is_some());
    assert_eq!(there, (lost.is_ok(), repeated.is_ok()), "{lost:?} {repeated:?}");
    if let Err(error) = lost {
        assert!(error.refusal().is_none(), "{error}");
    }
}

#[tokio::test]
async fn one_batch_that_does_not_fit_rejects_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let small = SqliteOptions { max_bytes: Some(1024 * 1024), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, small).await.unwrap();
    let other = tidelock_sqlite::rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let put = |name: &str, size: usize| {
        let value = Payload::of(&"x".repeat(size)).unwrap();
        store.apply(Batch::new().put(&Key::single(name).unwrap(), Expect::Absent, value))
    };
    let release = async { other.execute_batch("ROLLBACK").unwrap() };
    let (before, large, after, ()) = tokio::join!(put("a", 10), put("b", 3 << 20), put("c", 10), release);
    assert_eq!(large.unwrap_err().code().as_str(), "TL0302");
    before.unwrap();
    after.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_reported_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    for n in 0..50 {
        store.apply(big(n)).await.unwrap();
    }
    store.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    let (from, to) = (8 * 4096, bytes.len());
    bytes[from..to].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(&path, SqliteOptions::default()).await;
    let kind = match store {
        Err(error) => error.kind,
        Ok(store) => match store.documents(&KeyPrefix::all(), Page::first(100)).await {
            Err(error) => error.kind,
            Ok(_) => panic!("a damaged file was read as if it were sound"),
        },
    };
    assert_eq!(kind, StoreErrorKind::Corrupt);
}

/// A directory and, in another one, a file that may be read and not written.
#[test]
fn x8_what_may_not_be_written_is_read_only() {
    const CHILD: &str = "TIDELOCK_READ_ONLY_CHILD";
    const TEST: &str = "x8_what_may_not_be_written_is_read_only";
    if let Ok(path) = std::env::var(CHILD) {
        let error = refused(Path::new(&path));
        assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("writable"), "{error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(directory.path(), 0o555);
    as_another_user(TEST, CHILD, &path);
    mode(directory.path(), 0o755);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime
        .block_on(async { SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await });
    mode(&path, 0o444);
    mode(directory.path(), 0o777);
    as_another_user(TEST, CHILD, &path);
}

fn refused(path: &Path) -> StoreError {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(SqliteStore::open(path, SqliteOptions::default())).unwrap_err()
}

/// Runs a test of this program in a child that gets a path. If this user is root, the child runs as another user,
/// because root may write anywhere.
fn as_another_user(test: &str, variable: &str, path: &Path) {
    let exe = std::env::current_exe().unwrap();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    let copy = tempfile::Builder::new().prefix("tidelock-test-program").tempdir().unwrap();
    let mut command = if is_root {
        // Another user must be able to run the program, so it is copied to a world-readable directory.
        let program = copy.path().join("program");
        std::fs::copy(&exe, &program).unwrap();
        for path in [copy.path(), &program] {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(exe)
    };
    let output = command.args(["--exact", test]).env(variable, path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The header of a file states which versions may write it.
#[tokio::test]
async fn x8_a_file_that_only_a_newer_sqlite_may_write_is_read_only() {
    const WRITE_VERSION: usize = 18;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[WRITE_VERSION] = 3;
    std::fs::write(&path, &bytes).unwrap();
    let error = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::ReadOnly, "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is left as it is");
}

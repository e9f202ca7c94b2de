//! Search of all files: a sealed value is in none of them, and after forgetting neither is its key. The search covers
//! all files that SQLite leaves on the disk: the database, its log, and unused pages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64ct::{Base64UrlUnpadded, Encoding as _};
use common::{is_forgotten, master, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidelock_core::events::{Aggregate, Events};
use tidelock_core::key::Key;
use tidelock_core::store::Store as _;
use tidelock_sealed::{AssociatedData, MasterKey, Sealed, Vault};
use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{SqliteOptions, SqliteStore};

const CANARY: &str = "canary-4e1c7f-of-a-person";
/// Written without being sealed, to prove that the search finds existing text.
const PLAIN: &str = "canary-0b2d9a-in-the-open";

#[derive(Clone, Default, Serialize, Deserialize)]
struct Customer {
    email: Option<Sealed<String>>,
    note: String,
}

#[derive(Serialize, Deserialize)]
enum CustomerEvent {
    Registered { email: Sealed<String>, note: String },
}

impl Aggregate for Customer {
    const KIND: &'static str = "customer";
    type Event = CustomerEvent;

    fn apply(&mut self, event: &CustomerEvent) {
        let CustomerEvent::Registered { email, note } = event;
        (self.email, self.note) = (Some(email.clone()), note.clone());
    }
}

/// Two databases in a directory: the events and the keys.
struct Site {
    directory: tempfile::TempDir,
    events: SqliteStore,
    keys: SqliteStore,
}

impl Site {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (events, keys) = stores(&directory).await;
        Self { directory, events, keys }
    }

    async fn reopen(&mut self) {
        (self.events, self.keys) = stores(&self.directory).await;
    }

    fn vault(&self, master: MasterKey) -> Vault {
        Vault::new(Arc::new(self.keys.clone()), master)
    }

    /// Returns pieces of the stored key of a subject, each long enough for a search: pieces of the text, and of the
    /// bytes that it encodes.
    async fn wrapped_key(&self, subject: &str) -> Vec<Vec<u8>> {
        let key = Key::new("subject_key", [subject]).unwrap();
        let record: Value = self.keys.document(&key).await.unwrap().unwrap().value.parse().unwrap();
        let text = record["ciphertext"].as_str().unwrap().to_owned();
        let bytes = Base64UrlUnpadded::decode_vec(&text).unwrap();
        [text.as_bytes(), &bytes].iter().flat_map(|whole| whole.windows(10)).map(<[u8]>::to_vec).collect()
    }

    async fn close(&self) {
        self.events.close().await;
        self.keys.close().await;
    }

    fn vacuum(&self) {
        for name in ["events.db", "keys.db"] {
            let connection = Connection::open(self.directory.path().join(name)).unwrap();
            connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
        }
    }

    /// Returns the files that hold any of these texts.
    fn files_with(&self, needles: &[impl AsRef<[u8]>]) -> Vec<PathBuf> {
        let needles: HashSet<&[u8]> = needles.iter().map(AsRef::as_ref).collect();
        let lengths: HashSet<usize> = needles.iter().map(|needle| needle.len()).collect();
        let holds = |path: &Path| {
            let bytes = std::fs::read(path).unwrap();
            lengths.iter().any(|length| bytes.windows(*length).any(|window| needles.contains(window)))
        };
        let files = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file() && holds(path)).collect()
    }
}

async fn stores(directory: &tempfile::TempDir) -> (SqliteStore, SqliteStore) {
    let open = |name: &str| SqliteStore::open(directory.path().join(name), SqliteOptions::default());
    (open("events.db").await.unwrap(), open("keys.db").await.unwrap())
}

/// Writes an event with a sealed text, and a snapshot of it.
async fn register(site: &Site, vault: &Vault) -> (Events, AssociatedData) {
    let events = Events::new(Arc::new(site.events.clone())).snapshots::<Customer>(1);
    let stream = Customer::stream("c-1").unwrap();
    let place = AssociatedData::of(&stream, "email");
    let email = vault.seal("c-1", &place, &CANARY.to_owned()).await.unwrap();
    let happened = CustomerEvent::Registered { email, note: PLAIN.to_owned() };
    events.append::<Customer>("c-1", [happened]).await.unwrap();
    events.load::<Customer>("c-1").await.unwrap();
    // Snapshots are written in the background.
    let (snapshot, deadline) = (stream.beside("snapshot").unwrap(), Instant::now() + Duration::from_secs(30));
    while site.events.document(&snapshot).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "no snapshot was written");
        tokio::task::yield_now().await;
    }
    (events, place)
}

/// Forgets a subject among many whose key has been on the disk for a while, and returns its wrapped key.
async fn forget_among_many(site: &mut Site) -> Vec<Vec<u8>> {
    let vault = site.vault(master(1));
    let (events, place) = register(site, &vault).await;
    // Subjects before and after it push its key from page to page.
    for number in 0..200 {
        let id = format!("{}-{number}", if number % 2 == 0 { "b" } else { "d" });
        vault.seal(&id, &common::email(&id), &id).await.unwrap();
    }
    let key = site.wrapped_key("c-1").await;
    let email = events.load::<Customer>("c-1").await.unwrap().state.email.clone().unwrap();
    assert_eq!(common::read(&vault, &email, &place).await.as_deref(), Some(CANARY));
    // The log moves into the databases.
    site.close().await;
    site.reopen().await;
    assert_eq!(site.files_with(&[PLAIN]).len(), 1, "the search finds what is there");
    assert_eq!(site.files_with(&key).len(), 1, "the search finds what is there");
    let vault = site.vault(master(1));
    vault.forget("c-1").await.unwrap();
    assert!(is_forgotten(vault.open(&email, &place).await));
    key
}

#[track_caller]
fn assert_nothing_is_left(site: &Site, key: &[Vec<u8>]) {
    assert_eq!(site.files_with(&[PLAIN]).len(), 1, "the events are still there");
    let text = Base64UrlUnpadded::encode_string(CANARY.as_bytes());
    assert_eq!(site.files_with(&[CANARY, &text]), Vec::<PathBuf>::new());
    assert_eq!(site.files_with(key), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_the_canary_nor_the_key_is_left_on_the_disk() {
    let mut site = Site::open().await;
    let key = forget_among_many(&mut site).await;
    assert_eq!(site.files_with(&[CANARY]), Vec::<PathBuf>::new(), "it never was in any file");
    site.close().await;
    site.vacuum();
    assert_nothing_is_left(&site, &key);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_disk_can_be_cleaned_while_programs_run() {
    let mut site = Site::open().await;
    let key = forget_among_many(&mut site).await;
    site.vacuum();
    assert_nothing_is_left(&site, &key);
    let vault = site.vault(master(1));
    assert!(vault.is_forgotten("c-1").await.unwrap());
    let sealed = vault.seal("d-7", &common::email("d-7"), &text()).await.unwrap();
    assert_eq!(common::read(&vault, &sealed, &common::email("d-7")).await, Some(text()));
    site.close().await;
    assert_nothing_is_left(&site, &key);
}

//! The files backend as the conformance kit sees it.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tempfile::TempDir;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::store::Store;
use tidelock_files::{FilesOptions, FilesStore};
use tidelock_tck::{Backend, Capabilities, Database};

/// A factory of stores in temporary directories, which live as long as the backend.
#[derive(Default)]
pub(crate) struct Files {
    directories: Mutex<Vec<TempDir>>,
}

pub(crate) async fn open(path: &Path, clock: Arc<dyn Clock>) -> FilesStore {
    FilesStore::open(path, FilesOptions { clock, ..FilesOptions::default() }).await.unwrap()
}

#[async_trait]
impl Backend for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kit");
        self.directories.lock().unwrap().push(directory);
        Box::new(Directory { path, clock, opened: Mutex::default() })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, durable: true, documents_only: true }
    }

    async fn attach(&self, address: &str, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(open(Path::new(address), clock).await)
    }

    async fn detach(&self, store: Arc<dyn Store>) {
        let store: &dyn Any = store.as_ref();
        store.downcast_ref::<FilesStore>().expect("the store is on files").close().await;
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

struct Directory {
    path: PathBuf,
    clock: Arc<ManualClock>,
    opened: Mutex<Vec<FilesStore>>,
}

#[async_trait]
impl Database for Directory {
    async fn connect(&self) -> Arc<dyn Store> {
        let store = open(&self.path, Arc::<ManualClock>::clone(&self.clock)).await;
        self.opened.lock().unwrap().push(store.clone());
        Arc::new(store)
    }

    async fn restart(&mut self) -> Arc<dyn Store> {
        let opened: Vec<FilesStore> = self.opened.lock().unwrap().drain(..).collect();
        for store in opened {
            store.close().await;
        }
        self.connect().await
    }

    async fn backup(&self) -> bool {
        let copy = self.path.with_extension("copy");
        let _ = std::fs::remove_dir_all(&copy);
        copy_all(&self.path, &copy);
        true
    }

    async fn restore(&self) {
        for folder in ["documents", "operations"] {
            std::fs::remove_dir_all(self.path.join(folder)).unwrap();
        }
        copy_all(&self.path.with_extension("copy"), &self.path);
        let store = self.opened.lock().unwrap().last().expect("a store is open").clone();
        store.declare_cut("restored from a backup").await.unwrap();
    }

    fn address(&self) -> Option<String> {
        Some(self.path.display().to_string())
    }
}

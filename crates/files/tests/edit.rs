//! Manual edits of files, and damaged files.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock_core::clock::{Clock as _, ManualClock};
use tidelock_core::id::DocVersion;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Delta, DocumentFound, Expect, Page, Refusal, Store as _, StoreError, StoreErrorKind,
};
use tidelock_files::FilesStore;

struct DocumentFile {
    _directory: TempDir,
    clock: Arc<ManualClock>,
    store: FilesStore,
}

impl DocumentFile {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let store = common::open(&directory.path().join("s"), Arc::<ManualClock>::clone(&clock)).await;
        Self { _directory: directory, clock, store }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.store.path().join("documents").join(name)
    }

    fn edit(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.file(name)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.file(name), text.replace(from, to)).unwrap();
    }

    async fn put(&self, key: &Key, value: Value) {
        self.store.apply(Batch::new().put(key, Expect::Any, Payload::of(&value).unwrap())).await.unwrap();
    }

    async fn read(&self, key: &Key) -> Result<(u64, Value), StoreError> {
        let document = self.store.document(key).await?.unwrap();
        Ok((document.version.0, document.value.parse().unwrap()))
    }
}

fn key() -> Key {
    Key::new("limits", ["mail"]).unwrap()
}

const FILE: &str = "limits=mail.json";

#[tokio::test]
async fn a_file_is_readable_and_keeps_the_order_of_its_author() {
    let place = DocumentFile::new().await;
    let value =
        Payload::from_json(r#"{ "per_hour":100,"a": [1, 2], "wide": 123456789012345678901 }"#).unwrap();
    place.store.apply(Batch::new().put(&key(), Expect::Absent, value.clone())).await.unwrap();
    let text = fs::read_to_string(place.file(FILE)).unwrap();
    let (head, body) = text.split_once("  \"sha256\"").unwrap();
    let updated = place.clock.now();
    let expected = format!(
        "{{\n  \"key\": \"limits(\\\"mail\\\")\",\n  \"version\": 1,\n  \"updated_at\": \"{updated}\",\n"
    );
    assert_eq!(head, expected);
    let value = "\"value\": {\n    \"per_hour\": 100,\n    \"a\": [\n      1,\n      2\n    ],\n    \"wide\": 123456789012345678901\n  }\n}\n";
    assert!(body.ends_with(value), "{body}");
}

#[tokio::test]
async fn an_edit_becomes_a_new_version_on_first_access() {
    let place = DocumentFile::new().await;
    place.put(&key(), json!({ "per_hour": 100 })).await;
    place.edit(FILE, "100", "250");
    place.clock.advance(Duration::from_secs(1));
    assert_eq!(place.read(&key()).await.unwrap(), (2, json!({ "per_hour": 250 })));
    let document = place.store.document(&key()).await.unwrap().unwrap();
    assert_eq!((document.version, document.updated_at), (DocVersion(2), place.clock.now()));
    // A second edit gets another version than the first.
    place.edit(FILE, "250", "300");
    let stale = Batch::new().put(&key(), Expect::Exact(DocVersion(2)), Payload::null());
    let refused = place.store.apply(stale).await.unwrap_err();
    let Some(Refusal::Document { found, .. }) = refused.refusal() else { panic!("{refused}") };
    let DocumentFound::Present(found) = &**found else { panic!("{found:?}") };
    assert_eq!(found.version, DocVersion(3));
    assert_eq!(place.read(&key()).await.unwrap(), (3, json!({ "per_hour": 300 })));
    place.store.apply(Batch::new().merge(&key(), [Delta::inc("/per_hour", 1)])).await.unwrap();
    assert_eq!(place.read(&key()).await.unwrap(), (4, json!({ "per_hour": 301 })));
}

#[tokio::test]
async fn another_layout_is_no_edit() {
    let place = DocumentFile::new().await;
    place.put(&key(), json!({ "a": [1, 2], "b": "x y" })).await;
    let text = fs::read_to_string(place.file(FILE)).unwrap();
    fs::write(place.file(FILE), text.replace("\n  ", "\n\t ")).unwrap();
    assert_eq!(place.read(&key()).await.unwrap(), (1, json!({ "a": [1, 2], "b": "x y" })));
}

#[tokio::test]
async fn a_file_may_be_written_by_hand() {
    let place = DocumentFile::new().await;
    fs::write(place.file("greeting.json"), r#"{"key": "greeting", "value": "hello"}"#).unwrap();
    let page = place.store.documents(&KeyPrefix::all(), Page::first(10)).await.unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(place.read(&Key::single("greeting").unwrap()).await.unwrap(), (1, json!("hello")));
    let text = fs::read_to_string(place.file("greeting.json")).unwrap();
    assert!(text.contains("\"version\": 1") && text.contains("sha256"), "{text}");
}

#[tokio::test]
async fn an_unreadable_document_is_corrupt_and_names_the_file() {
    let deep = format!(r#"{{"key": "limits(\"mail\")", "value": {}{}}}"#, "[".repeat(501), "]".repeat(501));
    let cases = [
        ("{\"key\": ", "not the JSON of a document"),
        (r#"{"key": "other", "value": 1}"#, "whose file would be other.json"),
        (r#"{"key": "limits(\"mail\")"}"#, "no value"),
        (r#"{"key": "limits(\"mail\")", "value": 1, "note": "x"}"#, "unknown field `note`"),
        (r#"{"key": "limits(\"mail\")", "value": 1, "updated_at": "today"}"#, "expected RFC 3339"),
        (deep.as_str(), "nesting depth"),
    ];
    for (content, said) in cases {
        let place = DocumentFile::new().await;
        place.put(&key(), json!(1)).await;
        fs::write(place.file(FILE), content).unwrap();
        let read = place.read(&key()).await.unwrap_err();
        let listed = place.store.documents(&KeyPrefix::all(), Page::first(10)).await.unwrap_err();
        for error in [&read, &listed] {
            assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(FILE) && error.to_string().contains(said), "{error}");
        }
        assert!(place.store.apply(Batch::new().put(&key(), Expect::Any, Payload::null())).await.is_err());
        assert_eq!(fs::read_to_string(place.file(FILE)).unwrap(), content, "what is damaged is left alone");
        let other = Key::single("other").unwrap();
        place.put(&other, json!(2)).await;
        assert_eq!(place.read(&other).await.unwrap(), (1, json!(2)), "other documents are still served");
    }
}

#[tokio::test]
async fn files_of_others_in_the_directory_are_passed_over() {
    let place = DocumentFile::new().await;
    place.put(&key(), json!(1)).await;
    for name in [".limits=mail.json.swp", "limits=mail.json~", "README.md", "4913"] {
        fs::write(place.file(name), "not ours").unwrap();
    }
    assert_eq!(place.store.documents(&KeyPrefix::all(), Page::first(10)).await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn a_deleted_document_leaves_a_small_file_that_keeps_the_version() {
    let place = DocumentFile::new().await;
    place.put(&key(), json!({ "secret": 1 })).await;
    place.store.apply(Batch::new().delete(&key(), Expect::Any)).await.unwrap();
    let text = fs::read_to_string(place.file(FILE)).unwrap();
    assert!(text.contains("\"deleted\": true") && !text.contains("secret"), "{text}");
    place.put(&key(), json!(3)).await;
    assert_eq!(place.read(&key()).await.unwrap().0, 3);
}

//! Keys move from one master key to the next, and sealed values do not change.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use common::{Home, code, email, is_forgotten, master, read, record_key, text};
use serde_json::Value;
use tidelock_core::error::Explain as _;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Expect};
use tidelock_sealed::Vault;

fn vault(home: &Home, current: u8, older: &[u8]) -> Vault {
    Vault::with_options(Arc::clone(&home.keys), master(current), home.options())
        .with_older(older.iter().map(|seed| master(*seed)))
}

async fn wrapped_by(home: &Home, subject: &str) -> String {
    let record: Value = home.record(subject).await.unwrap().parse().unwrap();
    record["master"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_older_master_key_unwraps_and_the_current_one_wraps() {
    let home = Home::new();
    let old = vault(&home, 1, &[]).seal("c-1", &email("c-1"), &text()).await.unwrap();
    let both = vault(&home, 2, &[3, 1]);
    assert_eq!(read(&both, &old, &email("c-1")).await, Some(text()));
    both.seal("c-1", &email("c-1"), &text()).await.unwrap();
    both.seal("c-2", &email("c-2"), &text()).await.unwrap();
    assert_eq!(
        wrapped_by(&home, "c-1").await,
        master(1).id().to_string(),
        "the subject is rotated on request"
    );
    assert_eq!(wrapped_by(&home, "c-2").await, master(2).id().to_string());
    assert_eq!(read(&vault(&home, 1, &[]), &old, &email("c-1")).await, Some(text()));
    assert_eq!(code(vault(&home, 2, &[]).open(&old, &email("c-1")).await), "TL0908");
}

#[tokio::test]
async fn a_key_that_moved_needs_the_older_master_key_no_more() {
    let home = Home::new();
    let old = vault(&home, 1, &[]).seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert!(vault(&home, 2, &[1]).rewrap("c-1").await.unwrap());
    assert!(!vault(&home, 2, &[1]).rewrap("c-1").await.unwrap(), "once is enough");
    assert!(!vault(&home, 2, &[1]).rewrap("stranger").await.unwrap());
    assert_eq!(read(&vault(&home, 2, &[]), &old, &email("c-1")).await, Some(text()));
    let error = vault(&home, 1, &[]).open(&old, &email("c-1")).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0908");
    assert!(error.to_string().contains(&master(2).id().to_string()), "{error}");
    assert_eq!(code(vault(&home, 3, &[1]).rewrap("c-1").await), "TL0908");
}

#[tokio::test]
async fn all_keys_move_page_by_page_and_are_counted() {
    let home = Home::new();
    let (old, both) = (vault(&home, 1, &[]), vault(&home, 2, &[1]));
    let mut all = Vec::new();
    for id in 0..1_203 {
        let id = format!("c-{id}");
        all.push((old.seal(&id, &email(&id), &id).await.unwrap(), id));
    }
    both.seal("new", &email("new"), &text()).await.unwrap();
    old.forget("c-7").await.unwrap();
    old.forget("stranger").await.unwrap();
    vault(&home, 9, &[]).seal("lost", &email("lost"), &text()).await.unwrap();
    home.put_record("broken", Payload::null()).await;
    let neighbour = tidelock_core::key::Key::new("subject_key", ["c-1", "note"]).unwrap();
    home.keys.apply(Batch::new().put(&neighbour, Expect::Absent, Payload::null())).await.unwrap();

    let moved = both.rewrap_all().await.unwrap();
    assert_eq!((moved.moved, moved.current, moved.forgotten, moved.failed), (1_202, 1, 2, 2));
    assert_eq!(code::<()>(Err(moved.first_failure.unwrap())), "TL0907", "broken comes before lost");
    let again = both.rewrap_all().await.unwrap();
    assert_eq!((again.moved, again.current, again.forgotten, again.failed), (0, 1_203, 2, 2));

    let new = vault(&home, 2, &[]);
    for (sealed, id) in &all {
        if id == "c-7" {
            assert!(is_forgotten(new.open(sealed, &email(id)).await));
        } else {
            assert_eq!(read(&new, sealed, &email(id)).await.as_ref(), Some(id));
        }
    }
}

#[tokio::test]
async fn an_old_backup_of_the_keys_is_worth_nothing_without_its_master_key() {
    let home = Home::new();
    let sealed = vault(&home, 1, &[]).seal("c-1", &email("c-1"), &text()).await.unwrap();
    let backup = home.record("c-1").await.unwrap();
    let both = vault(&home, 2, &[1]);
    both.forget("c-1").await.unwrap();
    assert_eq!(both.rewrap_all().await.unwrap().failed, 0);
    // The older master key is destroyed; then the backup is restored.
    home.put_record("c-1", backup).await;
    let new = vault(&home, 2, &[]);
    assert_eq!(code(new.open(&sealed, &email("c-1")).await), "TL0908");
    assert!(home.keys.document(&record_key("c-1")).await.unwrap().is_some());
}

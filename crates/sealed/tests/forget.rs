//! Forgetting is permanent, for every vault.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Home, code, email, is_forgotten, master, read, text};
use serde_json::Value;
use tidelock_core::clock::Clock as _;
use tidelock_core::store::{Batch, Expect, MemoryStore, Store as _};
use tidelock_sealed::{Opened, Sealed, Vault, VaultOptions};

#[tokio::test]
async fn a_forgotten_value_opens_as_forgotten() {
    let home = Home::new();
    let vault = home.vault();
    let (one, other) = (email("c-1"), email("c-2"));
    let sealed = vault.seal("c-1", &one, &text()).await.unwrap();
    let kept = vault.seal("c-2", &other, &text()).await.unwrap();
    assert!(!vault.is_forgotten("c-1").await.unwrap());
    let at = vault.forget("c-1").await.unwrap();
    assert_eq!(at, home.clock.now());
    assert!(vault.is_forgotten("c-1").await.unwrap());
    assert!(matches!(vault.open(&sealed, &one).await, Ok(Opened::Forgotten { at: then }) if then == at));
    assert!(is_forgotten(vault.clone().open(&sealed, &one).await), "a clone knows at once");
    assert!(is_forgotten(home.vault().open(&sealed, &one).await));
    assert_eq!(read(&vault, &kept, &other).await, Some(text()), "others are not touched");
    assert!(!vault.is_forgotten("c-2").await.unwrap());
}

#[tokio::test]
async fn nothing_is_left_of_the_key() {
    let home = Home::new();
    home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    home.vault().forget("c-1").await.unwrap();
    let record: Value = home.record("c-1").await.unwrap().parse().unwrap();
    let fields: Vec<&String> = record.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["forgotten_at", "v"]);
}

#[tokio::test]
async fn nothing_more_is_sealed_for_it() {
    let home = Home::new();
    let vault = home.vault();
    vault.seal("c-1", &email("c-1"), &text()).await.unwrap();
    vault.forget("c-1").await.unwrap();
    for vault in [vault, home.vault()] {
        assert_eq!(code(vault.seal("c-1", &email("c-1"), &text()).await), "TL0902");
    }
}

#[tokio::test]
async fn forgetting_twice_and_forgetting_a_stranger_is_the_same() {
    let home = Home::new();
    let vault = home.vault();
    let first = vault.forget("stranger").await.unwrap();
    home.clock.advance(Duration::from_secs(5));
    assert_eq!(vault.forget("stranger").await.unwrap(), first);
    assert_eq!(home.vault().forget("stranger").await.unwrap(), first);
    assert_eq!(code(vault.seal("stranger", &email("c-1"), &text()).await), "TL0902");
}

#[tokio::test]
async fn a_damaged_key_can_be_forgotten() {
    let home = Home::new();
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    home.put_record("c-1", tidelock_core::payload::Payload::null()).await;
    home.vault().forget("c-1").await.unwrap();
    assert!(is_forgotten(home.vault().open(&sealed, &email("c-1")).await));
}

#[tokio::test]
async fn another_vault_notices_when_its_time_is_over_and_not_later() {
    let home = Home::new();
    let (here, there) = (home.vault(), home.vault());
    let sealed = here.seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_eq!(read(&there, &sealed, &email("c-1")).await, Some(text()));
    home.clock.advance(Duration::from_secs(30));
    assert_eq!(read(&there, &sealed, &email("c-1")).await, Some(text()), "use does not make it younger");
    here.forget("c-1").await.unwrap();
    home.clock.advance(Duration::from_secs(30) - Duration::from_micros(1));
    assert_eq!(read(&there, &sealed, &email("c-1")).await, Some(text()), "it was not asked again");
    let late: Sealed<String> = there.seal("c-1", &email("c-1"), &text()).await.unwrap();
    home.clock.advance(Duration::from_micros(1));
    assert!(is_forgotten(there.open(&sealed, &email("c-1")).await));
    assert!(
        is_forgotten(there.open(&late, &email("c-1")).await),
        "a value that was sealed after the forget is lost as well"
    );
    assert_eq!(code(there.seal("c-1", &email("c-1"), &text()).await), "TL0902");
}

#[tokio::test]
async fn a_clock_that_goes_back_does_not_keep_a_key() {
    let home = Home::new();
    let (here, there) = (home.vault(), home.vault());
    let sealed = here.seal("c-1", &email("c-1"), &text()).await.unwrap();
    assert_eq!(read(&there, &sealed, &email("c-1")).await, Some(text()));
    here.forget("c-1").await.unwrap();
    home.clock.set(tidelock_core::clock::Timestamp::EPOCH);
    assert!(is_forgotten(there.open(&sealed, &email("c-1")).await));
}

#[tokio::test]
async fn without_a_cache_another_vault_notices_at_once() {
    let home = Home::new();
    for options in [
        VaultOptions { cache_for: Duration::ZERO, ..home.options() },
        VaultOptions { cached: 0, ..home.options() },
    ] {
        let (home, options) = (Home::new(), options);
        let (here, there) = (home.vault(), home.with(options));
        let sealed = there.seal("c-1", &email("c-1"), &text()).await.unwrap();
        assert_eq!(read(&there, &sealed, &email("c-1")).await, Some(text()));
        here.forget("c-1").await.unwrap();
        assert!(is_forgotten(there.open(&sealed, &email("c-1")).await));
        assert_eq!(code(there.seal("c-1", &email("c-1"), &text()).await), "TL0902");
    }
}

#[tokio::test]
async fn more_subjects_than_the_cache_holds_are_no_trouble() {
    let home = Home::new();
    let vault = home.with(VaultOptions { cached: 4, ..home.options() });
    let mut all = Vec::new();
    for id in 0..50 {
        let id = format!("c-{id}");
        all.push((id.clone(), vault.seal(&id, &email(&id), &id).await.unwrap()));
    }
    for (id, sealed) in all.iter().chain(all.iter().rev()) {
        assert_eq!(read(&vault, sealed, &email(id)).await.as_ref(), Some(id));
    }
}

#[tokio::test]
async fn a_restored_backup_of_the_events_brings_nothing_back() {
    let home = Home::new();
    let (events, stream) = (MemoryStore::new(), tidelock_core::key::Key::new("customer", ["c-1"]).unwrap());
    let sealed = home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
    let value = tidelock_core::payload::Payload::of(&sealed).unwrap();
    events.apply(Batch::new().put(&stream, Expect::Absent, value.clone())).await.unwrap();
    home.vault().forget("c-1").await.unwrap();
    let restored = MemoryStore::new();
    restored.apply(Batch::new().put(&stream, Expect::Absent, value)).await.unwrap();
    let found = restored.document(&stream).await.unwrap().unwrap();
    let sealed: Sealed<String> = found.value.parse().unwrap();
    assert!(is_forgotten(home.vault().open(&sealed, &email("c-1")).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn first_seals_that_race_share_one_key() {
    for round in 0..20 {
        let home = Arc::new(Home::new());
        let start = Arc::new(tokio::sync::Barrier::new(16));
        let tasks = (0..16).map(|number| {
            let (home, start) = (Arc::clone(&home), Arc::clone(&start));
            tokio::spawn(async move {
                let vault = home.vault();
                start.wait().await;
                vault.seal("c-1", &email("c-1"), &number).await.unwrap()
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let sealed = task.await.unwrap();
            assert_eq!(read(&home.vault(), &sealed, &email("c-1")).await, Some(number), "round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_races_with_forget_brings_the_key_back() {
    for round in 0..50 {
        let mut home = Home::new();
        if round % 2 == 0 {
            home.vault().seal("c-1", &email("c-1"), &text()).await.unwrap();
        }
        let old = std::mem::replace(&mut home.master, master(2));
        let home = Arc::new(home);
        let start = Arc::new(tokio::sync::Barrier::new(12));
        let vault = |home: &Home| -> Vault { home.vault().with_older([old.clone()]) };
        let tasks: Vec<_> = (0..12)
            .map(|number| {
                let (vault, start) = (vault(&home), Arc::clone(&start));
                tokio::spawn(async move {
                    start.wait().await;
                    match number % 3 {
                        0 => drop(vault.seal("c-1", &email("c-1"), &text()).await),
                        1 => drop(vault.rewrap("c-1").await.unwrap()),
                        _ => drop(vault.forget("c-1").await.unwrap()),
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(home.vault().is_forgotten("c-1").await.unwrap(), "round {round}");
        assert!(!home.record("c-1").await.unwrap().as_str().contains("ciphertext"), "round {round}");
    }
}

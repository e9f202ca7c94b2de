//! Tests of lease views.

use super::*;
use crate::lease::list;

#[tokio::test]
async fn a_view_shows_holder_note_age_and_line() {
    let (store, lock) = (store(), key("v"));
    assert_eq!(view_of(&store, &lock).await, None);
    let held = asked(&store, &lock, "one").note("nightly report").try_acquire().await.unwrap();
    let first = in_line(&store, &lock, "two").await;
    let second = in_line(&store, &lock, "three").await;
    let view = view_of(&store, &lock).await.unwrap();
    let holder = view.holder.clone().unwrap();
    assert_eq!((&view.key, &holder.owner, holder.fence), (&lock, held.owner(), held.fence()));
    assert_eq!(view.note.as_deref(), Some("nightly report"));
    assert_eq!(view.age(), Some(view.now.since(holder.since)));
    assert_eq!((view.takeovers, view.has_ended(), view.stolen), (0, false, None));
    assert_eq!(view.waiters.iter().map(|w| given_part(&w.owner)).collect::<Vec<_>>(), ["two", "three"]);
    held.release().await.unwrap();
    let next = in_time("the next", first).await.unwrap().unwrap();
    assert_eq!(view_of(&store, &lock).await.unwrap().note, None, "a note goes with its holder");
    second.abort();
    drop(next);
}

#[tokio::test]
async fn the_line_of_one_lease_is_not_that_of_another() {
    let store = store();
    let short = Key::new("line", ["a"]).unwrap();
    let long = Key::new("line", ["a", "b"]).unwrap();
    let held = asked(&store, &long, "one").try_acquire().await.unwrap();
    let waiter = in_line(&store, &long, "two").await;
    assert!(waiting(&store, &short).await.is_empty());
    drop(asked(&store, &short, "three").try_acquire().await.unwrap());
    waiter.abort();
    drop(held);
}

#[tokio::test]
async fn leases_are_listed_in_pages_and_nothing_else_is() {
    let store = store();
    let other = NewWork::once(Key::new("zebra", ["z"]).unwrap(), "jobs".parse().unwrap());
    let before = NewWork::once(Key::new("aardvark", ["a"]).unwrap(), "jobs".parse().unwrap());
    store.apply(Batch::new().enqueue(other).enqueue(before)).await.unwrap();
    let mut held = Vec::new();
    for i in 0..5 {
        held.push(asked(&store, &key(&format!("l{i}")), "one").try_acquire().await.unwrap());
    }
    let waiter = in_line(&store, &key("l3"), "two").await;
    let (mut seen, mut page, mut pages) = (Vec::new(), Page::first(2), 0);
    loop {
        let found = list(&store, page).await.unwrap();
        pages += 1;
        assert!(found.rows.len() <= 2);
        seen.extend(found.rows);
        match found.next {
            Some(next) => page = Page::after(&next, 2),
            None => break,
        }
    }
    let keys: Vec<Key> = seen.iter().map(|view| view.key.clone()).collect();
    assert_eq!(keys, (0..5).map(|i| key(&format!("l{i}"))).collect::<Vec<_>>());
    assert_eq!(pages, 3);
    assert_eq!(seen[3].waiters.len(), 1);
    assert!(seen.iter().enumerate().all(|(i, view)| i == 3 || view.waiters.is_empty()));
    waiter.abort();
    drop(held);
}

#[tokio::test]
async fn a_long_line_is_read_as_a_whole() {
    let (store, lock) = (store(), key("long-line"));
    for i in 0..40 {
        let place = keys::place(&lock).unwrap();
        let claim = Claim::named(&owner(&format!("w{i}/x")), &place, &keys::waits().unwrap(), LONG);
        store.claim(claim).await.unwrap();
    }
    let waiters = waiting(&store, &lock).await;
    assert_eq!(waiters, (0..40).map(|i| format!("w{i}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn names_lead_from_a_key_to_its_lease_and_back() {
    let store = store();
    let odd = Key::of("k", &["a,b".into(), 7.into(), uuid::Uuid::nil().into()]).unwrap();
    for lock in [odd, Key::single("alone").unwrap()] {
        assert_eq!(keys::leased_key(&keys::row_of(&lock).unwrap()), Some(lock.clone()));
        let held = asked(&store, &lock, "one").try_acquire().await.unwrap();
        assert_eq!(view_of(&store, &lock).await.unwrap().key, lock);
        drop(held);
    }
    assert_eq!(keys::leased_key(&key("x")), None);
    let long = owner(&"ü".repeat(100));
    let unique = crate::worker::unique_owner(Some(&long)).unwrap();
    assert_ne!(unique, crate::worker::unique_owner(Some(&long)).unwrap());
}

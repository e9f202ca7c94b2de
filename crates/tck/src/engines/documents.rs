//! Document transactions, schemas and quarantine (X1–X8 through `tidelock_core::state::Document`), and the history and
//! watches of containers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use tidelock_core::state::{
    Document as Doc, HistoryChange, Items, MutateError, Mutated, Schema, State, StateError, StateRegistry,
    WriteOutcome as Did, history_key,
};

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Board {
    count: i64,
    tasks: Items<Task>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Task {
    name: String,
    delay: u32,
}

/// Returns the schema. Version 1 had no tasks.
fn schema() -> Schema {
    Schema::new().then(|mut board| {
        board["tasks"] = json!([]);
        Ok(board)
    })
}

fn board(conn: &Conn, name: &str) -> Doc<Board> {
    StateRegistry::new(Arc::clone(&conn.0)).document(&key(name), schema())
}

async fn add(board: &Doc<Board>, by: i64) -> Mutated<i64> {
    let count = board.transaction(move |tx| {
        let mut board = tx.current();
        board.count += by;
        let count = board.count;
        tx.set(board);
        Ok::<_, String>(count)
    });
    count.await.unwrap()
}

/// A callback that fails or panics writes nothing, whatever it set, and the next transaction runs. Documents only.
pub async fn x1_a_callback_that_fails_writes_nothing(env: &Env) {
    let board = board(&env.store, "x1-doc");
    let failed = board.transaction(|tx| {
        tx.set(Board { count: 9, ..Board::default() });
        Err::<(), _>("no")
    });
    assert!(matches!(failed.await, Err(MutateError::Refused("no"))));
    let panicking = board.clone();
    let panicked = tokio::spawn(async move {
        let board = panicking.transaction(|tx| {
            tx.set(Board { count: 9, ..Board::default() });
            if tx.new_value().is_some() {
                std::panic::resume_unwind(Box::new("no"));
            }
            Ok::<_, String>(())
        });
        board.await.map(|_| ())
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(env.other.value(&key("x1-doc")).await, None);
    assert_eq!(add(&board, 1).await.result, 1);
    assert_eq!(env.other.value(&key("x1-doc")).await, Some(json!({"count": 1, "tasks": [], "version": 2})));
}

/// A failed write is an error. The state is unchanged, and the next transaction runs. Documents only.
pub async fn x2_a_write_that_fails_leaves_the_document(env: &Env) {
    let board = board(&env.store, "x2-doc");
    add(&board, 1).await;
    let huge = board.transaction(|tx| {
        let name = "x".repeat(limits::PAYLOAD_BYTES);
        tx.set(Board { count: 2, tasks: vec![Task { name, delay: 0 }].into() });
        Ok::<_, String>(())
    });
    let Err(MutateError::State(error)) = huge.await else { panic!("it is too large") };
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(env.other.value(&key("x2-doc")).await.unwrap()["count"], json!(1));
    assert_eq!(add(&board, 1).await.result, 2);
}

/// Without a set, or with a set of equal content, nothing is written. Maps in another order are equal content.
/// Documents only.
pub async fn x3_nothing_set_or_nothing_changed_is_not_written(env: &Env) {
    let doc = board(&env.store, "x3-doc");
    let looked = doc.transaction(|tx| Ok::<_, String>((tx.existing().is_none(), tx.new_value().is_none())));
    assert_eq!(looked.await.unwrap().result, (true, true));
    assert_eq!(env.other.value(&key("x3-doc")).await, None);
    let first = add(&doc, 1).await.outcome.version();
    assert_eq!(add(&doc, 0).await.outcome, Did::Unchanged { version: first });
    let looked = doc.transaction(|tx| Ok::<_, String>(tx.current().count)).await.unwrap();
    assert_eq!((looked.result, looked.outcome), (1, Did::Unchanged { version: first }));

    let states = StateRegistry::new(Arc::clone(&env.store.0));
    let map: Doc<HashMap<String, u32>> = states.document(&key("x3-map"), Schema::new());
    let fill = |tx: &mut tidelock_core::state::Transaction<HashMap<String, u32>>| {
        tx.set((0..50).map(|i| (format!("k{i:02}"), i)).collect());
        Ok::<_, String>(())
    };
    let first = map.transaction(fill).await.unwrap().outcome;
    let text = env.store.doc(&key("x3-map")).await.unwrap().value;
    assert_eq!(map.transaction(fill).await.unwrap().outcome, Did::Unchanged { version: first.version() });
    let names: Vec<_> = text.as_str().matches("k").collect();
    assert_eq!(names.len(), 50);
    assert!(text.as_str().find("k00") < text.as_str().find("k01"), "fields are in order: {text}");
}

/// A nested transaction on the same document is an error at once; on another document it is allowed. Documents only.
pub async fn x4_a_transaction_inside_another_is_an_error(env: &Env) {
    let (outer, other) = (board(&env.store, "x4-doc"), board(&env.store, "x4-other"));
    let nested = outer.clone();
    let result = outer.transaction_async(move |tx| {
        let (nested, other) = (nested.clone(), other.clone());
        async move {
            let inner = nested.transaction(|_| Ok::<_, String>(())).await;
            let beside = add(&other, 1).await.result;
            Ok::<_, String>((tx, (inner.unwrap_err().to_string(), beside)))
        }
    });
    let (error, beside) = result.await.unwrap().result;
    assert!(error.contains("its own state"), "{error}");
    assert_eq!(beside, 1);
}

/// N concurrent transactions, on one connection and on two, have N effects. Documents only.
pub async fn x5_n_transactions_have_n_effects(env: &Env) {
    for connections in ONE_AND_TWO {
        let name = format!("x5-doc-{connections}");
        let work = |_: usize, conn: Conn| {
            let board = board(&conn, &name);
            async move {
                for _ in 0..5 {
                    add(&board, 1).await;
                }
            }
        };
        env.race(connections, 10, work).await;
        assert_eq!(env.other.value(&key(&name)).await.unwrap()["count"], json!(50));
    }
}

/// An old schema is migrated for the reader and persisted with the next write. A newer one is rejected and left
/// unchanged. Documents only.
pub async fn x6_old_schemas_are_migrated_and_newer_ones_refused(env: &Env) {
    let k = key("x6-doc");
    for old in [json!({"count": 1, "version": 1}), json!({"count": 1})] {
        env.store.done(Batch::new().put(&k, Expect::Any, payload(old.clone()))).await;
        let doc = board(&env.store, "x6-doc");
        let read = doc.read().await.unwrap().unwrap();
        assert_eq!(*read.value, Board { count: 1, ..Board::default() });
        let looked = doc.transaction(|tx| Ok::<_, String>(tx.is_migrated())).await.unwrap();
        assert!(looked.result);
        assert_eq!(env.other.value(&k).await, Some(old), "looking writes nothing");
        let same = doc.transaction(|tx| {
            tx.set(tx.current());
            Ok::<_, String>(())
        });
        same.await.unwrap();
        let new = json!({"count": 1, "tasks": [], "version": 2});
        assert_eq!(env.other.value(&k).await, Some(new), "the next write brings it up to date");
        assert!(!doc.transaction(|tx| Ok::<_, String>(tx.is_migrated())).await.unwrap().result);
    }
    let newer = json!({"count": 1, "tasks": [], "version": 3, "more": true});
    env.other.done(Batch::new().put(&k, Expect::Any, payload(newer.clone()))).await;
    let doc = board(&env.store, "x6-doc");
    let Err(error) = doc.read().await else { panic!("it is newer") };
    assert!(matches!(error, StateError::NewerSchema { found: 3, known: 2, .. }), "{error}");
    let Err(MutateError::State(error)) = doc.transaction(|_| Ok::<_, String>(())).await else {
        panic!("it is newer")
    };
    assert_eq!(error.code().to_string(), "TL0608");
    assert_eq!(env.other.value(&k).await, Some(newer));
}

/// A failing migration step, an invalid version and a shape that fits no version are errors, and the document stays.
/// Documents only.
pub async fn x6_documents_that_cannot_be_migrated_stay(env: &Env) {
    let k = key("x6-stays");
    let doc: Doc<Board> = StateRegistry::new(Arc::clone(&env.store.0))
        .document(&k, Schema::starting_at(4).then(|_| Err("no way".to_owned())));
    let cases = [
        (json!({"version": 4}), "no way"),
        (json!({"version": 3}), "only 4 to 5"),
        (json!({"version": "new"}), "no schema version"),
        (json!([1]), "no JSON object"),
        (json!({"version": 5, "count": "many"}), "invalid type"),
    ];
    for (found, reason) in cases {
        env.store.done(Batch::new().put(&k, Expect::Any, payload(found.clone()))).await;
        let Err(error) = doc.read().await else { panic!("{found} cannot be read") };
        assert!(
            matches!(error, StateError::Undecodable { .. }) && error.to_string().contains(reason),
            "{error}"
        );
        assert!(doc.transaction(|_| Ok::<_, String>(())).await.is_err());
        assert_eq!(env.other.value(&k).await, Some(found));
    }
}

/// An undecodable item is quarantined. The others load, and it is written back at its place. Documents only.
pub async fn x7_a_bad_item_is_kept(env: &Env) {
    let k = key("x7-doc");
    let (good, bad) = (json!({"name": "a", "delay": 1}), json!({"name": "b", "delay": "soon", "note": [1]}));
    let before = json!({"count": 0, "tasks": [bad, good, 7], "version": 2});
    env.store.done(Batch::new().put(&k, Expect::Any, payload(before.clone()))).await;
    let doc = board(&env.store, "x7-doc");
    let read = doc.read().await.unwrap().unwrap();
    assert_eq!(*read.value.tasks, [Task { name: "a".to_owned(), delay: 1 }]);
    let set_aside = read.value.tasks.quarantine();
    assert_eq!(set_aside.iter().map(|bad| bad.place).collect::<Vec<_>>(), [0, 2]);
    assert!(set_aside[0].reason.contains("soon"), "{}", set_aside[0].reason);
    let same = doc.transaction(|tx| {
        tx.set(tx.current());
        Ok::<_, String>(())
    });
    assert_eq!(same.await.unwrap().outcome, Did::Unchanged { version: read.version });
    let more = doc.transaction(|tx| {
        let mut board = tx.current();
        board.tasks.push(Task { name: "c".to_owned(), delay: 3 });
        tx.set(board);
        Ok::<_, String>(())
    });
    more.await.unwrap();
    let after = json!({"count": 0, "tasks": [bad, good, 7, {"name": "c", "delay": 3}], "version": 2});
    assert_eq!(env.other.value(&k).await, Some(after));
    let mended = doc.transaction(|tx| {
        let mut board = tx.current();
        board.tasks.take_quarantine();
        board.tasks.clear();
        tx.set(board);
        Ok::<_, String>(())
    });
    mended.await.unwrap();
    assert_eq!(env.other.value(&k).await.unwrap()["tasks"], json!([]));
}

/// A healthy store is accessible, with or without a document. An undecodable document is an error. Nothing is written.
/// Documents only.
pub async fn x8_a_store_that_is_well_is_accessible(env: &Env) {
    let doc = board(&env.store, "x8-doc");
    doc.ensure_accessible().await.unwrap();
    assert_eq!(env.other.value(&key("x8-doc")).await, None);
    add(&doc, 1).await;
    let before = env.other.doc(&key("x8-doc")).await;
    doc.ensure_accessible().await.unwrap();
    assert_eq!(env.other.doc(&key("x8-doc")).await, before);
    env.other.done(Batch::new().put(&key("x8-doc"), Expect::Any, number(1))).await;
    let error = doc.ensure_accessible().await.unwrap_err();
    assert!(matches!(error, StateError::Undecodable { .. }), "{error}");
}

/// A transaction deletes a document. A concurrent transaction that read it before runs again. Documents only.
pub async fn t4_a_transaction_deletes(env: &Env) {
    let (here, there) = (board(&env.store, "x-delete"), board(&env.other, "x-delete"));
    add(&here, 1).await;
    add(&there, 1).await;
    let gone = here.transaction(|tx| {
        tx.delete();
        Ok::<_, String>(tx.current().count)
    });
    let gone = gone.await.unwrap();
    assert!(matches!(gone.outcome, Did::Committed { .. }));
    assert_eq!((gone.result, here.read().await.unwrap()), (0, None));
    assert_eq!(add(&there, 5).await.result, 5, "it starts from the default");
}

/// A value that cannot be encoded fails alone: other mutations in the same write succeed. Documents only.
pub async fn s14_a_value_that_cannot_be_written_fails_alone(env: &Env) {
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct Odd {
        count: i64,
        #[serde(with = "unwritable")]
        name: String,
    }
    let record: State<Odd> = StateRegistry::new(Arc::clone(&env.store.0)).at(key("s14-odd"));
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let change = move |odd: &mut Odd| {
                odd.count += 1;
                match i {
                    3 => "cannot be written".clone_into(&mut odd.name),
                    7 => "panics".clone_into(&mut odd.name),
                    _ => {}
                }
            };
            let record = record.clone();
            tokio::spawn(async move { record.mutate(change).await })
        })
        .collect();
    let mut failed = Vec::new();
    for (i, task) in tasks.into_iter().enumerate() {
        if let Err(error) = task.await.unwrap() {
            assert!(matches!(error, StateError::Invalid { .. }), "{error}");
            failed.push(i);
        }
    }
    assert_eq!(failed, [3, 7]);
    assert_eq!(record.get().await.unwrap().count, 18);
}

mod unwritable {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
        match name {
            "cannot be written" => Err(serde::ser::Error::custom(name)),
            "panics" => std::panic::resume_unwind(Box::new("it cannot be written")),
            name => serializer.serialize_str(name),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
        String::deserialize(deserializer)
    }
}

/// A watch yields the current version and eventually the newest one, from either connection. It also reports that no
/// document exists. Documents only.
pub async fn s3_a_watch_ends_at_the_newest_version(env: &Env) {
    let here: State<i64> = StateRegistry::new(Arc::clone(&env.store.0)).at(key("s3-watch"));
    let there: State<i64> = StateRegistry::new(Arc::clone(&env.other.0)).at(key("s3-watch"));
    let mut versions = here.watch();
    assert_eq!(versions.next().await.unwrap(), None, "there is none yet");
    let seen = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&seen);
    let watching = tokio::spawn(async move {
        let mut last = None;
        loop {
            let next = versions.next().await.unwrap().expect("it was not deleted");
            assert!(last < Some(next.version), "versions rise");
            last = Some(next.version);
            counted.fetch_add(1, Ordering::SeqCst);
            if next.value == 20 {
                return versions;
            }
        }
    });
    for i in 1..=20 {
        let record = if i % 2 == 0 { &here } else { &there };
        record.set(i).await.unwrap();
    }
    let mut versions = watching.await.unwrap();
    assert!((1..=20).contains(&seen.load(Ordering::SeqCst)));
    there.delete().await.unwrap();
    assert_eq!(versions.next().await.unwrap(), None, "it was deleted");
}

/// With a history, each write is recorded in the same commit: values, deltas and deletes. A write that did not happen
/// is not recorded.
pub async fn s6_a_history_records_every_write_and_no_other(env: &Env) {
    let states = StateRegistry::new(Arc::clone(&env.store.0)).with_history();
    let record: State<HashMap<String, i64>> = states.at(key("s6-history"));
    record.set(HashMap::from([("a".to_owned(), 1)])).await.unwrap();
    record.set(HashMap::from([("a".to_owned(), 1)])).await.unwrap();
    record.inc("/a", 2).await.unwrap();
    record.inc("/missing/of/a/number", 1).await.unwrap();
    record.push("/a", 1).await.unwrap_err();
    record.delete().await.unwrap();
    let past = record.history(None, 10).await.unwrap();
    let told: Vec<_> = past.iter().map(|past| &past.change).collect();
    let put = HistoryChange::Put(payload(json!({"a": 1})));
    let merge = |path: &str, by| HistoryChange::Merge(vec![Delta::inc(path, by)]);
    assert_eq!(
        told,
        [&HistoryChange::Delete, &merge("/missing/of/a/number", 1), &merge("/a", 2), &put],
        "the newest first"
    );
    let older = record.history(Some(past[1].number), 1).await.unwrap();
    assert_eq!(older[0].change, merge("/a", 2));
    assert!(record.history(Some(StreamVersion(0)), 9).await.unwrap().is_empty());
    let stream = env.other.stream(&history_key(&key("s6-history")).unwrap()).await.unwrap().unwrap();
    assert_eq!(stream.head, Some(StreamVersion(3)));
}

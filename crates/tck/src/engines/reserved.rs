//! Reserved names (D15): the handles of the library reject them, and an archived stream without its base is an error.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock_core::error::Explain as _;
use tidelock_core::events::{Aggregate, Events, EventsError};
use tidelock_core::key::reserved::BASE;
use tidelock_core::payload::Payload;
use tidelock_core::state::{Schema, StateRegistry};

use crate::ledger::*;
use crate::prelude::*;

/// Creates an account with 828 in archived events and 217 in the remaining one.
async fn archived(env: &Env, id: &str) -> (Key, Key) {
    let events = here(env);
    for n in [800, 28, 217] {
        events.append::<Ledger>(id, [Booked { n }]).await.unwrap();
    }
    let stream = stream(id);
    closing(&events, &stream, &Shelf::default()).keep_last::<Ledger>(1).await.unwrap();
    let base = stream.beside(BASE).unwrap();
    assert_eq!(there(env).load::<Ledger>(id).await.unwrap().state.sum, 1_045);
    (stream, base)
}

/// Checks that a load and a command fail in a process without a cache. Returns the reason.
async fn refused(env: &Env, id: &str) -> &'static str {
    let events = there(env);
    let error = events.load::<Ledger>(id).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0810", "{error}");
    let command = events.execute(id, |ledger: &Ledger| Ok::<_, String>(vec![Booked { n: ledger.sum }]));
    let command = command.await.unwrap_err();
    assert!(command.to_string().starts_with("cannot load "), "{command}");
    let no = events.execute(id, |_: &Ledger| Err::<Vec<LedgerEvent>, _>("no")).await.unwrap_err();
    assert!(no.to_string().starts_with("cannot load "), "{no}");
    match error {
        EventsError::Base { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// The base of an archived stream is deleted: 1,045 is never loaded as 217, and no command decides on 217.
pub async fn d15_an_archived_stream_without_its_base_is_an_error(env: &Env) {
    let (stream, base) = archived(env, "d15-ann").await;
    let kept = env.store.doc(&base).await.unwrap().value;
    env.store.done(Batch::new().delete(&base, Expect::Exists)).await;
    assert_eq!(refused(env, "d15-ann").await, "is missing");
    assert_eq!(env.store.history(&stream).await.len(), 1, "nothing was appended");
    env.store.done(Batch::new().put(&base, Expect::Absent, kept)).await;
    assert_eq!(
        there(env).load::<Ledger>("d15-ann").await.unwrap().state.sum,
        1_045,
        "put back from a backup"
    );
}

/// The base was changed by hand, or is of another stream, or is stale: 1,045 is never loaded as 1,000,216.
pub async fn d15_a_base_that_does_not_fit_is_an_error(env: &Env) {
    let (stream, base) = archived(env, "d15-bob").await;
    let kept = env.store.doc(&base).await.unwrap().value;
    let put = async |value: Payload| {
        env.store.done(Batch::new().put(&base, Expect::Any, value)).await;
    };
    let forged = kept.as_str().replace(r#""sum":828"#, r#""sum":999999"#);
    assert_ne!(forged, kept.as_str());
    put(Payload::from_json(forged).unwrap()).await;
    assert!(refused(env, "d15-bob").await.contains("checksum"));
    put(number(1_000_000)).await;
    assert!(refused(env, "d15-bob").await.contains("does not read"));
    let (_, of_another) = archived(env, "d15-eve").await;
    put(env.store.doc(&of_another).await.unwrap().value).await;
    assert!(refused(env, "d15-bob").await.contains("checksum"));
    put(kept.clone()).await;
    here(env).append::<Ledger>("d15-bob", [Booked { n: 1 }, Booked { n: 2 }]).await.unwrap();
    closing(&here(env), &stream, &Shelf::default()).keep_last::<Ledger>(1).await.unwrap();
    assert_eq!(there(env).load::<Ledger>("d15-bob").await.unwrap().state.sum, 1_048);
    put(kept).await;
    assert!(refused(env, "d15-bob").await.contains("ends before"));
}

/// Some or all events were truncated without a base: no state is folded from the middle.
pub async fn d15_a_truncated_stream_without_a_base_is_an_error(env: &Env) {
    let (some, all) = (stream("d15-some"), stream("d15-all"));
    for id in ["d15-some", "d15-all"] {
        book(&here(env), id, 3).await;
    }
    env.store.done(Batch::new().truncate(&some, StreamVersion(2)).truncate(&all, StreamVersion(3))).await;
    for id in ["d15-some", "d15-all"] {
        assert_eq!(refused(env, id).await, "is missing");
    }
    // A process with the state in its cache gets the same error.
    let events = here(env);
    book(&events, "d15-known", 3).await;
    events.load::<Ledger>("d15-known").await.unwrap();
    env.other.done(Batch::new().truncate(&stream("d15-known"), StreamVersion(2))).await;
    let error = events.load::<Ledger>("d15-known").await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0810", "{error}");
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ForgedHistory;

#[derive(Serialize, Deserialize)]
enum PastEvent {
    Forged,
}

impl Aggregate for ForgedHistory {
    const KIND: &'static str = "history";
    type Event = PastEvent;

    fn apply(&mut self, _: &PastEvent) {}
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Anew;

#[derive(Serialize, Deserialize)]
enum AnewEvent {
    #[serde(rename = "tidelock.snapshot")]
    Forged,
}

impl Aggregate for Anew {
    const KIND: &'static str = "anew";
    type Event = AnewEvent;

    fn apply(&mut self, _: &AnewEvent) {}
}

/// Containers and documents do not write reserved keys. Documents only.
pub async fn d15_containers_refuse_reserved_keys(env: &Env) {
    let states = StateRegistry::new(Arc::clone(&env.store.0));
    for name in [r#"base("account", "ann")"#, r#"snapshot("account", "ann")"#, "tidelock.run(\"r\")"] {
        let reserved: Key = name.parse().unwrap();
        let container = states.at::<i64>(&reserved);
        let document = states.document::<Ledger>(&reserved, Schema::new());
        let errors = [
            container.mutate(|n| *n += 1).await.unwrap_err(),
            container.set(7).await.unwrap_err(),
            container.deltas(vec![Delta::inc("", 1)]).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code().as_str(), "TL0106", "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        let transaction = document.transaction(|tx| {
            tx.set(Ledger::default());
            Ok::<_, String>(())
        });
        assert!(transaction.await.unwrap_err().to_string().contains("is reserved"));
        assert!(env.store.doc(&reserved).await.is_none());
    }
    assert_eq!(states.at::<i64>(&key("base")).mutate(|n| *n += 1).await.unwrap().outcome.version().0, 1);
}

/// Aggregates append neither to a reserved stream nor an event of a reserved type.
pub async fn d15_aggregates_refuse_reserved_streams_and_types(env: &Env) {
    let events = Events::new(Arc::clone(&env.store.0));
    let error = events.append::<ForgedHistory>("user", [PastEvent::Forged]).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0106", "{error}");
    let command = events.execute("user", |_: &ForgedHistory| Ok::<_, String>([PastEvent::Forged])).await;
    assert!(command.unwrap_err().to_string().contains("is reserved"));
    let error = events.append::<Anew>("a", [AnewEvent::Forged]).await.unwrap_err();
    assert!(error.to_string().contains("tidelock.snapshot: the name is reserved"), "{error}");
    assert!(env.store.log().await.is_empty());
}

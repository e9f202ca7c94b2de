//! Rolling releases (R15): two releases of one program on one store. Types, queues and event schemas change while both
//! run. No event is skipped, stranded or handled by a release that does not know it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock_core::archive::ArchiveError;
use tidelock_core::events::{
    Aggregate, EventSchema, Events, EventsError, StartFrom, SubscriptionFilter, Tag, decode,
};
use tidelock_core::failure::Failure;
use tidelock_core::projections::{Projection, Projections, ReadModel};
use tidelock_core::reactions::{Operator, Quiescence, Reaction};

use crate::ledger::{Ledger, Shelf, closing, here, stream};
use crate::prelude::*;
use crate::reacting::*;

fn order(name: &str, i: i64) -> Key {
    Key::new(name, [i]).unwrap()
}

async fn append(conn: &Conn, stream: &Key, kind: &str, n: i64) {
    conn.done(Batch::new().append(stream, Expect::Any, [event(kind, n)])).await;
}

/// Returns a release of a reaction on the streams of the kind with its name.
fn release(name: &str, chosen: bool, types: &[&str]) -> Reaction {
    let of_kind = noting(name).streams(KeyPrefix::kind(name)).on(types.iter().copied());
    if chosen { of_kind.to(|event| Some(event.stream.beside("by").unwrap())) } else { of_kind }
}

/// Returns the key under which the events of a stream are noted.
fn noted_under(stream: &Key, chosen: bool) -> Key {
    if chosen { stream.beside("by").unwrap() } else { stream.clone() }
}

/// The old release runs beside the new one, which adds a type, and restarts after it. Every event of the added type is
/// handled once, with streams and with chosen keys.
pub async fn r15_a_release_that_adds_a_type_loses_no_event(env: &Env) {
    const STREAMS: i64 = 5;
    for (name, chosen) in [("r15-add", false), ("r15-add-keys", true)] {
        let old = || release(name, chosen, &["Placed"]);
        let mut running = start(&env.store, old()).await;
        append(&env.store, &order(name, 0), "Placed", 0).await;
        running.quiesce().await.unwrap();
        let new = start(&env.other, release(name, chosen, &["Placed", "Cancelled"])).await;
        for n in 1..=12 {
            if n == 6 {
                running.shutdown().await;
                running = start(&env.store, old()).await;
            }
            for i in 0..STREAMS {
                append(&env.store, &order(name, i), if n % 2 == 0 { "Placed" } else { "Cancelled" }, n).await;
            }
        }
        assert_eq!(new.quiesce().await.unwrap(), Quiescence::default());
        for i in 0..STREAMS {
            let first = i64::from(i != 0);
            let seen = noted(&env.store, name, &noted_under(&order(name, i), chosen)).await;
            assert_eq!(seen, (first..=12).collect::<Vec<_>>(), "{name}, stream {i}");
        }
        running.shutdown().await;
        new.shutdown().await;
    }
}

/// A type added later counts from the start of its release. Earlier events are not handled, wherever the rows are
/// positioned. All later ones are.
pub async fn r15_an_added_type_counts_from_its_release(env: &Env) {
    for (name, chosen) in [("r15-since", false), ("r15-since-keys", true)] {
        let stream = order(name, 0);
        start(&env.store, release(name, chosen, &["Placed"])).await.shutdown().await;
        for (n, kind) in ["Placed", "Cancelled", "Placed", "Cancelled"].into_iter().enumerate() {
            append(&env.store, &stream, kind, n as i64).await;
        }
        let new = start(&env.other, release(name, chosen, &["Placed", "Cancelled"])).await;
        append(&env.store, &stream, "Cancelled", 4).await;
        assert_eq!(new.quiesce().await.unwrap(), Quiescence::default());
        assert_eq!(noted(&env.store, name, &noted_under(&stream, chosen)).await, [0, 2, 4], "{name}");
        new.shutdown().await;
    }
}

/// A release with a lower revision that first registers after the newer one does not replace it.
pub async fn r15_a_lower_revision_never_replaces_a_higher_one(env: &Env) {
    let name = "r15-revision";
    let release = |types: &[&str], revision| release(name, false, types).revision(revision);
    let new = start(&env.other, release(&["Placed", "Cancelled"], 2)).await;
    let old = start(&env.store, release(&["Placed"], 1)).await;
    append(&env.store, &order(name, 0), "Placed", 0).await;
    append(&env.store, &order(name, 0), "Cancelled", 1).await;
    assert_eq!(new.quiesce().await.unwrap(), Quiescence::default());
    assert_eq!(noted(&env.store, name, &order(name, 0)).await, [0, 1]);
    old.shutdown().await;
    new.shutdown().await;
}

/// A closing respects the event types of the newest release, even if an older one has started since.
pub async fn r15_books_stay_open_over_events_of_an_added_type(env: &Env) {
    let release =
        |types: &[&str]| noting("r15-books").streams(KeyPrefix::kind(Ledger::KIND)).on(types.iter().copied());
    start(&env.store, release(&["Placed"])).await.shutdown().await;
    start(&env.other, release(&["Placed", "Cancelled"])).await.shutdown().await;
    let old = start(&env.store, release(&["Placed"])).await;
    append(&env.store, &stream("r15"), "Cancelled", 1).await;
    let refused = closing(&here(env), &stream("r15"), &Shelf::default()).tombstone().await;
    assert!(matches!(refused, Err(ArchiveError::Pending { .. })), "{refused:?}");
    let new = start(&env.other, release(&["Placed", "Cancelled"])).await;
    new.quiesce().await.unwrap();
    assert_eq!(noted(&env.store, "r15-books", &stream("r15")).await, [1]);
    let closed = closing(&here(env), &stream("r15"), &Shelf::default()).tombstone().await.unwrap();
    assert_eq!(closed.removed, 1);
    old.shutdown().await;
    new.shutdown().await;
}

/// A release that changes the queue strands no row, whichever release routed it. `quiesce` returns only after all rows
/// are handled.
pub async fn r15_a_changed_queue_strands_no_row(env: &Env) {
    const STREAMS: i64 = 20;
    for (name, chosen) in [("r15-queue", false), ("r15-queue-keys", true)] {
        let of_kind = |queue: &str| release(name, chosen, &[]).queue(queue_name(&format!("{name}.{queue}")));
        let hangs = of_kind("old").each(|_, _| std::future::pending::<Result<(), Failure>>());
        let old = start(&env.store, hangs).await;
        for i in 0..STREAMS {
            append(&env.store, &order(name, i), "Placed", i).await;
        }
        until("the old release has routed them", async || {
            old.stats().reactions[name].routed == STREAMS as u64
        })
        .await;
        let new = start(&env.other, of_kind("new")).await;
        for i in STREAMS..2 * STREAMS {
            append(&env.store, &order(name, i), "Placed", i).await;
        }
        until("they are routed", async || {
            let operator = Operator::new(Arc::clone(&env.store.0));
            let views = operator.reactions().await.unwrap();
            views.iter().any(|view| view.name == name && view.keys == 2 * STREAMS as u64)
        })
        .await;
        old.abort().await;
        env.pass(LEASE);
        assert_eq!(quiesce_in_time(env, &new).await, Quiescence::default());
        for i in 0..2 * STREAMS {
            let seen = noted(&env.store, name, &noted_under(&order(name, i), chosen)).await;
            assert_eq!(seen, [i], "{name}, stream {i}");
        }
        new.shutdown().await;
    }
}

/// The current person type. `Registered` was once called `Joined`, and names were not capitalised.
#[derive(Clone, Debug, Default)]
struct Person {
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum PersonEvent {
    Registered { name: String },
}
use PersonEvent::Registered;

impl Aggregate for Person {
    const KIND: &'static str = "person";
    type Event = PersonEvent;

    fn apply(&mut self, event: &PersonEvent) {
        let Registered { name } = event;
        self.names.push(name.clone());
    }

    fn schema() -> EventSchema {
        EventSchema::new().renamed("Joined", "Registered").then("Registered", |mut first| {
            first["name"] = first["called"].as_str().unwrap_or_default().to_uppercase().into();
            Ok(first)
        })
    }
}

/// Appends two events in older schemas and one in the current schema.
async fn people(env: &Env, id: &str) -> Key {
    let stream = Person::stream(id).unwrap();
    let old = ["Joined", "Registered"].into_iter().zip(["ann", "bob"]);
    let old = old.map(|(kind, name)| NewEvent::new(event_type(kind), payload(json!({ "called": name }))));
    env.other.done(Batch::new().append(&stream, Expect::Any, old.collect::<Vec<_>>())).await;
    let today = Registered { name: "Carol".to_owned() };
    Events::new(Arc::clone(&env.store.0)).append::<Person>(id, [today]).await.unwrap();
    stream
}

const NAMES: [&str; 3] = ["ANN", "BOB", "Carol"];

/// Returns the key of the document in which names are noted.
fn roll(of: &str) -> Key {
    Key::new("roll", [of]).unwrap()
}

async fn roll_call(conn: &Conn, of: &str) -> Vec<String> {
    let Some(value) = conn.value(&roll(of)).await else { return Vec::new() };
    serde_json::from_value(value).unwrap()
}

fn calling(name: &'static str) -> Reaction {
    let people = reaction(name).upcast::<Person>().streams(KeyPrefix::kind(Person::KIND)).on(["Registered"]);
    people.each(async move |_, event| {
        let Registered { name: called } = decode(&event.event_type, &event.payload)?;
        Ok(Batch::new().merge_or_create(&roll(name), payload(json!([])), [Delta::push("", called)]))
    })
}

/// Reactions receive events in the current schema and under their current name, even if they choose keys.
pub async fn r15_reactions_get_events_in_their_present_shape(env: &Env) {
    people(env, "r15").await;
    let keyed = calling("r15-keyed").to(|event| {
        let Ok(Registered { .. }) = decode(&event.event_type, &event.payload) else { return None };
        Some(key("r15-all"))
    });
    let running = reactions(&env.store).with(calling("r15-plain")).with(keyed).start().await.unwrap();
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    for name in ["r15-plain", "r15-keyed"] {
        assert_eq!(roll_call(&env.other, name).await, NAMES, "{name}");
    }
    running.shutdown().await;
}

/// Projections receive events in the current schema.
pub async fn r15_projections_get_events_in_their_present_shape(env: &Env) {
    people(env, "r15").await;
    let names = Projection::new("r15-names", 1, |fact, rows| {
        let Registered { name } = fact.read()?;
        rows.put([name], &true)?;
        Ok(())
    });
    let names = names.on(["Registered"]).upcast::<Person>().streams(KeyPrefix::kind(Person::KIND));
    let running = Projections::new(Arc::clone(&env.store.0)).with(names).start().await.unwrap();
    running.quiesce().await.unwrap();
    let rows =
        ReadModel::new(Arc::clone(&env.other.0), "r15-names").rows::<bool>(None, 9).await.unwrap().rows;
    let found: Vec<_> = rows.into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, NAMES.map(|name| vec![Arg::from(name)]));
    running.shutdown().await;
}

/// Subscriptions receive events in the current schema.
pub async fn r15_subscriptions_get_events_in_their_present_shape(env: &Env) {
    let stream = people(env, "r15").await;
    let events = Events::new(Arc::clone(&env.store.0));
    for what in [SubscriptionFilter::all(), SubscriptionFilter::stream(&stream)] {
        let what = what.types([event_type("Registered")]);
        let people = events.subscribe(what, StartFrom::Beginning).await.unwrap();
        let mut people = people.upcast::<Person>().unwrap();
        let mut names = Vec::new();
        while let Some(event) = people.now().await.unwrap() {
            let Registered { name } = decode(&event.event_type, &event.payload).unwrap();
            names.push(name);
        }
        assert_eq!(names, NAMES);
    }
}

/// Follow-up events have the current schema and are not upcast again.
pub async fn r15_follow_up_events_have_the_current_schema(env: &Env) {
    append(&env.store, &key("r15-cause"), "Asked", 0).await;
    let follows = reaction("r15-follows").on(["Asked"]).each(async |turn, event| {
        let dora = NewEvent::new(event_type("Registered"), payload(json!({ "name": "Dora" })));
        let dora = turn.follow_up(&event, dora)?;
        let emil = turn.follow_up_of::<Person>(&event, &Registered { name: "Emil".to_owned() })?;
        let again = turn.follow_up(&event, NewEvent { id: EventId::new(), ..emil.clone() })?;
        Ok(Batch::new().append(&Person::stream("r15-follows")?, Expect::Absent, [dora, emil, again]))
    });
    let running = start(&env.store, follows.upcast::<Person>()).await;
    assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
    let people = Events::new(Arc::clone(&env.other.0)).load::<Person>("r15-follows").await.unwrap();
    assert_eq!(people.state.names, ["Dora", "Emil", "Emil"]);
    running.shutdown().await;
}

/// The same person, as an older release knows it: without upcasters.
#[derive(Clone, Debug, Default)]
struct OldPerson;

impl Aggregate for OldPerson {
    const KIND: &'static str = "person";
    type Event = PersonEvent;

    fn apply(&mut self, _: &PersonEvent) {}
}

/// An older release returns an error for a schema that it does not know.
pub async fn r15_a_newer_shape_is_an_error(env: &Env) {
    let today = Registered { name: "Carol".to_owned() };
    let events = Events::new(Arc::clone(&env.store.0));
    events.append::<Person>("r15-newer", [today]).await.unwrap();
    let loaded = events.load::<OldPerson>("r15-newer").await;
    assert!(matches!(loaded, Err(EventsError::Undecodable { .. })), "{loaded:?}");
}

/// Copies for tags keep the schema of the event, and are read in the current one.
pub async fn r15_tags_give_events_in_their_present_shape(env: &Env) {
    let (events, tag) = (Events::new(Arc::clone(&env.store.0)), Tag::new("r15"));
    let emitted = events.together(|unit| {
        let tag = tag.clone();
        async move {
            let old = Registered { name: "ignored".to_owned() };
            unit.emit_tagged::<OldPerson>("r15-old", std::slice::from_ref(&tag), [old])?;
            unit.emit_tagged::<Person>("r15-new", &[tag], [Registered { name: "Carol".to_owned() }])?;
            Ok::<_, EventsError>(())
        }
    });
    emitted.await.unwrap();
    let found = events.together(|unit| {
        let tag = tag.clone();
        async move { unit.tagged(&tag).await }
    });
    let names = found.await.unwrap().into_iter().map(|tagged| {
        let Registered { name } = tagged.decode::<Person>().unwrap();
        name
    });
    // The old schema had no name that the current upcaster could use.
    assert_eq!(names.collect::<Vec<_>>(), ["", "Carol"]);
}

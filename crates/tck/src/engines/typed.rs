//! Typed handlers (E8): reactions, projections and subscriptions receive the events of one aggregate, decoded in their
//! current shape and under their current name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidelock_core::events::{Aggregate, EventSchema, Events, EventsError, StartFrom, UnknownEvents};
use tidelock_core::projections::{Projection, Projections, ProjectionsError, ReadModel};
use tidelock_core::reactions::{
    Operator, Quiescence, Reaction, ReactionFilter, ReactionKeyView, ReactionsError, WhenExhausted,
};

use crate::prelude::*;
use crate::reacting::*;

/// A parcel today. `Sent` was once called `Posted`, and its first shape had kilograms.
#[derive(Clone, Debug, Default)]
struct Parcel;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum ParcelEvent {
    Sent { grams: i64 },
    Lost,
}
use ParcelEvent::{Lost, Sent};

impl Aggregate for Parcel {
    const KIND: &'static str = "parcel";
    type Event = ParcelEvent;

    fn apply(&mut self, _: &ParcelEvent) {}

    fn schema() -> EventSchema {
        EventSchema::new().renamed("Posted", "Sent").then("Sent", |first| {
            let kilograms = first["kg"].as_i64().ok_or("it has no weight")?;
            Ok(json!({ "grams": kilograms * 1_000 }))
        })
    }
}

/// The same parcel for programs that skip unknown events.
#[derive(Clone, Debug, Default)]
struct LenientParcel;

impl Aggregate for LenientParcel {
    const KIND: &'static str = Parcel::KIND;
    type Event = ParcelEvent;

    fn apply(&mut self, _: &ParcelEvent) {}

    fn schema() -> EventSchema {
        Parcel::schema().unknown(UnknownEvents::Skip)
    }
}

/// The same parcel in a program that is older than the second shape.
#[derive(Clone, Debug, Default)]
struct OldParcel;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum OldParcelEvent {
    Sent { kg: i64 },
}

impl Aggregate for OldParcel {
    const KIND: &'static str = Parcel::KIND;
    type Event = OldParcelEvent;

    fn apply(&mut self, _: &OldParcelEvent) {}
}

/// Another aggregate with the same events.
#[derive(Clone, Debug, Default)]
struct Letter;

impl Aggregate for Letter {
    const KIND: &'static str = "letter";
    type Event = ParcelEvent;

    fn apply(&mut self, _: &ParcelEvent) {}
}

fn events(conn: &Conn) -> Events {
    Events::new(Arc::clone(&conn.0))
}

/// Appends an event as an older program or a foreign one would.
async fn append_raw(env: &Env, stream: &Key, name: &str, value: serde_json::Value) {
    let event = NewEvent::new(event_type(name), payload(value));
    env.other.done(Batch::new().append(stream, Expect::Any, [event])).await;
}

/// Appends an event of an older shape, and one of today.
async fn old_and_new(env: &Env, id: &str, old_name: &str) {
    append_raw(env, &Parcel::stream(id).unwrap(), old_name, json!({ "kg": 2 })).await;
    events(&env.store).append::<Parcel>(id, [Sent { grams: 5 }, Lost]).await.unwrap();
}

/// Returns the key of the document in which a reaction notes its events.
fn seen_key(reaction: &str) -> Key {
    Key::new("seen", [reaction]).unwrap()
}

fn seen_batch(reaction: &str, id: &Arg, event: &ParcelEvent) -> Batch {
    let note = json!([id.to_string(), event]);
    Batch::new().merge_or_create(&seen_key(reaction), payload(json!([])), [Delta::push("", note)])
}

async fn seen(env: &Env, reaction: &str) -> Vec<(String, ParcelEvent)> {
    let Some(value) = env.other.value(&seen_key(reaction)).await else { return Vec::new() };
    serde_json::from_value(value).unwrap()
}

fn of(id: &str, events: impl IntoIterator<Item = ParcelEvent>) -> Vec<(String, ParcelEvent)> {
    events.into_iter().map(|event| (id.to_owned(), event)).collect()
}

/// Returns a reaction that notes the parcels it receives.
fn noting_parcels(name: &'static str, on: &[&str]) -> Reaction {
    let parcels = Reaction::of::<Parcel>(name).on(on.iter().copied());
    parcels.each(async move |_, id, event| Ok(seen_batch(name, &id, &event))).lease_ttl(LEASE)
}

/// Runs a reaction to its end.
async fn run(env: &Env, reaction: Reaction) -> Quiescence {
    let running = start(&env.store, reaction).await;
    let settled = running.quiesce().await.unwrap();
    running.shutdown().await;
    settled
}

/// Returns how operators see the key of a parcel.
async fn views(env: &Env, reaction: &str, id: &str) -> Vec<ReactionKeyView> {
    let which = ReactionFilter::of(reaction).keys([Parcel::stream(id).unwrap()]);
    Operator::new(Arc::clone(&env.other.0)).keys(&which, Page::first(1)).await.unwrap().rows
}

/// A typed reaction selects events by their current name, and receives those that were stored under a former one.
pub async fn e8_a_typed_reaction_sees_renamed_events(env: &Env) {
    old_and_new(env, "p-1", "Posted").await;
    assert_eq!(run(env, noting_parcels("e8-renamed", &["Sent"])).await, Quiescence::default());
    assert_eq!(seen(env, "e8-renamed").await, of("p-1", [Sent { grams: 2_000 }, Sent { grams: 5 }]));
}

/// A typed reaction receives events of older shapes in the current one. Without names it receives all events of its
/// aggregate, and none of other streams.
pub async fn e8_a_typed_reaction_decodes_a_changed_shape(env: &Env) {
    old_and_new(env, "p-1", "Sent").await;
    append_raw(env, &key("e8-letter"), "Sent", json!("another kind")).await;
    assert_eq!(run(env, noting_parcels("e8-shape", &[])).await, Quiescence::default());
    assert_eq!(seen(env, "e8-shape").await, of("p-1", [Sent { grams: 2_000 }, Sent { grams: 5 }, Lost]));
}

/// A typed batch handler receives all events of a key decoded in the current shape, with their metadata.
pub async fn e8_a_typed_batch_decodes_a_changed_shape(env: &Env) {
    old_and_new(env, "p-1", "Posted").await;
    let parcels = Reaction::of::<Parcel>("e8-batch").batch(async |_, events| {
        let rising = events.is_sorted_by(|a, b| a.raw.position < b.raw.position);
        let all: Vec<_> = events.into_iter().map(|typed| (typed.id.to_string(), typed.event)).collect();
        assert!(rising, "{all:?}");
        Ok(Batch::new().put(&seen_key("e8-batch"), Expect::Absent, payload(json!(all))))
    });
    assert_eq!(run(env, parcels).await, Quiescence::default());
    assert_eq!(seen(env, "e8-batch").await, of("p-1", [Sent { grams: 2_000 }, Sent { grams: 5 }, Lost]));
}

/// The context of a typed handler has the event's metadata, and creates consequences of the event. The id has the type
/// with which the stream was named.
pub async fn e8_a_typed_handler_knows_the_metadata_of_its_event(env: &Env) {
    events(&env.store).append::<Parcel>(7, [Lost]).await.unwrap();
    let claims = Reaction::of::<Parcel>("e8-meta").on(["Lost"]).each(async |ctx, id, _| {
        assert_eq!((&id, ctx.key()), (&Arg::Int(7), &Parcel::stream(7)?));
        assert_eq!(ctx.effect_key(), format!("e8-meta:{}", ctx.event().position));
        let again = ctx.follow_up_of::<Parcel>(&Sent { grams: 1 })?;
        Ok(Batch::new().append(&Parcel::stream("again")?, Expect::Absent, [again]))
    });
    assert_eq!(run(env, claims).await, Quiescence::default());
    let mut parcels = events(&env.other).subscribe_to::<Parcel>(StartFrom::Beginning).await.unwrap();
    let cause = parcels.now().await.unwrap().unwrap();
    let consequence = parcels.now().await.unwrap().unwrap();
    assert_eq!((cause.id, cause.event), (Arg::Int(7), Lost));
    assert_eq!((consequence.id, consequence.event), (Arg::from("again"), Sent { grams: 1 }));
    assert_eq!(consequence.raw.correlation, Some(cause.raw.id.to_string()));
}

/// An event that does not fit the enum is a permanent failure of its key, and is not retried. Other keys continue. With
/// dead letters, the event is parked.
pub async fn e8_an_event_that_does_not_decode_is_a_permanent_failure(env: &Env) {
    append_raw(env, &Parcel::stream("bad").unwrap(), "Burnt", json!(null)).await;
    old_and_new(env, "bad", "Posted").await;
    old_and_new(env, "good", "Posted").await;
    let sent = [Sent { grams: 2_000 }, Sent { grams: 5 }, Lost];
    let blocked = run(env, noting_parcels("e8-blocked", &[])).await;
    assert_eq!(blocked, Quiescence { blocked: 1, parked: 0 });
    assert_eq!(seen(env, "e8-blocked").await, of("good", sent.clone()));
    let bad = &views(env, "e8-blocked", "bad").await[0];
    let reason = &bad.blocked.as_ref().unwrap().reason;
    assert!(reason.contains("Burnt") && !reason.contains("gave up"), "{reason}");

    let parked = noting_parcels("e8-parked", &[]).when_exhausted(WhenExhausted::Park);
    assert_eq!(run(env, parked).await, Quiescence { blocked: 0, parked: 1 });
    let mut all = seen(env, "e8-parked").await;
    all.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(all, [of("bad", sent.clone()), of("good", sent)].concat());
}

/// A schema that skips unknown events applies to typed handlers as it does to the fold.
pub async fn e8_typed_handlers_skip_unknown_events_by_their_schema(env: &Env) {
    let stream = LenientParcel::stream("p-1").unwrap();
    append_raw(env, &stream, "Burnt", json!(null)).await;
    events(&env.store).append::<LenientParcel>("p-1", [Lost]).await.unwrap();
    let parcels = Reaction::of::<LenientParcel>("e8-skip");
    let parcels = parcels.each(async |_, id, event| Ok(seen_batch("e8-skip", &id, &event)));
    assert_eq!(run(env, parcels).await, Quiescence::default());
    assert_eq!(seen(env, "e8-skip").await, of("p-1", [Lost]));
    let mut parcels = events(&env.other).subscribe_to::<LenientParcel>(StartFrom::Beginning).await.unwrap();
    assert_eq!(parcels.now().await.unwrap().unwrap().event, Lost);
    assert!(parcels.now().await.unwrap().is_none());
}

/// A typed reaction of an older program defers an event of a newer shape. A newer program handles it.
pub async fn e8_a_typed_reaction_defers_a_newer_shape(env: &Env) {
    events(&env.store).append::<Parcel>("p-1", [Sent { grams: 5 }]).await.unwrap();
    let old = Reaction::of::<OldParcel>("e8-newer").on(["Sent"]);
    let old = old.each(async |_, _, event| panic!("{event:?} was decoded") as Result<(), _>);
    let old = start(&env.store, old.lease_ttl(LEASE)).await;
    // A failed attempt also has a due time, but records an error.
    let deferred =
        |view: &ReactionKeyView| view.due.is_some_and(|due| due > env.now()) && view.last_error.is_none();
    until("the key is deferred", async || views(env, "e8-newer", "p-1").await.iter().any(deferred)).await;
    old.shutdown().await;
    let new = start(&env.other, noting_parcels("e8-newer", &["Sent"])).await;
    assert_eq!(quiesce_in_time(env, &new).await, Quiescence::default());
    assert_eq!(seen(env, "e8-newer").await, of("p-1", [Sent { grams: 5 }]));
    new.shutdown().await;
}

/// Returns a projection with a row for each event of a parcel.
fn weights(name: &str, on: &[&str]) -> Projection {
    Projection::of::<Parcel>(name, 1).on(on.iter().copied()).each(|id, event, rows| {
        match event {
            Sent { grams } => rows.put([id, Arg::from(grams)], &"sent")?,
            Lost => rows.put([id, Arg::from("lost")], &"lost")?,
        }
        Ok(())
    })
}

async fn project(env: &Env, projection: Projection) {
    let running = Projections::new(Arc::clone(&env.store.0)).with(projection).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
}

async fn rows(model: ReadModel) -> Vec<Vec<Arg>> {
    let found = model.rows::<String>(None, 9).await.unwrap().rows;
    found.into_iter().map(|(row, _)| row).collect()
}

/// Returns the rows that a projection should have for `p-1`.
fn p1<const N: usize>(rows: [Arg; N]) -> Vec<Vec<Arg>> {
    let mut rows: Vec<_> = rows.into_iter().map(|last| vec![Arg::from("p-1"), last]).collect();
    rows.sort_by_key(|row| Key::of("row", row).unwrap());
    rows
}

/// A typed projection selects events by their current name, and receives those that were stored under a former one.
pub async fn e8_a_typed_projection_sees_renamed_events(env: &Env) {
    old_and_new(env, "p-1", "Posted").await;
    project(env, weights("e8-renamed", &["Sent"])).await;
    let found = rows(ReadModel::new(Arc::clone(&env.other.0), "e8-renamed")).await;
    assert_eq!(found, p1([Arg::Int(2_000), Arg::Int(5)]));
}

/// A typed projection receives events of older shapes in the current one. Without names it receives all events of its
/// aggregate, and none of other streams.
pub async fn e8_a_typed_projection_decodes_a_changed_shape(env: &Env) {
    old_and_new(env, "p-1", "Sent").await;
    append_raw(env, &key("e8-letter"), "Sent", json!("another kind")).await;
    project(env, weights("e8-shape", &[])).await;
    let found = rows(ReadModel::new(Arc::clone(&env.other.0), "e8-shape")).await;
    assert_eq!(found, p1([Arg::Int(2_000), Arg::Int(5), Arg::from("lost")]));
}

/// A typed projection runs in the commit of the events, and ignores the events of other aggregates.
pub async fn e8_a_typed_projection_runs_inline(env: &Env) {
    let inline = events(&env.store).inline(weights("e8-inline", &["Sent"]).inline());
    inline.append::<Parcel>("p-1", [Sent { grams: 5 }, Lost]).await.unwrap();
    inline.append::<Letter>("p-1", [Sent { grams: 9 }]).await.unwrap();
    let found = rows(ReadModel::of_version(Arc::clone(&env.other.0), "e8-inline", 1)).await;
    assert_eq!(found, p1([Arg::Int(5)]));
}

/// A typed subscription returns events that were stored under a former name.
pub async fn e8_a_typed_subscription_sees_renamed_events(env: &Env) {
    old_and_new(env, "p-1", "Posted").await;
    let mut parcels = events(&env.store).subscribe_to::<Parcel>(StartFrom::Beginning).await.unwrap();
    let first = parcels.next().await.unwrap();
    assert_eq!((first.id, first.event), (Arg::from("p-1"), Sent { grams: 2_000 }));
    assert_eq!(first.raw.event_type.as_str(), "Sent");
    assert_eq!(parcels.position(), Some(first.raw.position));
}

/// A typed subscription returns events of older shapes in the current one. An event that does not decode is an error
/// until the subscription starts after it, and no event is skipped silently.
pub async fn e8_a_typed_subscription_decodes_a_changed_shape(env: &Env) {
    append_raw(env, &key("e8-letter"), "Sent", json!("another kind")).await;
    old_and_new(env, "p-1", "Sent").await;
    append_raw(env, &Parcel::stream("p-1").unwrap(), "Burnt", json!(null)).await;
    let mut parcels = events(&env.store).subscribe_to::<Parcel>(StartFrom::Beginning).await.unwrap();
    let mut last = None;
    for expected in [Sent { grams: 2_000 }, Sent { grams: 5 }, Lost] {
        let found = parcels.now().await.unwrap().unwrap();
        assert_eq!(found.event, expected);
        last = Some(found.raw.position);
    }
    for _ in 0..2 {
        let error = parcels.now().await.unwrap_err();
        assert!(matches!(error, EventsError::Undecodable { version: StreamVersion(3), .. }), "{error}");
        assert_eq!(parcels.position(), last, "the event was not returned");
    }
}

/// A typed reaction or projection that subscribes to an unknown event does not start. The error has the handler's name,
/// the unknown event and the known ones. The former name of an event counts as unknown. Nothing is written.
pub async fn e8_an_unknown_event_name_is_an_error_at_start(env: &Env) {
    let before = Dump::of(&env.store).await;
    for unknown in ["Send", "Posted"] {
        let reaction = noting_parcels("e8-unknown", &["Sent", unknown]);
        let error = reactions(&env.store).with(reaction).start().await.unwrap_err();
        check_unknown(&error, "e8-unknown", unknown);
        let projections = Projections::new(Arc::clone(&env.store.0));
        let started = projections.with(weights("e8-unknown", &["Lost", unknown])).start().await;
        let Err(ProjectionsError::Reactions(error)) = started else { panic!("{started:?}") };
        check_unknown(&error, "projection:e8-unknown/v1", unknown);
        let inline = events(&env.store).inline(weights("e8-unknown", &[unknown]).inline());
        let refused = inline.append::<Parcel>("p-1", [Lost]).await.unwrap_err();
        assert!(refused.to_string().contains(unknown), "{refused}");
    }
    assert_eq!(Dump::of(&env.other).await, before);
}

fn check_unknown(error: &ReactionsError, handler: &str, unknown: &str) {
    let ReactionsError::UnknownEvent { name, kind, event, known } = error else { panic!("{error}") };
    assert_eq!((name.as_str(), *kind, event.as_str()), (handler, "parcel", unknown));
    assert_eq!(known, &["Sent", "Lost"]);
    assert_eq!(error.code().as_str(), "TL0710");
}

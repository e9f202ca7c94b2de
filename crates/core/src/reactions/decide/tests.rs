//! Tests of the pure decisions, without a store.

use std::sync::Arc;
use std::time::Duration;

use super::super::stored::{DefinitionContent, DefinitionState};
use super::*;
use crate::clock::Timestamp;
use crate::id::{EventId, StreamVersion};
use crate::payload::Payload;

fn event(position: u64, stream: &str, event_type: &str) -> Event {
    Event {
        position: Position(position),
        stream: Key::new("order", [stream]).unwrap(),
        version: StreamVersion(0),
        id: EventId::new(),
        event_type: EventType::new(event_type).unwrap(),
        at: Timestamp::EPOCH,
        payload: Payload::null(),
        meta: Payload::null(),
        correlation: None,
    }
}

fn stored(interest: &Interest, generation: u64) -> Stored {
    let queue = crate::id::QueueName::new("r").unwrap();
    let facts = DefinitionContent {
        keyed: false,
        interest: interest.clone(),
        queue,
        revision: 1,
        shapes: BTreeMap::new(),
    };
    Stored { generation, ..Stored::first(&facts) }
}

fn rules(exhausted: WhenExhausted) -> Rules {
    let retry = RetryPolicy { max_attempts: 3, base: Duration::from_secs(1), ..RetryPolicy::default() };
    Rules { retry, exhausted }
}

fn again() -> Failure {
    Failure::new("bad")
}

#[test]
fn a_failure_is_tried_again_until_the_budget_is_spent() {
    let rules = rules(WhenExhausted::Block);
    let wait = |n| Verdict::Retry { error: "bad".to_owned(), wait: Duration::from_secs(n) };
    assert_eq!(rules.after(&again(), 1, 1.0), wait(1));
    assert_eq!(rules.after(&again(), 2, 1.0), wait(2));
    assert_eq!(rules.after(&again(), 2, 0.5), wait(1));
    assert_eq!(
        rules.after(&again(), 3, 1.0),
        Verdict::Block { reason: "gave up after 3 attempts: bad".to_owned() }
    );
}

#[test]
fn permanent_failures_are_not_retried() {
    let never = Failure::permanent("no");
    let (block, park) = (rules(WhenExhausted::Block), rules(WhenExhausted::Park));
    assert_eq!(block.after(&never, 1, 0.5), Verdict::Block { reason: "no".to_owned() });
    assert_eq!(park.after(&never, 1, 0.5), Verdict::Park { error: "no".to_owned() });
    assert!(matches!(park.after(&again(), 3, 0.5), Verdict::Park { .. }));
}

#[test]
fn a_failure_can_ask_for_a_longer_wait_but_for_no_shorter_one() {
    let rules = rules(WhenExhausted::Block);
    let after =
        |secs, attempts| rules.after(&Failure::retry_after(Duration::from_secs(secs), "busy"), attempts, 1.0);
    let wait = |n| Verdict::Retry { error: "busy".to_owned(), wait: Duration::from_secs(n) };
    assert_eq!(after(60, 1), wait(60));
    assert_eq!(after(0, 2), wait(2));
    assert!(matches!(after(60, 3), Verdict::Block { .. }), "it adds no attempts");
}

#[test]
fn not_now_never_uses_up_the_budget() {
    let due = Due::After(Duration::from_secs(9));
    assert_eq!(rules(WhenExhausted::Block).after(&Failure::defer(due), 99, 0.5), Verdict::Defer(due));
}

#[test]
fn a_row_whose_workers_died_is_stopped_before_the_next_one_runs() {
    let rules = rules(WhenExhausted::Block);
    assert_eq!(rules.before(3, None), None, "the last attempt may run");
    let Some(Verdict::Block { reason }) = rules.before(4, None) else { panic!() };
    assert!(reason.contains("after 3 attempts, none of which ended"), "{reason}");
    let Some(Verdict::Block { reason }) = rules.before(4, Some("bad")) else { panic!() };
    assert!(reason.ends_with(": bad"), "{reason}");
}

#[test]
fn after_a_failure_events_come_one_by_one() {
    assert_eq!([pace(0), pace(1), pace(2)], [Pace::Free, Pace::Free, Pace::Careful]);
    let (free, careful) = (Pace::Free, Pace::Careful);
    assert_eq!(
        [free.bite(true, 7), careful.bite(true, 7), free.bite(false, 7), free.bite(true, 0)],
        [7, 1, 1, 0]
    );
    assert!(free.commits(1, 1, 5) && !free.commits(1, 3, 5) && free.commits(3, 3, 5));
    assert!(careful.commits(1, 3, 5), "after a failure each event is committed");
    assert!(free.commits(1, 3, 0), "the last one is, too");
}

#[test]
fn a_full_grant_may_not_be_all() {
    assert_eq!([end(false), end(true)], [End::Rest, End::More]);
}

#[test]
fn without_types_everything_counts_but_what_is_internal() {
    let all = Interest::default();
    assert!(all.wants(&event(1, "a", "Placed")));
    assert!(!all.wants(&event(1, "a", "tidelock.state-changed")));
    let typed = |name: &str| Interest { types: vec![EventType::new(name).unwrap()], streams: None };
    assert!(
        typed("Placed").wants(&event(1, "a", "Placed")) && !typed("Placed").wants(&event(1, "a", "Paid"))
    );
    assert!(typed("tidelock.state-changed").wants(&event(1, "a", "tidelock.state-changed")));
    assert!(!typed(ROUTED).wants(&event(1, "a", ROUTED)), "a copy would be copied without end");
    let ranged = Interest { types: vec![], streams: Some(KeyPrefix::kind("cart")) };
    assert!(!ranged.wants(&event(1, "a", "Placed")));
}

#[test]
fn a_row_follows_the_stream_and_begins_before_the_event_that_woke_it() {
    let interest = Interest { types: vec![EventType::new("Placed").unwrap()], streams: None };
    let routing =
        Routing { name: "r", stored: &stored(&interest, 0), to: None, upcasters: &Upcasters::default() };
    let events =
        [event(3, "a", "Placed"), event(4, "b", "Paid"), event(7, "a", "Placed"), event(9, "c", "Placed")];
    let plan = routing.plan(&events);
    assert_eq!((plan.covered, plan.events, plan.stuck), (4, 3, None));
    assert!(plan.copies.is_empty());
    let wakes: Vec<_> = plan.wakes.values().map(|wake| (wake.follow.clone(), wake.from.0)).collect();
    assert_eq!(wakes, [(Key::new("order", ["a"]).unwrap(), 2), (Key::new("order", ["c"]).unwrap(), 8)]);
}

#[test]
fn events_of_a_chosen_key_are_copied_in_order() {
    let interest = Interest::default();
    let to: Choose =
        Arc::new(|event| (event.event_type.as_str() != "Paid").then(|| Key::single("all").unwrap()));
    let routing =
        Routing { name: "r", stored: &stored(&interest, 4), to: Some(&to), upcasters: &Upcasters::default() };
    let plan = routing.plan(&[event(3, "a", "Placed"), event(4, "b", "Paid"), event(7, "b", "Sent")]);
    let inbox = keys::inbox("r", 4, &Key::single("all").unwrap()).unwrap();
    assert_eq!(plan.wakes.values().map(|w| &w.follow).collect::<Vec<_>>(), [&inbox]);
    assert_eq!(plan.copies.keys().collect::<Vec<_>>(), [&inbox]);
    assert_eq!((plan.copies[&inbox].len(), plan.events, plan.covered), (2, 2, 3));
}

#[test]
fn a_plan_ends_before_what_cannot_be_routed() {
    let interest = Interest::default();
    let panics: Choose = Arc::new(|event| match event.position {
        Position(7) => panic!("no key"),
        _ => Some(Key::single("all").unwrap()),
    });
    let routing = Routing {
        name: "r",
        stored: &stored(&interest, 0),
        to: Some(&panics),
        upcasters: &Upcasters::default(),
    };
    let plan = routing.plan(&[event(3, "a", "Placed"), event(7, "a", "Placed"), event(8, "a", "Placed")]);
    assert_eq!(plan.covered, 1);
    assert!(plan.stuck.is_some_and(|reason| reason.contains("no key")));
    let long = "x".repeat(1_000);
    let own = Routing { to: None, ..routing };
    let plan = own.plan(&[event(3, &long, "Placed")]);
    assert!(plan.covered == 0 && plan.stuck.is_some_and(|reason| reason.contains("key length")));
}

#[test]
fn a_copy_that_is_too_large_is_found_on_its_own() {
    let interest = Interest::default();
    let to: Choose = Arc::new(|event| Some(event.stream.clone()));
    let routing =
        Routing { name: "r", stored: &stored(&interest, 0), to: Some(&to), upcasters: &Upcasters::default() };
    let notes = "x".repeat(crate::model::limits::PAYLOAD_BYTES - 2);
    let large = Event { meta: Payload::of(&notes).unwrap(), ..event(4, "a", "Placed") };
    let plan = routing.plan(&[event(3, "a", "Placed"), large]);
    assert!(plan.covered == 1 && plan.stuck.is_some());
}

#[test]
fn a_plan_is_no_larger_than_a_batch() {
    let interest = Interest::default();
    let to: Choose = Arc::new(|event| Some(event.stream.clone()));
    let routing =
        Routing { name: "r", stored: &stored(&interest, 0), to: Some(&to), upcasters: &Upcasters::default() };
    let payload = Payload::of(&"x".repeat(3_000_000)).unwrap();
    let events: Vec<Event> =
        (1..=9).map(|n| Event { payload: payload.clone(), ..event(n, "a", "Placed") }).collect();
    assert_eq!(routing.plan(&events).covered, 5);
}

#[test]
fn an_added_type_counts_from_where_it_was_added() {
    let of = |types: &[&str]| {
        let types = types.iter().map(|name| EventType::new(*name).unwrap()).collect();
        stored(&Interest { types, streams: None }, 0).facts
    };
    let (first, second) = (of(&["Placed"]), of(&["Cancelled", "Placed"]));
    let added = Stored::first(&first).replaced_by(&second);
    assert!(!added.is_complete() && added.standing_of(&second) == DefinitionState::Preparing);
    assert_eq!(added.standing_of(&first), DefinitionState::Superseded);
    let added = added.completed(Position(5));
    assert_eq!(added.standing_of(&second), DefinitionState::Current);
    let wants = |stored: &Stored, name| [5, 6].map(|position| stored.wants(&event(position, "a", name)));
    assert_eq!(wants(&added, "Cancelled"), [false, true]);
    assert_eq!(wants(&added, "Placed"), [true, true]);
    // Removed and added again: events up to the second addition are not wanted.
    let back = added.replaced_by(&of(&["Cancelled"])).completed(Position(7)).replaced_by(&first);
    let back = back.completed(Position(9));
    let placed = [6, 8, 9, 10].map(|position| back.wants(&event(position, "a", "Placed")));
    assert_eq!(placed, [false, false, false, true]);
    let again = back.begun_again();
    assert!(again.wants(&event(1, "a", "Placed")), "a reset counts from the beginning");
}

#[test]
fn an_ended_definition_is_followed_by_another_one_only() {
    let facts = stored(&Interest::default(), 3).facts;
    let ended = Stored { state: super::super::stored::State::Ended, ..stored(&Interest::default(), 3) };
    assert_eq!(ended.standing_of(&facts), DefinitionState::Ended);
    let next = DefinitionContent { revision: 2, ..facts.clone() };
    let begun = ended.replaced_by(&next);
    assert_eq!(
        (begun.number, begun.generation, begun.standing_of(&next)),
        (2, 4, DefinitionState::Preparing)
    );
    assert_eq!(begun.standing_of(&facts), DefinitionState::Superseded);
    assert!(begun.wants(&event(1, "a", "Placed")));
}

/// A row that waited for its turn while others killed the process was granted often and ran seldom.
#[test]
fn only_recorded_attempts_count_after_a_death() {
    let retry = RetryPolicy { max_attempts: 5, ..RetryPolicy::default() };
    let rules = Rules { retry, exhausted: WhenExhausted::Block };
    for (attempts, takeovers, recorded, suspect) in [
        (1, 1, false, false),
        (2, 1, true, false),
        (3, 0, false, false),
        (3, 1, true, true),
        (40, 39, true, true),
    ] {
        assert_eq!(Rules::is_recorded(attempts, takeovers), recorded, "{attempts} {takeovers}");
        assert_eq!(rules.is_suspect(attempts, takeovers), suspect, "{attempts} {takeovers}");
    }
    let at = |attempt, granted| Some(Recorded { position: None, attempt, granted });
    for (attempts, takeovers, has_failed, recorded, number) in [
        (2, 1, false, None, 2),
        (9, 8, false, None, 2),
        // Three failures, then a death.
        (4, 1, true, None, 4),
        // Two failures, then deaths that the row waited through.
        (8, 5, true, None, 4),
        (9, 8, false, at(2, 8), 3),
        // The recorded grant was deferred.
        (9, 8, false, at(2, 9), 2),
        // An operator unblocked the row.
        (2, 8, true, at(5, 6), 2),
        (1, 8, false, at(4, 4), 1),
    ] {
        let row = Granted { attempts, takeovers, has_failed };
        assert_eq!(Rules::counted(row, recorded), number, "{row:?} {recorded:?}");
    }
}

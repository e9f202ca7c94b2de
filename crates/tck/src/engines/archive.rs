//! Archiving of streams (E7 through `tidelock_core::archive`). Closing is refused while reactions are pending, loses
//! nothing in a race, and resumes after a crash at any point.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::archive::{ArchiveError, ArchiveMode, ArchivePage, ArchiveReport, Archiver};
use tidelock_core::events::{Aggregate, AsOf, Events, EventsError};
use tidelock_core::failure::Failure;
use tidelock_core::lease::LeaseError;
use tidelock_core::reactions::{Operator, PendingReason, ReactionFilter, WhenExhausted};

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::dump::rows;
use crate::fault_proxy::{Detour, Gate as LeaseGuard};
use crate::ledger::*;
use crate::prelude::*;
use crate::reacting::*;

/// Closed with a tombstone: all events go to the archive, appends are rejected, and a second call has nothing to do.
pub async fn e7_books_closed_with_a_tombstone_take_nothing_more(env: &Env) {
    let (events, stream, shelf) = (here(env), stream("tomb"), Shelf::default());
    book(&events, "tomb", 5).await;
    let closed = closing(&events, &stream, &shelf).tombstone().await.unwrap();
    let below = Some(StreamVersion(5));
    let expected = ArchiveReport {
        stream: stream.clone(),
        way: ArchiveMode::Tombstone,
        below,
        archived: 5,
        removed: 5,
        resumed: false,
    };
    assert_eq!(closed, expected);
    assert_eq!((shelf.versions(), shelf.calls()), (vec![0, 1, 2, 3, 4], 3));
    assert!(env.other.history(&stream).await.is_empty());
    for events in [&events, &there(env)] {
        let error = events.append::<Ledger>("tomb", [Booked { n: 1 }]).await.unwrap_err();
        assert!(matches!(error, EventsError::Closed { head: Some(StreamVersion(4)), .. }), "{error}");
        let command = events.execute("tomb", |_: &Ledger| Ok::<_, String>(vec![Booked { n: 1 }])).await;
        assert!(command.is_err_and(|error| error.to_string().contains("is closed at version 4")));
    }
    assert_eq!(there(env).load::<Ledger>("tomb").await.unwrap().version, None);
    let again = closing(&there(env), &stream, &shelf).tombstone().await.unwrap();
    assert_eq!((again.below, again.removed, shelf.calls()), (None, 0, 3));
    let anew = closing(&there(env), &stream, &shelf).restart::<Ledger>().await.unwrap();
    assert_eq!(anew.removed, 0);
}

/// Closed with a restart: commands continue with the same state and the next version, on both connections, and also
/// with a new state.
pub async fn e7_a_stream_restarts_with_its_state(env: &Env) {
    let (events, other, stream, shelf) = (here(env), there(env), stream("anew"), Shelf::default());
    book(&events, "anew", 5).await;
    other.load::<Ledger>("anew").await.unwrap();
    let closed = closing(&events, &stream, &shelf).restart::<Ledger>().await.unwrap();
    assert_eq!((closed.archived, closed.removed, closed.below), (5, 5, Some(StreamVersion(5))));
    assert_eq!(versions(&env.store.history(&stream).await), [5]);
    for events in [&events, &other, &there(env)] {
        let loaded = events.load::<Ledger>("anew").await.unwrap();
        assert_eq!(
            (loaded.state.sum, loaded.state.bookings.len(), loaded.version),
            (15, 5, Some(StreamVersion(5)))
        );
    }
    let again = closing(&events, &stream, &shelf).restart::<Ledger>().await.unwrap();
    assert_eq!((again.removed, again.below), (0, None), "nothing has happened since");
    let done = other.execute("anew", |ledger: &Ledger| Ok::<_, String>(vec![Booked { n: ledger.sum }])).await;
    assert_eq!(done.unwrap().state.sum, 30);
    let opening = |ledger: &Ledger| Ledger { sum: ledger.sum, bookings: Vec::new() };
    let closed = closing(&events, &stream, &shelf).restart_with(opening).await.unwrap();
    assert_eq!((closed.archived, closed.removed), (2, 2));
    assert_eq!(shelf.versions(), [0, 1, 2, 3, 4, 5, 6]);
    for events in [&events, &other, &there(env)] {
        let state = events.load::<Ledger>("anew").await.unwrap().state;
        assert_eq!(*state, Ledger { sum: 30, bookings: Vec::new() });
    }
    let gone = there(env).as_of::<Ledger>("anew", AsOf::Version(StreamVersion(3))).await;
    assert!(matches!(gone, Err(EventsError::Archived { first: StreamVersion(7), .. })), "{gone:?}");
}

/// Closed up to a version or an instant: the remaining events fold to the same state, even in a program without a
/// cache. A read of the removed part reports that it is gone.
pub async fn e7_books_closed_up_to_a_version_keep_the_rest(env: &Env) {
    let (events, stream, shelf) = (here(env), stream("window"), Shelf::default());
    book(&events, "window", 5).await;
    env.pass(secs(10));
    let noon = env.now();
    book(&events, "window", 3).await;
    let whole = events.load::<Ledger>("window").await.unwrap();
    let closed = closing(&events, &stream, &shelf).keep_last::<Ledger>(6).await.unwrap();
    assert_eq!((closed.way, closed.archived, closed.removed), (ArchiveMode::Window, 2, 2));
    let closed = closing(&events, &stream, &shelf).before::<Ledger>(noon).await.unwrap();
    assert_eq!((closed.archived, closed.removed, closed.below), (3, 3, Some(StreamVersion(5))));
    assert_eq!(shelf.versions(), [0, 1, 2, 3, 4]);
    assert_eq!(versions(&env.store.history(&stream).await), [5, 6, 7]);
    assert_eq!(there(env).load::<Ledger>("window").await.unwrap().state, whole.state);
    let moment = |version| AsOf::Version(StreamVersion(version));
    assert_eq!(there(env).as_of::<Ledger>("window", moment(4)).await.unwrap().state.sum, 15);
    assert_eq!(there(env).as_of::<Ledger>("window", moment(5)).await.unwrap().state.sum, 16);
    let gone = there(env).as_of::<Ledger>("window", moment(3)).await;
    assert!(matches!(gone, Err(EventsError::Archived { first: StreamVersion(5), .. })), "{gone:?}");
    let unkept = Events::new(Arc::clone(&env.other.0)).load::<Ledger>("window").await;
    assert!(matches!(unkept, Err(EventsError::NotKept { kind: "ledger", .. })), "{unkept:?}");
    let later = env.now().after(secs(60));
    let closed = closing(&events, &stream, &shelf).before::<Ledger>(later).await.unwrap();
    assert_eq!(closed.removed, 2, "the last event stays");
    assert_eq!(closing(&events, &stream, &shelf).keep_last::<Ledger>(1).await.unwrap().removed, 0);
    let twice = |ledger: &Ledger| Ok::<_, String>(vec![Booked { n: ledger.sum }]);
    assert_eq!(there(env).execute("window", twice).await.unwrap().state.sum, 42);
    closing(&events, &stream, &shelf).restart::<Ledger>().await.unwrap();
    assert_eq!(there(env).load::<Ledger>("window").await.unwrap().state.sum, 42);
}

/// Returns the pending reactions that a refused closing reports.
async fn pending(events: &Events, id: &str) -> Vec<(String, Key, PendingReason)> {
    let shelf = Shelf::default();
    let before = events.store().stream(&stream(id)).await.unwrap();
    let refused = closing(events, &stream(id), &shelf).tombstone().await;
    let Err(ArchiveError::Pending { pending, .. }) = refused else {
        panic!("it should be pending: {refused:?}")
    };
    assert_eq!(events.store().stream(&stream(id)).await.unwrap(), before, "nothing was changed");
    assert_eq!(shelf.calls(), 0);
    pending.into_iter().map(|pending| (pending.reaction, pending.key, pending.waits)).collect()
}

/// Closing is refused while a reaction has an event that is not routed, not handled, blocked or parked. It is also
/// refused for a reaction without workers, unless the call names that reaction.
pub async fn e7_books_stay_open_while_reactions_are_pending(env: &Env) {
    let (events, ledgers) = (here(env), || KeyPrefix::kind(Ledger::KIND));
    let gate = Gate::closed();
    let waiting = {
        let gate = gate.clone();
        reaction("e7-waits").streams(ledgers()).each(move |_, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(())
            }
        })
    };
    start(&env.store, waiting.clone()).await.shutdown().await;
    book(&events, "pending", 1).await;
    let found = |waits| vec![("e7-waits".to_owned(), stream("pending"), waits)];
    assert_eq!(pending(&events, "pending").await, found(PendingReason::Routing));
    let running = start(&env.store, waiting).await;
    gate.reached_by(1).await;
    assert_eq!(pending(&there(env), "pending").await, found(PendingReason::Worker));
    gate.let_through(1);
    running.quiesce().await.unwrap();
    let closed = closing(&events, &stream("pending"), &Shelf::default()).restart::<Ledger>().await.unwrap();
    assert_eq!(closed.removed, 1);
    running.shutdown().await;
    book(&events, "pending", 1).await;
    let careless = closing(&events, &stream("pending"), &Shelf::default()).regardless_of(["e7-waits"]);
    assert_eq!(careless.tombstone().await.unwrap().removed, 2);
}

/// Closing is refused while a key is blocked, or an event is parked.
pub async fn e7_books_stay_open_while_an_operator_is_awaited(env: &Env) {
    let events = here(env);
    let fails = |name| {
        reaction(name)
            .streams(KeyPrefix::kind(Ledger::KIND))
            .each(async |_, _| Err::<(), _>(Failure::permanent("never")))
    };
    book(&events, "stuck", 1).await;
    let running = start(&env.store, fails("e7-blocks")).await;
    running.quiesce().await.unwrap();
    running.shutdown().await;
    assert_eq!(
        pending(&events, "stuck").await,
        [("e7-blocks".to_owned(), stream("stuck"), PendingReason::Unblocking)]
    );
    let parking = fails("e7-blocks").when_exhausted(WhenExhausted::Park);
    let running = start(&env.store, parking).await;
    let operator = Operator::new(Arc::clone(&env.other.0));
    operator.unblock(&ReactionFilter::of("e7-blocks")).await.unwrap();
    running.quiesce().await.unwrap();
    assert_eq!(
        pending(&events, "stuck").await,
        [("e7-blocks".to_owned(), stream("stuck"), PendingReason::Parked)]
    );
    operator.drop_parked(&ReactionFilter::of("e7-blocks")).await.unwrap();
    assert_eq!(closing(&events, &stream("stuck"), &Shelf::default()).tombstone().await.unwrap().removed, 1);
    running.shutdown().await;
}

/// A reaction that chooses keys has inboxes. The refusal names the key that has an event of the stream, and no other.
pub async fn e7_books_look_into_inboxes(env: &Env) {
    let (events, gate) = (here(env), Gate::closed());
    let gathering = {
        let gate = gate.clone();
        let chosen = |event: &Event| Some(Key::new("hall", [event.version.0 as i64 % 2]).unwrap());
        reaction("e7-gathers").streams(KeyPrefix::kind(Ledger::KIND)).to(chosen).each(move |turn, event| {
            let gate = gate.clone();
            async move {
                if event.version.0 % 2 == 1 {
                    gate.pass().await;
                }
                Ok(note("e7-gathers", turn.key(), &event))
            }
        })
    };
    book(&events, "in", 2).await;
    book(&events, "apart", 1).await;
    let running = start(&env.store, gathering).await;
    gate.reached_by(1).await;
    let even = Key::new("hall", [0]).unwrap();
    until("the other key is handled", async || noted(&env.store, "e7-gathers", &even).await.len() == 2).await;
    let odd = Key::new("hall", [1]).unwrap();
    until("the row has been notified", async || {
        pending(&events, "in").await == [("e7-gathers".to_owned(), odd.clone(), PendingReason::Worker)]
    })
    .await;
    let apart = closing(&events, &stream("apart"), &Shelf::default()).tombstone().await.unwrap();
    assert_eq!(apart.removed, 1, "the other stream has nothing in that inbox");
    gate.let_through(1);
    running.quiesce().await.unwrap();
    assert_eq!(closing(&events, &stream("in"), &Shelf::default()).tombstone().await.unwrap().removed, 2);
    running.shutdown().await;
}

/// An event is appended between the read and the commit. The commit is rejected, and the closing then includes that
/// event.
pub async fn e7_books_are_not_closed_over_an_append(env: &Env) {
    let gate = Arc::new(LeaseGuard::default());
    let events = engine(&Detour::over(Arc::clone(&gate), &env.store.0));
    for (id, restart) in [("race-a", true), ("race-b", false)] {
        book(&events, id, 3).await;
        let shelf = Shelf::default();
        gate.close();
        let closing = closing(&events, &stream(id), &shelf);
        let closing =
            async { if restart { closing.restart::<Ledger>().await } else { closing.tombstone().await } };
        let appending = async {
            gate.arrived().await;
            there(env).append::<Ledger>(id, [Booked { n: 4 }]).await.unwrap();
            gate.open();
        };
        let (closed, ()) = tokio::join!(closing, appending);
        assert_eq!((closed.unwrap().archived, shelf.versions()), (4, vec![0, 1, 2, 3]));
    }
    assert_eq!(there(env).load::<Ledger>("race-a").await.unwrap().state.sum, 10);
}

/// Commands run while the stream is repeatedly closed with a restart. No event is lost, and none is counted twice.
pub async fn e7_commands_continue_while_books_are_closed(env: &Env) {
    let shelf = Shelf::default();
    let work = |i: usize, conn: Conn| {
        let (events, shelf) = (engine(&conn.0), shelf.clone());
        async move {
            for _ in 0..10 {
                if i == 0 {
                    closing(&events, &stream("busy"), &shelf)
                        .restart::<Ledger>()
                        .await
                        .map(drop)
                        .unwrap_or_else(|error| assert!(error.code().as_str() == "TL0201", "{error}"));
                } else {
                    let booked = |_: &Ledger| Ok::<_, String>(vec![Booked { n: 1 }]);
                    events.execute("busy", booked).await.unwrap();
                }
            }
        }
    };
    env.race(2, 5, work).await;
    let loaded = there(env).load::<Ledger>("busy").await.unwrap();
    assert_eq!((loaded.state.sum, loaded.state.bookings.len()), (40, 40));
    let left = env.store.history(&stream("busy")).await;
    let all: Vec<u64> = shelf.versions().into_iter().chain(versions(&left)).collect();
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>(), "each event is archived or left");
}

/// Only one process closes a stream at a time. A second one learns which process does. Afterwards both see the same
/// result.
pub async fn e7_books_are_closed_by_one(env: &Env) {
    let (events, gate) = (here(env), Gate::closed());
    book(&events, "one", 2).await;
    let slow = {
        let gate = gate.clone();
        Archiver::new(events.clone()).close(&stream("one")).archive(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<(), std::io::Error>(())
            }
        })
    };
    let first = tokio::spawn(slow.tombstone());
    gate.reached_by(1).await;
    let second = closing(&there(env), &stream("one"), &Shelf::default()).tombstone().await;
    let held =
        matches!(&second, Err(ArchiveError::Lease(error)) if matches!(**error, LeaseError::Held { .. }));
    assert!(held, "{second:?}");
    gate.let_through(1);
    assert_eq!(first.await.unwrap().unwrap().removed, 2);
}

/// A closer that lost its lease writes nothing, because another process has closed the stream.
pub async fn e7_a_closer_without_its_lease_changes_nothing(env: &Env) {
    let (events, gate, stream) = (here(env), Gate::closed(), stream("late"));
    book(&events, "late", 3).await;
    let slow = {
        let gate = gate.clone();
        Archiver::new(events.clone()).close(&stream).archive(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<(), std::io::Error>(())
            }
        })
    };
    let late = tokio::spawn(slow.restart::<Ledger>());
    gate.reached_by(1).await;
    env.pass(secs(40));
    let closed = closing(&there(env), &stream, &Shelf::default()).restart::<Ledger>().await.unwrap();
    assert_eq!((closed.resumed, closed.archived, closed.removed), (true, 3, 3));
    book(&there(env), "late", 2).await;
    let before = Dump::of(&env.store).await;
    gate.let_through(1);
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.code().as_str(), "TL0204", "{error}");
    assert_eq!(Dump::of(&env.store).await, before);
}

/// A failing archive keeps its events. The next call starts with the same page, and another way of closing is refused.
pub async fn e7_a_failing_archive_loses_nothing(env: &Env) {
    let (events, stream, shelf) = (here(env), stream("failing"), Shelf::default());
    book(&events, "failing", 5).await;
    let failing = {
        let shelf = shelf.clone();
        Archiver::new(events.clone()).close(&stream).archive(move |page| {
            let shelf = shelf.clone();
            async move {
                let full = shelf.calls() == 1;
                shelf.keep(page);
                if full { Err(std::io::Error::other("full")) } else { Ok(()) }
            }
        })
    };
    let error = failing.page(2).restart::<Ledger>().await.unwrap_err();
    let ArchiveError::Archive { first, last, .. } = &error else { panic!("{error}") };
    assert_eq!((*first, *last), (StreamVersion(2), StreamVersion(3)));
    assert_eq!(versions(&env.store.history(&stream).await), [0, 1, 2, 3, 4, 5]);
    assert_eq!(there(env).load::<Ledger>("failing").await.unwrap().state.sum, 15);
    let other_way = closing(&there(env), &stream, &shelf).tombstone().await;
    let under_way = matches!(
        other_way,
        Err(ArchiveError::UnderWay { was: ArchiveMode::Restart, asked: ArchiveMode::Tombstone, .. })
    );
    assert!(under_way, "{other_way:?}");
    book(&events, "failing", 1).await;
    let closed = closing(&there(env), &stream, &shelf).page(4).restart::<Ledger>().await.unwrap();
    assert_eq!((closed.resumed, closed.archived, closed.removed), (true, 3, 5));
    assert_eq!(shelf.versions(), [0, 1, 2, 3, 4]);
    assert_eq!(there(env).load::<Ledger>("failing").await.unwrap().state.sum, 16);
}

/// A closing in one of the three ways.
struct ArchivedStream(ArchiveMode);

#[async_trait(?Send)]
impl Scenario for ArchivedStream {
    async fn prepare(&self, env: &Env) {
        book(&here(env), "book", 7).await;
    }

    async fn live(&self, process: &Process) {
        let (events, stream, outside) = (engine(&process.store), stream("book"), process.outside.clone());
        let archive = move |page: ArchivePage| {
            // A page that comes again must be the same.
            outside.make(format!("{}: {:?}", page.name(), versions(&page.events)));
            async { Ok::<(), std::io::Error>(()) }
        };
        let closing = Archiver::new(events).close(&stream).archive(archive).page(2);
        let closed = match self.0 {
            ArchiveMode::Tombstone => closing.tombstone().await,
            ArchiveMode::Restart => closing.restart::<Ledger>().await,
            ArchiveMode::Window => closing.keep_last::<Ledger>(2).await,
        };
        assert!(closed.is_ok(), "{closed:?}");
    }

    /// The state is right at once.
    async fn crashed(&self, env: &Env) {
        if self.0 != ArchiveMode::Tombstone {
            assert_eq!(there(env).load::<Ledger>("book").await.unwrap().state.sum, 28);
        }
    }

    async fn end(&self, env: &Env, outside: &Outside) -> Value {
        let stream = stream("book");
        self.crashed(env).await;
        json!({
            "archived": outside.kinds(),
            "left": versions(&env.store.history(&stream).await),
            "checkpoint": env.store.value(&stream.beside("tidelock.closing").unwrap()).await,
            "rows": rows(&env.store).await,
        })
    }
}

/// The process crashes at every point of a closing, in each of its ways. The state is correct at once, and the next call
/// resumes. Every event is archived on one page, and no progress record remains.
pub async fn e7_every_crash_point_of_a_closing(env: &Env) {
    for way in [ArchiveMode::Tombstone, ArchiveMode::Restart, ArchiveMode::Window] {
        every_crash_point(&format!("a closing, {way:?}"), env, ArchivedStream(way)).await;
    }
}

/// A closing removes more events than one batch allows in several steps.
pub async fn e7_long_books_are_closed_in_steps(env: &Env) {
    let (events, stream) = (here(env), stream("long"));
    let count = limits::TRUNCATE_EVENTS + 5;
    let booked: Vec<LedgerEvent> = (0..500).map(|_| Booked { n: 1 }).collect();
    for _ in 0..count / 500 {
        events.append::<Ledger>("long", booked.clone()).await.unwrap();
    }
    events.append::<Ledger>("long", booked.into_iter().take(5)).await.unwrap();
    let closed = Archiver::new(events.clone()).close(&stream).discard().keep_last::<Ledger>(2).await.unwrap();
    assert_eq!((closed.removed, closed.archived), (count - 2, 0));
    let closed = Archiver::new(events).close(&stream).discard().tombstone().await.unwrap();
    assert_eq!(closed.removed, 2);
}

//! Stream truncation (E7), the last step of archiving: it removes the first events of a stream. The remaining events
//! are unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::env::ONE_AND_TWO;
use crate::prelude::*;

fn truncate(stream: &Key, before: u64) -> Batch {
    Batch::new().truncate(stream, StreamVersion(before))
}

fn append(stream: &Key, count: usize) -> Batch {
    Batch::new().append(stream, Expect::Any, events(count))
}

fn versions(events: &[Event]) -> Vec<u64> {
    events.iter().map(|e| e.version.0).collect()
}

fn positions(events: &[Event]) -> Vec<Position> {
    events.iter().map(|e| e.position).collect()
}

/// Returns the oldest remaining version and the last one.
async fn ends(conn: &Conn, stream: &Key) -> (Option<u64>, Option<u64>) {
    let info = conn.stream(stream).await.unwrap().unwrap();
    (info.first.map(|v| v.0), info.head.map(|v| v.0))
}

/// Events below the version are removed. The others, their versions and positions, the head and other streams stay.
pub async fn e7_a_truncate_removes_the_beginning_and_nothing_else(env: &Env) {
    let (stream, beside) = (key("e7-cut"), key("e7-beside"));
    for _ in 0..5 {
        env.store.done(append(&stream, 2).append(&beside, Expect::Any, events(1))).await;
    }
    let before = Dump::of(&env.store).await;
    assert_eq!(ends(&env.other, &stream).await, (Some(0), Some(9)));
    let receipt = env.store.done(truncate(&stream, 4)).await;
    assert_eq!((receipt.truncated.as_slice(), receipt.appended.len()), (&[4][..], 0));
    let after = Dump::of(&env.other).await;
    let stays = |event: &&Event| event.stream != stream || event.version >= StreamVersion(4);
    let wanted: Vec<Event> = before.events.iter().filter(stays).cloned().collect();
    assert_eq!(after.events, wanted, "what stays is as it was");
    assert_eq!(ends(&env.other, &stream).await, (Some(4), Some(9)));
    assert_eq!(ends(&env.other, &beside).await, (Some(0), Some(4)));
    assert_eq!(versions(&env.other.history(&stream).await), [4, 5, 6, 7, 8, 9]);
    assert_eq!(env.store.history(&stream).await, env.other.history(&stream).await);
}

/// A reader starts at the first remaining version, forward and backward, with and without a filter.
pub async fn e7_readers_begin_with_the_remaining_events(env: &Env) {
    let stream = key("e7-read");
    env.store.done(append(&stream, 8)).await;
    env.other.done(truncate(&stream, 3)).await;
    for conn in [&env.store, &env.other] {
        let read = async |query: StreamQuery| versions(&conn.read_stream(query).await.unwrap().events);
        let (forward, backward) = (StreamQuery::forward(&stream, 2), StreamQuery::backward(&stream, 9));
        assert_eq!(read(forward.clone()).await, [3, 4]);
        for from in 0..4 {
            assert_eq!(read(forward.clone().from(StreamVersion(from))).await, [3, 4], "from {from}");
        }
        assert_eq!(read(forward.clone().from(StreamVersion(7))).await, [7]);
        assert_eq!(read(backward.clone()).await, [7, 6, 5, 4, 3]);
        assert_eq!(read(backward.clone().from(StreamVersion(4))).await, [4, 3]);
        assert_eq!(read(backward.clone().from(StreamVersion(2))).await, [0; 0]);
        let filter = EventFilter { types: vec![event_type("Happened")], ..EventFilter::default() };
        assert_eq!(read(StreamQuery { filter: filter.clone(), ..forward }).await, [3, 4]);
        assert_eq!(read(StreamQuery { filter, ..backward }).await, [7, 6, 5, 4, 3]);
        assert_eq!(versions(&conn.log().await), [3, 4, 5, 6, 7]);
    }
}

/// All events may be removed. The empty stream still exists and continues after its last version, at new positions.
pub async fn e7_appends_continue_after_everything_was_removed(env: &Env) {
    let (stream, beside) = (key("e7-all"), key("e7-all-beside"));
    env.store.done(append(&beside, 1)).await;
    let receipt = env.store.done(append(&stream, 3)).await;
    let last = receipt.appended[0].last_position;
    assert_eq!(env.other.done(truncate(&stream, 3)).await.truncated, [3]);
    assert_eq!(ends(&env.store, &stream).await, (None, Some(2)));
    assert_eq!(env.store.history(&stream).await, []);
    assert_eq!(env.other.history(&stream).await, []);
    let refusal = env.store.refused(Batch::new().guard_stream(&stream, Expect::Absent)).await;
    assert_eq!(stream_conflict(refusal), StreamFound::At(StreamVersion(2)));
    env.other.done(Batch::new().guard_stream(&stream, at(2)).guard_stream(&stream, Expect::Exists)).await;
    // The newest positions of the store are removed and are not reused.
    let receipt = env.other.done(append(&beside, 1)).await;
    assert!(receipt.appended[0].first_position > last, "{receipt:?} after {last}");
    let receipt = env.store.done(Batch::new().append(&stream, at(2), events(2))).await;
    let appended = &receipt.appended[0];
    assert_eq!((appended.first_version, appended.last_version), (StreamVersion(3), StreamVersion(4)));
    assert!(appended.first_position > last);
    assert_eq!(ends(&env.other, &stream).await, (Some(3), Some(4)));
    assert_eq!(versions(&env.other.history(&stream).await), [3, 4]);
}

/// A repeated truncation changes nothing. A truncation of a missing stream does not create it.
pub async fn e7_a_truncate_again_changes_nothing(env: &Env) {
    let (stream, none, early) = (key("e7-again"), key("e7-none"), key("e7-tombstone"));
    env.store.done(append(&stream, 5).close(&early, Expect::Absent)).await;
    assert_eq!(env.store.done(truncate(&stream, 3)).await.truncated, [3]);
    let before = Dump::of(&env.store).await;
    for version in [3, 2, 0] {
        for conn in [&env.store, &env.other] {
            assert_eq!(conn.done(truncate(&stream, version)).await.truncated, [0]);
        }
    }
    for absent in [&none, &early] {
        assert_eq!(env.other.done(truncate(absent, 7)).await.truncated, [0]);
    }
    assert_eq!(Dump::of(&env.other).await, before);
    assert_eq!(env.store.stream(&none).await.unwrap(), None);
    env.store.done(Batch::new().append(&none, Expect::Absent, events(1))).await;
    let id = OpId::new();
    let batch = || truncate(&stream, 4).op_id(id);
    let first = env.store.done(batch()).await;
    assert_eq!(first.truncated, [1]);
    assert_eq!(env.other.done(batch()).await, first.clone().into_repeated());
    assert_eq!(env.other.operation(id).await.unwrap(), Some(first.into_repeated()));
}

/// A closed stream can be truncated. It stays closed, with its time of closing and its head.
pub async fn e7_a_closed_stream_can_be_truncated(env: &Env) {
    let stream = key("e7-closed");
    env.store.done(append(&stream, 4).close(&stream, at(3))).await;
    let closed = env.store.stream(&stream).await.unwrap().unwrap();
    env.pass(secs(5));
    for (before, removed, first) in [(2, 2, Some(StreamVersion(2))), (4, 2, None)] {
        assert_eq!(env.other.done(truncate(&stream, before)).await.truncated, [removed]);
        let now = env.store.stream(&stream).await.unwrap().unwrap();
        assert_eq!(now, StreamInfo { first, ..closed.clone() });
        let refusal = env.store.refused(append(&stream, 1)).await;
        let head = Some(StreamVersion(3));
        assert_eq!(refusal, Refusal::StreamClosed { index: 0, stream: stream.clone(), head });
    }
}

/// A version beyond the next one is rejected with the last version, and no effect of the batch is applied.
pub async fn e7_a_truncate_beyond_the_end_is_refused(env: &Env) {
    let (stream, document) = (key("e7-beyond"), key("e7-beyond"));
    env.store.done(append(&stream, 3)).await;
    env.store.done(truncate(&stream, 2)).await;
    let before = Dump::of(&env.store).await;
    for version in [4, 5, u64::MAX] {
        let batch = Batch::new().put(&document, Expect::Any, number(1)).truncate(&stream, StreamVersion(3));
        let refusal = env.other.refused(batch.truncate(&stream, StreamVersion(version))).await;
        let (before, head) = (StreamVersion(version), StreamVersion(2));
        assert_eq!(refusal, Refusal::TruncateBeyond { index: 2, stream: stream.clone(), before, head });
        assert_eq!((refusal.retry(), refusal.outcome()), (Retry::Never, Outcome::NotApplied));
    }
    assert_eq!(Dump::of(&env.store).await, before);
    env.other.done(truncate(&stream, 3)).await;
}

/// Effects apply in order: a truncation sees events that its batch appended before, and may remove them at once.
pub async fn e7_a_truncate_sees_earlier_operations_of_its_batch(env: &Env) {
    let (stream, other, new) = (key("e7-order"), key("e7-order-other"), key("e7-order-new"));
    env.store.done(append(&stream, 2).append(&other, Expect::Any, events(3))).await;
    let refusal = env.store.refused(truncate(&stream, 4).append(&stream, Expect::Any, events(2))).await;
    assert!(matches!(refusal, Refusal::TruncateBeyond { index: 0, .. }), "{refusal:?}");
    let batch = append(&stream, 2).truncate(&stream, StreamVersion(3)).append(&stream, at(3), events(2));
    let batch = batch.truncate(&other, StreamVersion(1)).truncate(&stream, StreamVersion(4));
    let batch = batch.append(&new, Expect::Absent, events(2)).truncate(&new, StreamVersion(2));
    let receipt = env.store.done(batch.close(&new, Expect::Any).op_id(OpId::new())).await;
    assert_eq!(receipt.truncated, [3, 1, 1, 2]);
    let appended: Vec<(u64, u64)> =
        receipt.appended.iter().map(|a| (a.first_version.0, a.last_version.0)).collect();
    assert_eq!(appended, [(2, 3), (4, 5), (0, 1)]);
    assert_eq!(versions(&env.other.history(&stream).await), [4, 5]);
    assert_eq!(versions(&env.other.history(&other).await), [1, 2]);
    assert_eq!(ends(&env.other, &new).await, (None, Some(1)));
    let left = env.store.history(&stream).await;
    let told = &receipt.appended[1];
    assert_eq!(positions(&left), [told.first_position, told.last_position], "receipts are true");
}

/// A receipt requested later contains the positions of events that its batch removed.
pub async fn e7_a_receipt_contains_the_removals_of_its_batch(env: &Env) {
    let stream = key("e7-receipt");
    let id = OpId::new();
    let list = events(3);
    let batch = || {
        let batch = Batch::new().append(&stream, Expect::Any, list.clone());
        batch.truncate(&stream, StreamVersion(2)).op_id(id)
    };
    let first = env.store.done(batch()).await;
    assert_eq!(first.appended[0].last_position, env.other.history(&stream).await[0].position);
    let again = Some(first.clone().into_repeated());
    assert_eq!(env.other.operation(id).await.unwrap(), again);
    assert_eq!(Some(env.other.done(batch()).await), again);
    assert_eq!(versions(&env.store.history(&stream).await), [2]);
}

/// Remaining events are recognised when they are appended again. Removed ones are new, and a mix of both is rejected.
pub async fn e7_ids_of_removed_events_are_free_again(env: &Env) {
    let stream = key("e7-ids");
    let (gone, there) = (events(2), events(2));
    let batch = |list: &[NewEvent]| Batch::new().append(&stream, Expect::Any, list.to_vec());
    env.store.done(batch(&gone)).await;
    let first = env.store.done(batch(&there)).await;
    // In the same batch as the removal they still exist.
    let refusal = env.store.refused(truncate(&stream, 2).append(&stream, Expect::Any, gone.clone())).await;
    assert!(matches!(refusal, Refusal::EventIdReused { .. }), "{refusal:?}");
    env.store.done(truncate(&stream, 2)).await;
    assert_eq!(env.other.done(batch(&there)).await, first.into_repeated());
    let half = env.other.refused(batch(&[gone[0].clone(), there[0].clone()])).await;
    assert!(matches!(half, Refusal::EventIdReused { .. }), "{half:?}");
    let receipt = env.other.done(batch(&gone)).await;
    assert!(!receipt.repeated);
    assert_eq!(versions(&env.store.history(&stream).await), [2, 3, 4, 5]);
    assert!(env.store.done(batch(&gone)).await.repeated, "now they are there");
}

/// A batch removes a bounded number of events. A larger one is rejected as a whole, with the step that is possible.
pub async fn e7_too_much_at_once_goes_in_steps(env: &Env) {
    const MORE: u64 = 7;
    let (stream, beside) = (key("e7-steps"), key("e7-steps-beside"));
    let most = usize::try_from(limits::TRUNCATE_EVENTS).unwrap();
    env.store.done(append(&stream, most)).await;
    env.store.done(append(&stream, MORE as usize).append(&beside, Expect::Any, events(1))).await;
    let all = limits::TRUNCATE_EVENTS + MORE;
    let mut removed = 0;
    let refusal = env.other.refused(truncate(&beside, 1).truncate(&stream, StreamVersion(all))).await;
    let Refusal::TruncateTooMuch { index: 1, step_to, found, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!((found, step_to), (all + 1, StreamVersion(limits::TRUNCATE_EVENTS)));
    assert_eq!(env.store.refused(truncate(&stream, all)).await.code().as_str(), "TL0210");
    assert_eq!(ends(&env.store, &stream).await, (Some(0), Some(all - 1)), "nothing was removed");
    assert_eq!(ends(&env.store, &beside).await, (Some(0), Some(0)));
    for before in [step_to.0, all] {
        removed += env.store.done(truncate(&stream, before)).await.truncated[0];
    }
    assert_eq!(removed, all);
    assert_eq!(ends(&env.other, &stream).await, (None, Some(all - 1)));
    assert_eq!(env.other.log().await.len(), 1);
}

/// A grant contains the remaining events of the stream that its row follows, wherever the row is positioned.
pub async fn e7_grants_bring_the_remaining_events(env: &Env) {
    let stream = key("e7-follow");
    env.store.done(append(&stream, 3)).await;
    env.store.done(append(&key("e7-follow-beside"), 2)).await;
    env.store.done(append(&stream, 3)).await;
    let history = env.store.history(&stream).await;
    env.store.done(truncate(&stream, 4)).await;
    let starts: Vec<Option<Position>> =
        std::iter::once(None).chain(positions(&history).into_iter().map(Some)).collect();
    for (i, position) in starts.into_iter().enumerate() {
        let row = key(&format!("e7-row-{i}"));
        let follow = NewWork { follow: Some(stream.clone()), position, ..standing(&format!("e7-row-{i}")) };
        env.other.done(enqueue(follow)).await;
        let conn = if i.is_multiple_of(2) { &env.store } else { &env.other };
        let claim = Claim::existing(&owner("worker"), &row, TTL).with_events(10);
        let granted = conn.claim(claim).await.unwrap().grants.remove(0).events;
        let wanted: Vec<u64> = (4.max(i as u64)..6).collect();
        assert_eq!(versions(&granted), wanted, "a row at {position:?}");
    }
}

/// Appends race with truncations. Every append follows the previous one, and exactly the requested events are removed.
pub async fn e7_appends_and_truncates_race(env: &Env) {
    const ROUNDS: u64 = 20;
    for connections in ONE_AND_TWO {
        let stream = key(&format!("e7-race-{connections}"));
        env.store.done(append(&stream, 10)).await;
        let work = |i: usize, conn: Conn| {
            let stream = stream.clone();
            async move {
                let mut told = (0, Vec::new());
                for round in 0..ROUNDS {
                    if i >= 4 {
                        let receipt = conn.done(append(&stream, 1)).await;
                        told.1.push(receipt.appended[0].clone());
                        continue;
                    }
                    // Two tasks remove the same events, one removes all it sees, one is a step behind.
                    let head = conn.stream(&stream).await.unwrap().unwrap().head.unwrap().0;
                    let before = [round / 2, round / 2, head + 1, head.saturating_sub(3)][i];
                    told.0 += conn.done(truncate(&stream, before)).await.truncated[0];
                }
                told
            }
        };
        let told = env.race(connections, 8, work).await;
        let removed: u64 = told.iter().map(|(removed, _)| removed).sum();
        let mut appended: Vec<Appended> = told.into_iter().flat_map(|(_, appended)| appended).collect();
        appended.sort_by_key(|a| a.first_version);
        let landed: Vec<u64> = appended.iter().map(|a| a.first_version.0).collect();
        assert_eq!(
            landed,
            (10..10 + 4 * ROUNDS).collect::<Vec<_>>(),
            "no version is given twice or left out"
        );
        assert!(
            appended.is_sorted_by(|a, b| a.last_position < b.first_position),
            "positions rise with versions"
        );
        let head = 9 + 4 * ROUNDS;
        let wanted: Vec<u64> = (removed..=head).collect();
        for conn in [&env.store, &env.other] {
            assert_eq!(versions(&conn.history(&stream).await), wanted, "every removal was counted once");
            let first = (removed <= head).then_some(removed);
            assert_eq!(ends(conn, &stream).await, (first, Some(head)));
        }
    }
}

/// A reader that pages during a truncation neither fails nor repeats events, and misses none of the remaining ones.
pub async fn e7_a_reader_pages_while_the_beginning_goes(env: &Env) {
    const EVENTS: u64 = 120;
    for connections in ONE_AND_TWO {
        let (stream, beside) =
            (key(&format!("e7-page-{connections}")), key(&format!("e7-stay-{connections}")));
        let start = env.store.log().await.last().map_or(Position(0), |e| e.position);
        for _ in 0..EVENTS / 10 {
            env.store.done(append(&stream, 10).append(&beside, Expect::Any, events(2))).await;
        }
        let stays = env.store.history(&beside).await;
        let done = Arc::new(AtomicBool::new(false));
        let work = |i: usize, conn: Conn| {
            let (stream, done) = (stream.clone(), Arc::clone(&done));
            async move {
                if i == 0 {
                    for before in 1..=EVENTS {
                        conn.done(truncate(&stream, before)).await;
                    }
                    done.store(true, Ordering::SeqCst);
                    return BTreeSet::new();
                }
                let mut seen = BTreeSet::new();
                loop {
                    // A store in memory answers at once. Without the yield, readers would starve the writer.
                    tokio::task::yield_now().await;
                    let last = done.load(Ordering::SeqCst);
                    if i.is_multiple_of(2) {
                        page_stream(&conn, &stream).await
                    } else {
                        seen = page_log(&conn, start, i).await
                    }
                    if last {
                        return seen;
                    }
                }
            }
        };
        for (i, seen) in env.race(connections, 5, work).await.into_iter().enumerate() {
            if i % 2 == 1 {
                assert_eq!(
                    seen,
                    stays.iter().map(|e| e.position).collect(),
                    "what stays is seen by reader {i}"
                );
            }
        }
    }
}

/// Reads a stream to its end. Pages have no gaps, and each continues after the previous one.
async fn page_stream(conn: &Conn, stream: &Key) {
    let mut from = StreamVersion(0);
    loop {
        let page = conn.read_stream(StreamQuery::forward(stream, 7).from(from)).await.unwrap();
        assert!(
            page.events.first().is_none_or(|e| e.version >= from),
            "{from} and {:?}",
            versions(&page.events)
        );
        assert!(
            page.events.is_sorted_by(|a, b| a.version.next() == b.version),
            "{:?}",
            versions(&page.events)
        );
        match page.events.last() {
            Some(last) if !page.end => from = last.version.next(),
            _ => return,
        }
    }
}

/// Reads the log from a position to its end, every other reader with a filter. Positions increase, and no event
/// repeats.
async fn page_log(conn: &Conn, start: Position, reader: usize) -> BTreeSet<Position> {
    let types = if reader == 1 { Vec::new() } else { vec![event_type("Happened")] };
    let (mut after, mut seen) = (start, BTreeSet::new());
    loop {
        let filter = EventFilter { types: types.clone(), ..EventFilter::default() };
        let page = conn.read_log(LogQuery { filter, ..LogQuery::after(after, 7) }).await.unwrap();
        for event in &page.events {
            assert!(event.position > after, "{} comes after {after}", event.position);
            after = event.position;
            seen.insert(event.position);
        }
        after = page.scanned_to.unwrap_or(after).max(after);
        if page.end {
            return seen;
        }
    }
}

/// A stream is closed step by step: first a tombstone, then the removal. Each step is repeatable, and a restart keeps
/// all of it.
pub async fn e7_removed_events_stay_removed_after_a_restart(env: &Env) {
    let (part, all, closed) = (key("e7-part"), key("e7-whole"), key("e7-books-closed"));
    env.store.done(append(&part, 6).append(&all, Expect::Any, events(2))).await;
    env.store.done(append(&closed, 3).close(&closed, Expect::Any)).await;
    env.store.done(truncate(&part, 4).truncate(&closed, StreamVersion(3))).await;
    // The newest position of the store is removed.
    let last = env.other.done(append(&all, 2)).await.appended[0].last_position;
    env.other.done(truncate(&all, 4)).await;
    let before = Dump::of(&env.store).await;
    if !env.capabilities().durable {
        return;
    }
    let store = env.restart().await;
    assert_eq!(Dump::of(&store).await, before);
    assert_eq!(ends(&store, &part).await, (Some(4), Some(5)));
    assert_eq!(ends(&store, &all).await, (None, Some(3)));
    let receipt = store.done(append(&all, 1)).await;
    assert_eq!(receipt.appended[0].first_version, StreamVersion(4));
    assert!(receipt.appended[0].first_position > last, "a position was given twice");
    assert_eq!(store.done(truncate(&part, 6).truncate(&closed, StreamVersion(3))).await.truncated, [2, 0]);
    let refusal = store.refused(append(&closed, 1)).await;
    assert!(matches!(refusal, Refusal::StreamClosed { head: Some(StreamVersion(2)), .. }), "{refusal:?}");
    assert_eq!(versions(&store.history(&all).await), [4]);
}

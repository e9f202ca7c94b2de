//! Paged reads (T5 and T14): lists, prefixes, filters, both directions, and readers that block no writer.

use std::collections::BTreeSet;

use tidelock_core::key::INDEX_KIND;

use crate::dump::{paged, pages};
use crate::prelude::*;

async fn names(conn: &Conn, prefix: &KeyPrefix) -> Vec<String> {
    let documents = pages(async |page| conn.documents(prefix, page).await).await;
    documents.iter().map(|d| d.key.to_string()).collect()
}

fn text(text: &str) -> Arg {
    Arg::Str(text.to_owned())
}

/// Prefix scans take `%`, `_`, `\` and every other character literally. Documents only.
pub async fn t5_prefix_takes_wildcards_literally(env: &Env) {
    let starts =
        ["a%", "a_", "a\\", "a*", "a?", "a[", "a'", "a\"", "ab", "a", "A%", "a b", "a\u{10ffff}", "b"];
    let mut batch = Batch::new();
    for start in starts {
        let rest = [format!("{start}x"), format!("{start}%y"), start.to_owned()];
        for name in rest {
            batch = batch.put(&Key::new("t5", [name]).unwrap(), Expect::Any, number(1));
        }
    }
    env.store.done(batch).await;
    let all = pages(async |page| env.other.documents(&KeyPrefix::kind("t5"), page).await).await;
    for start in starts {
        let prefix = KeyPrefix::starting("t5", &[], start);
        let found: BTreeSet<String> = names(&env.other, &prefix).await.into_iter().collect();
        let matching = all.iter().map(|d| &d.key);
        let matching = matching.filter(|k| matches!(&k.args()[0], Arg::Str(t) if t.starts_with(start)));
        let expected: BTreeSet<String> = matching.map(ToString::to_string).collect();
        assert!(expected.len() >= 3);
        assert_eq!(found, expected, "keys that begin with {start:?}");
    }
}

/// A prefix of arguments matches whole arguments, and a kind matches only that kind.
pub async fn t5_prefix_of_arguments_is_structural(env: &Env) {
    let keys = [
        ("t5a", vec!["x"]),
        ("t5a", vec!["x", "y"]),
        ("t5a", vec!["xy"]),
        ("t5a", vec![]),
        ("t5ab", vec!["x"]),
    ];
    let keys: Vec<Key> = keys.into_iter().map(|(kind, args)| Key::new(kind, args).unwrap()).collect();
    let batch = keys.iter().fold(Batch::new(), |b, k| b.put(k, Expect::Any, number(1)));
    env.store
        .done(batch.append(&keys[1], Expect::Any, events(1)).append(&keys[4], Expect::Any, events(1)))
        .await;
    let under = names(&env.store, &KeyPrefix::under("t5a", &[text("x")])).await;
    assert_eq!(under, [keys[0].to_string(), keys[1].to_string()]);
    assert_eq!(names(&env.store, &KeyPrefix::kind("t5a")).await.len(), 4);
    assert_eq!(names(&env.store, &KeyPrefix::all()).await.len(), 5);
    let streams = pages(async |page| env.store.streams(&KeyPrefix::kind("t5a"), page).await).await;
    assert_eq!(streams.len(), 1);
    assert_eq!((&streams[0].key, streams[0].head), (&keys[1], Some(StreamVersion(0))));
}

/// Pages neither repeat nor skip remaining rows while others appear and disappear between them. Documents only.
pub async fn t5_pages_neither_repeat_nor_skip(env: &Env) {
    let stays: Vec<Key> = (0..50).map(|i| Key::new("t5p", [i * 2]).unwrap()).collect();
    env.store.done(stays.iter().fold(Batch::new(), |b, k| b.put(k, Expect::Any, number(1)))).await;
    let prefix = KeyPrefix::kind("t5p");
    let (mut seen, mut after, mut round) = (Vec::new(), None, 0);
    loop {
        let page = env.other.documents(&prefix, Page { after: after.clone(), limit: 7 }).await.unwrap();
        seen.extend(page.rows.into_iter().map(|d| d.key));
        let Some(next) = page.next else { break };
        assert!(after < Some(next.clone()), "the pages lead back to {next}");
        // Between two pages, rows appear before and after the cursor, and the row at the cursor is deleted and
        // recreated.
        round += 1;
        let extra = |i: i64| Key::new("t5p", [i]).unwrap();
        let batch = Batch::new().put(&extra(round * 2 - 1), Expect::Any, number(0));
        let batch = batch.put(&extra(round * 14 + 1), Expect::Any, number(0)).delete(&next, Expect::Any);
        env.store.done(batch).await;
        env.store.done(Batch::new().put(&next, Expect::Any, number(2))).await;
        after = Some(next);
    }
    let unique: BTreeSet<&Key> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "no row twice");
    assert!(seen.is_sorted(), "in the order of keys");
    assert!(stays.iter().all(|k| unique.contains(k)), "no row that stays is skipped");
}

/// Every page size yields the same list, for documents, streams and work.
pub async fn t5_every_page_size_gives_the_same_list(env: &Env) {
    let mut batch = Batch::new();
    for i in 0..23 {
        let k = key(&format!("t5-{i}"));
        batch = batch.put(&k, Expect::Any, number(i)).append(&k, Expect::Any, events(1));
        batch = batch.enqueue(NewWork::once(k, jobs()));
    }
    env.store.done(batch).await;
    let (prefix, filter) = (all_keys(), WorkFilter { queue: Some(jobs()), ..WorkFilter::default() });
    for limit in [0, 1, 2, 7, 22, 23, 24, 10_000] {
        let shown = limit.max(1);
        let documents =
            paged(shown, async |page| env.other.documents(&prefix, Page { limit, ..page }).await).await;
        let streams =
            paged(shown, async |page| env.other.streams(&prefix, Page { limit, ..page }).await).await;
        let rows = paged(shown, async |page| env.other.works(&filter, Page { limit, ..page }).await).await;
        assert_eq!((documents.len(), streams.len(), rows.len()), (23, 23, 23), "pages of {limit}");
        assert!(documents.is_sorted_by(|a, b| a.key < b.key));
        assert!(streams.is_sorted_by(|a, b| a.key < b.key));
        assert!(rows.is_sorted_by(|a, b| a.key < b.key));
    }
    assert_eq!(env.store.documents(&prefix, Page::first(23)).await.unwrap().next, None, "full, and the last");
}

/// A list contains existing items: no deleted documents, but closed streams.
pub async fn t5_lists_show_existing_items(env: &Env) {
    let (a, b) = (key("t5-there"), key("t5-gone"));
    env.store.done(Batch::new().put(&a, Expect::Any, number(1)).put(&b, Expect::Any, number(1))).await;
    env.store.done(Batch::new().delete(&b, Expect::Any).append(&a, Expect::Any, events(1))).await;
    env.store.done(Batch::new().close(&a, Expect::Any).close(&b, Expect::Absent)).await;
    assert_eq!(names(&env.other, &all_keys()).await, [a.to_string()]);
    let streams = pages(async |page| env.other.streams(&all_keys(), page).await).await;
    assert_eq!(streams.len(), 2);
    for info in streams {
        let head = (info.key == a).then_some(StreamVersion(0));
        assert_eq!((info.head, info.closed_at), (head, Some(env.now())));
        assert_eq!(env.store.stream(&info.key).await.unwrap(), Some(info));
    }
    assert_eq!(env.store.stream(&key("t5-never")).await.unwrap(), None);
}

/// A count of documents is the length of their list: without deleted and expired ones, and only of this range.
/// Documents only.
pub async fn t5_a_count_of_documents_is_the_length_of_their_list(env: &Env) {
    let index = |list: &str, n: i64| Key::of(INDEX_KIND, &[text(list), Arg::from(n)]).unwrap();
    let of_kind = |n: i64| Key::new("counted", [n]).unwrap();
    let put = |batch: Batch, key: &Key| batch.put(key, Expect::Any, number(1));
    let mut batch = Batch::new();
    for n in 0..40 {
        batch = put(put(put(batch, &index("a", n)), &index("a.b", n)), &of_kind(n));
    }
    env.store.done(batch).await;
    let mut batch = Batch::new();
    for n in 0..15 {
        batch = batch.delete(&index("a", n), Expect::Any).delete(&of_kind(n), Expect::Any);
    }
    let soon = Due::After(Duration::from_secs(1));
    batch = batch.put_until(&of_kind(20), Expect::Any, number(2), soon);
    env.store.done(batch).await;
    env.pass(Duration::from_secs(2));
    let list = |name: &str| KeyPrefix::under(INDEX_KIND, &[text(name)]);
    for (range, expected) in [
        (list("a"), 25),
        (list("a.b"), 40),
        (list("b"), 0),
        (KeyPrefix::kind(INDEX_KIND), 65),
        (KeyPrefix::kind("counted"), 24),
    ] {
        for conn in [&env.store, &env.other] {
            let found = pages(async |page| conn.documents(&range, page).await).await.len() as u64;
            assert_eq!(
                (found, conn.count_documents(&range).await.unwrap()),
                (expected, expected),
                "{range:?}"
            );
        }
    }
}

/// Work is listed and counted by queue, pattern, block and lease, without claiming anything.
pub async fn t5_work_filters_and_counts(env: &Env) {
    let other = NewWork::once(key("t5-w%other"), queue_name("other"));
    let batch = enqueue(job("t5-w1")).enqueue(job("t5-w2")).enqueue(job("t5-w3")).enqueue(other);
    env.store.done(batch).await;
    let held = env.store.take("w", &key("t5-w1")).await.unwrap();
    let blocked = env.store.take("w", &key("t5-w2")).await.unwrap();
    env.store.done(Batch::new().block(&blocked.lease(), "no")).await;
    let none = WorkFilter::default;
    let cases = [
        (none(), 4),
        (WorkFilter { queue: Some(jobs()), ..none() }, 3),
        (WorkFilter { queue: Some(queue_name("nowhere")), ..none() }, 0),
        (WorkFilter { blocked: Some(true), ..none() }, 1),
        (WorkFilter { blocked: Some(false), ..none() }, 3),
        (WorkFilter { leased: Some(true), ..none() }, 1),
        (WorkFilter { leased: Some(false), ..none() }, 3),
        (WorkFilter { leased: Some(false), blocked: Some(false), queue: Some(jobs()), ..none() }, 1),
        (pattern("w%"), 1),
        (pattern("w_"), 0),
        (pattern("^tck t5-w.$"), 3),
        (pattern("T5-W1"), 0),
        (pattern("t5.*1$"), 1),
    ];
    for (filter, expected) in cases {
        let rows = pages(async |page| env.other.works(&filter, page).await).await;
        assert_eq!((rows.len() as u64, env.other.count(&filter).await), (expected, expected), "{filter:?}");
        assert!(rows.iter().all(|row| filter.matches(row)), "{filter:?}");
    }
    assert_eq!(env.store.row(&held.row.key).await, held.row, "reading leases nothing");
}

/// Streams are read from any version, forward and backward, in pages without gaps between them.
pub async fn t5_streams_are_read_both_ways(env: &Env) {
    let stream = key("t5-both");
    env.store.done(Batch::new().append(&key("t5-noise"), Expect::Any, events(3))).await;
    env.store.done(Batch::new().append(&stream, Expect::Any, events(10))).await;
    let read = async |query| {
        let page = env.other.read_stream(query).await.unwrap();
        (page.events.iter().map(|e| e.version.0).collect::<Vec<_>>(), page.end)
    };
    let (forward, backward) = (StreamQuery::forward(&stream, 4), StreamQuery::backward(&stream, 4));
    assert_eq!(read(forward.clone()).await, (vec![0, 1, 2, 3], false));
    assert_eq!(read(forward.clone().from(StreamVersion(8))).await, (vec![8, 9], true));
    assert_eq!(read(forward.clone().from(StreamVersion(6))).await, (vec![6, 7, 8, 9], true));
    assert_eq!(read(forward.from(StreamVersion(99))).await, (vec![], true));
    assert_eq!(read(backward.clone()).await, (vec![9, 8, 7, 6], false));
    assert_eq!(read(backward.clone().from(StreamVersion(2))).await, (vec![2, 1, 0], true));
    assert_eq!(read(backward.from(StreamVersion(99))).await, (vec![9, 8, 7, 6], false));
    assert_eq!(read(StreamQuery::forward(&key("t5-none"), 4)).await, (vec![], true));
}

/// The log is read from a position in either direction, even if no event has that position.
pub async fn t5_the_log_is_read_both_ways(env: &Env) {
    for i in 0..6 {
        env.store
            .done(Batch::new().append(&key(&format!("t5-{}", i % 2)), Expect::Any, [event("E", i)]))
            .await;
    }
    let log = env.store.log().await;
    let at: Vec<Position> = log.iter().map(|e| e.position).collect();
    let read = async |after, direction, limit| {
        let query = LogQuery { after, direction, ..LogQuery::all(limit) };
        let page = env.other.read_log(query).await.unwrap();
        assert_eq!(
            page.scanned_to,
            page.events.last().map(|e| e.position),
            "unfiltered, it looked at what it shows"
        );
        (page.events.iter().map(|e| e.position).collect::<Vec<_>>(), page.end)
    };
    use Direction::{Backward, Forward};
    assert_eq!(read(None, Forward, 4).await, (at[..4].to_vec(), false));
    assert_eq!(read(Some(at[3]), Forward, 4).await, (at[4..].to_vec(), true));
    assert_eq!(read(Some(at[1]), Forward, 4).await, (at[2..].to_vec(), true), "exactly full is the end");
    assert_eq!(read(None, Backward, 2).await, (vec![at[5], at[4]], false));
    assert_eq!(read(Some(at[2]), Backward, 5).await, (vec![at[1], at[0]], true));
    assert_eq!(read(Some(Position(0)), Backward, 5).await, (vec![], true));
}

/// Events are filtered by type, time, correlation and stream. A page reports how far it scanned, whether events matched
/// or not.
pub async fn t5_events_are_filtered(env: &Env) {
    let start = env.now();
    for i in 0..12_i64 {
        let mut one = event(if i % 3 == 0 { "Third" } else { "Other" }, i);
        one.correlation = (i % 2 == 0).then(|| "even".to_owned());
        env.store.done(Batch::new().append(&key(&format!("t5-{}", i % 4)), Expect::Any, [one])).await;
        env.pass(secs(1));
    }
    let second = |n| start.after(secs(n));
    let all = EventFilter::default;
    let filters = [
        (EventFilter { types: vec![event_type("Third")], ..all() }, vec![0, 3, 6, 9]),
        (EventFilter { types: vec![event_type("Third"), event_type("Other")], ..all() }, (0..12).collect()),
        (EventFilter { types: vec![event_type("None")], ..all() }, vec![]),
        (EventFilter { since: Some(second(9)), ..all() }, vec![9, 10, 11]),
        (EventFilter { until: Some(second(2)), ..all() }, vec![0, 1]),
        (EventFilter { since: Some(second(3)), until: Some(second(4)), ..all() }, vec![3]),
        (EventFilter { correlation: Some("even".to_owned()), ..all() }, vec![0, 2, 4, 6, 8, 10]),
        (EventFilter { correlation: Some("odd".to_owned()), ..all() }, vec![]),
        (EventFilter { streams: Some(KeyPrefix::starting("tck", &[], "t5-1")), ..all() }, vec![1, 5, 9]),
        (
            EventFilter { types: vec![event_type("Third")], correlation: Some("even".to_owned()), ..all() },
            vec![0, 6],
        ),
    ];
    let numbers = |page: &EventPage| -> Vec<i64> { page.events.iter().map(n_of).collect() };
    let last = env.store.log().await.last().unwrap().position;
    for (filter, expected) in filters {
        let page =
            env.other.read_log(LogQuery { filter: filter.clone(), ..LogQuery::all(100) }).await.unwrap();
        assert_eq!((numbers(&page), page.end), (expected.clone(), true), "{filter:?}");
        assert_eq!(page.scanned_to, Some(last), "{filter:?}: everything was looked at");
        let query = LogQuery { filter: filter.clone(), direction: Direction::Backward, ..LogQuery::all(100) };
        let page = env.other.read_log(query).await.unwrap();
        assert_eq!(numbers(&page), expected.into_iter().rev().collect::<Vec<_>>(), "{filter:?} backward");
    }
    let filter = EventFilter { types: vec![event_type("Third")], ..all() };
    let query = StreamQuery { filter, ..StreamQuery::forward(&key("t5-0"), 10) };
    assert_eq!(numbers(&env.other.read_stream(query).await.unwrap()), [0]);
}

fn n_of(event: &Event) -> i64 {
    let value: serde_json::Value = event.payload.parse().unwrap();
    value["n"].as_i64().unwrap()
}

/// A filtered read continues from its last scanned position, and returns every matching event once.
pub async fn t5_filtered_pages_continue_after_the_last_scanned_row(env: &Env) {
    for i in 0..60_i64 {
        let one = event(if i % 7 == 0 { "Rare" } else { "Common" }, i);
        env.store.done(Batch::new().append(&key("t5-rare"), Expect::Any, [one])).await;
    }
    let filter = EventFilter { types: vec![event_type("Rare")], ..EventFilter::default() };
    let (mut after, mut seen, mut rounds) = (None, Vec::new(), 0);
    loop {
        let page =
            env.other.read_log(LogQuery { after, filter: filter.clone(), ..LogQuery::all(2) }).await.unwrap();
        assert!(page.events.len() <= 2 && rounds < 100, "a reader gets on");
        assert!(page.scanned_to >= page.events.last().map(|e| e.position));
        seen.extend(page.events.iter().map(n_of));
        after = page.scanned_to.or(after);
        rounds += 1;
        if page.end {
            break;
        }
    }
    assert_eq!(seen, (0..60).step_by(7).collect::<Vec<_>>());
}

/// A reader in the middle of a scan neither blocks nor is blocked by writers. Documents only.
pub async fn t14_a_scan_and_writers_do_not_wait_for_each_other(env: &Env) {
    let prefix = all_keys();
    let stays: Vec<Key> = (0..200).map(|i| key(&format!("t14-{i:04}"))).collect();
    env.store.done(stays.iter().fold(Batch::new(), |b, k| b.put(k, Expect::Any, number(0)))).await;
    let mut after = None;
    let mut seen = 0;
    // Every page of the scan alternates with a write on each connection; either waiting for the other would hang.
    loop {
        let page = env.store.documents(&prefix, Page { after: after.clone(), limit: 20 }).await.unwrap();
        assert!(page.next.is_none() || after < page.next, "the pages lead back to {after:?}");
        seen += page.rows.len();
        env.store.done(Batch::new().merge(&stays[0], [Delta::inc("/n", 1)])).await;
        env.other.done(Batch::new().merge(&stays[199], [Delta::inc("/n", 1)])).await;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, 200);
    assert_eq!(env.store.value(&stays[0]).await, Some(json!({ "n": 10 })));
}

/// Readers beside writers see complete batches: two documents that always change together agree. Documents only.
pub async fn t14_readers_see_whole_batches(env: &Env) {
    let (a, b) = (key("t14-a"), key("t14-b"));
    let both = |n: i64| Batch::new().put(&a, Expect::Any, number(n)).put(&b, Expect::Any, number(n));
    env.store.done(both(0)).await;
    let work = |i: usize, conn: Conn| {
        let batches: Vec<Batch> = (0..25).map(|n| both(n * 10 + i as i64)).collect();
        async move {
            if i < 2 {
                for batch in batches {
                    conn.done(batch).await;
                }
                return;
            }
            for _ in 0..25 {
                let page = conn.documents(&all_keys(), Page::first(10)).await.unwrap();
                assert_eq!(page.rows[0].value, page.rows[1].value, "half a batch was read");
            }
        }
    };
    env.race(2, 6, work).await;
}

/// A read that starts after an acknowledgement sees its effects, on either connection.
pub async fn t14_acknowledged_writes_are_visible_everywhere(env: &Env) {
    let (k, stream) = (key("t14-seen"), key("t14-s"));
    for n in 1..30_u64 {
        let (writer, reader) =
            if n.is_multiple_of(2) { (&env.store, &env.other) } else { (&env.other, &env.store) };
        let batch = Batch::new().put(&k, Expect::Any, number(1)).append(&stream, Expect::Any, events(1));
        writer.done(batch.enqueue(job(&format!("t14-{n}")))).await;
        assert_eq!(reader.doc(&k).await.unwrap().version, DocVersion(n));
        assert_eq!(reader.history(&stream).await.len() as u64, n);
        assert_eq!(reader.log().await.len() as u64, n);
        assert_eq!(reader.count(&WorkFilter::default()).await, n);
    }
}

/// A change on the same or on another connection sends a hint to watchers.
pub async fn t14_watch_reports_changes(env: &Env) {
    let (mut near, mut far) = (env.store.watch(), env.other.watch());
    env.store.done(Batch::new().put(&key("t14-watch"), Expect::Any, number(1))).await;
    assert!(near.changed().await, "the store is there");
    assert!(far.changed().await, "a hint from another connection");
    let mut late = env.store.watch();
    env.other.done(enqueue(job("t14-watch"))).await;
    assert!(late.changed().await);
    assert!(far.changed().await);
}

//! Limits and startup (T12 and T13): accepted sizes, refusals with their limit, and opening a database.

use tidelock_core::payload::Payload;
use tidelock_core::store::limits as contract;

use crate::prelude::*;

fn long_text(bytes: usize) -> Payload {
    Payload::from_json(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
}

#[track_caller]
fn exceeded(refusal: Refusal) -> (usize, usize) {
    assert_eq!(refusal.code().as_str(), "TL0105", "{refusal:?}");
    match refusal {
        Refusal::Invalid(InvalidInput::Limit { found, limit, .. }) => (found, limit),
        other => panic!("expected a limit, got {other:?}"),
    }
}

/// Payloads of 1 MiB and tiny ones are returned unchanged, in all three nouns.
pub async fn t12_large_and_small_payloads_round_trip(env: &Env) {
    let payloads = [
        long_text(1024 * 1024),
        long_text(contract::PAYLOAD_BYTES),
        payload(json!("")),
        payload(json!(null)),
        payload(json!({})),
        payload(json!([])),
        payload(json!(0)),
        payload(json!("\u{0}\u{1}\u{7f}\u{ffff}\u{10ffff}")),
        payload(json!({ "": { " ": [1.5, -0.0, 1e300, u64::MAX, i64::MIN] } })),
    ];
    for (i, value) in payloads.into_iter().enumerate() {
        let k = key(&format!("t12-{i}"));
        let one = NewEvent { meta: value.clone(), ..NewEvent::new(event_type("E"), value.clone()) };
        let batch = Batch::new().put(&k, Expect::Absent, value.clone()).append(&k, Expect::Absent, [one]);
        env.store.done(batch.enqueue(NewWork::once(k.clone(), jobs()).payload(value.clone()))).await;
        assert_eq!(env.other.doc(&k).await.unwrap().value, value, "payload {i}");
        let events = env.other.history(&k).await;
        assert!(events[0].payload == value && events[0].meta == value, "payload {i}");
        assert_eq!(env.other.row(&k).await.payload, value, "payload {i}");
    }
}

/// Every Unicode scalar works in a key, and keys that differ stay different. Documents only.
pub async fn t12_every_unicode_scalar_works_in_keys(env: &Env) {
    let all: Vec<char> = (0..=0x10_ffff_u32).filter_map(char::from_u32).collect();
    // Each character of the first page alone, and all others in keys of a hundred characters.
    let singles = all[..0x250].iter().map(|c| c.to_string());
    let hundreds = all[0x250..].chunks(100).map(|chunk| chunk.iter().collect::<String>());
    let keys: Vec<Key> = singles.chain(hundreds).map(|text| Key::new("u", [text]).unwrap()).collect();
    for (i, chunk) in keys.chunks(2_000).enumerate() {
        let put = |b: Batch, (j, k): (usize, &Key)| b.put(k, Expect::Absent, number((i * 2_000 + j) as i64));
        env.store.done(chunk.iter().enumerate().fold(Batch::new(), put)).await;
    }
    let found = crate::dump::pages(async |page| env.other.documents(&KeyPrefix::kind("u"), page).await).await;
    assert_eq!(found.len(), keys.len());
    let mut sorted = keys.clone();
    sorted.sort();
    assert!(found.iter().map(|d| &d.key).eq(sorted.iter()), "in the order of keys, whatever the characters");
    for (i, k) in keys.iter().enumerate().step_by(97) {
        assert_eq!(env.other.value(k).await, Some(json!({ "n": i })), "{k}");
    }
}

/// Awkward keys also name streams, work and owners.
pub async fn t12_awkward_names_work_everywhere(env: &Env) {
    for text in [
        "",
        " ",
        "\u{0}",
        "'; drop table work; --",
        "%_\\",
        "\"",
        "\n\r\t",
        "é",
        "e\u{301}",
        "😀",
        "null",
        "0",
    ] {
        let k = Key::of("t12 %", &[text.into(), Arg::Int(i64::MIN), Arg::Uuid(uuid::Uuid::max())]).unwrap();
        let name = format!("queue {}'%", text.replace(char::is_control, "c"));
        let work = NewWork { follow: Some(k.clone()), ..NewWork::once(k.clone(), queue_name(&name)) };
        let one = NewEvent { correlation: Some(text.to_owned()), ..event("E '\"%", 1) };
        env.store.done(Batch::new().append(&k, Expect::Absent, [one]).enqueue(work)).await;
        let claim = Claim::queues(&owner(&name), [queue_name(&name)], 1, TTL).with_events(10);
        let grant = env.other.claim(claim).await.unwrap().grants.remove(0);
        assert_eq!((&grant.row.key, grant.events.len()), (&k, 1), "{text:?}");
        assert_eq!(grant.events[0].correlation.as_deref(), Some(text));
        env.store.done(Batch::new().block(&grant.lease(), text)).await;
        assert_eq!(env.other.row(&k).await.blocked.unwrap().reason, text);
    }
}

/// 10,000 events in one batch are appended together and in order. One more is rejected with the limit.
pub async fn t12_ten_thousand_events_in_one_batch(env: &Env) {
    let stream = key("t12-many");
    let receipt = env.store.done(Batch::new().append(&stream, Expect::Absent, events(10_000))).await;
    assert_eq!(receipt.appended[0].last_version, StreamVersion(9_999));
    let found = env.other.history(&stream).await;
    assert_eq!(found.len(), 10_000);
    assert!(found.iter().enumerate().all(|(i, e)| e.version.0 == i as u64 && e.payload == number(i as i64)));
    assert!(found.is_sorted_by(|a, b| a.position < b.position));
    let batch = Batch::new().append(&stream, Expect::Any, events(10_001));
    assert_eq!(exceeded(env.store.refused(batch).await), (10_001, contract::BATCH_EVENTS));
    assert_eq!(env.other.stream(&stream).await.unwrap().unwrap().head, Some(StreamVersion(9_999)));
}

/// An oversized batch is rejected with the actual size and the limit, and nothing of it is applied.
pub async fn t12_limits_are_typed_refusals(env: &Env) {
    let (k, large) = (key("t12-limit"), contract::PAYLOAD_BYTES + 1);
    let too_large = long_text(large);
    let one = NewEvent::new(event_type("E"), too_large.clone());
    let noted = NewEvent { meta: too_large.clone(), ..event("E", 1) };
    let refused = [
        Batch::new().put(&k, Expect::Any, too_large.clone()),
        Batch::new().append(&k, Expect::Any, [one]),
        Batch::new().append(&k, Expect::Any, [noted]),
        enqueue(job("t12-limit").payload(too_large.clone())),
        Batch::new().merge_or_create(&k, too_large, [Delta::inc("/n", 1)]),
    ];
    for batch in refused {
        assert_eq!(exceeded(env.store.refused(batch).await), (large, contract::PAYLOAD_BYTES));
    }
    let many = (0..=contract::BATCH_EFFECTS).fold(Batch::new(), |b, _| b.guard_document(&k, Expect::Any));
    assert_eq!(
        exceeded(env.store.refused(many).await),
        (contract::BATCH_EFFECTS + 1, contract::BATCH_EFFECTS)
    );
    let big = long_text(contract::PAYLOAD_BYTES);
    let heavy = (0..17).fold(Batch::new(), |b, _| b.put(&k, Expect::Any, big.clone()));
    assert_eq!(exceeded(env.store.refused(heavy).await).1, contract::BATCH_BYTES);
    assert_eq!(Dump::of(&env.store).await, Dump::of(&env.other).await);
    assert_eq!(env.other.doc(&k).await, None);
}

/// A merge may not grow a document beyond the limit. Documents only.
pub async fn t12_a_merge_may_not_outgrow_the_limit(env: &Env) {
    let k = key("t12-grow");
    let half = "x".repeat(contract::PAYLOAD_BYTES / 2);
    env.store.done(Batch::new().put(&k, Expect::Absent, payload(json!({ "a": half })))).await;
    let refusal = env.other.refused(Batch::new().merge(&k, [Delta::set("/b", half)])).await;
    assert_eq!(exceeded(refusal).1, contract::PAYLOAD_BYTES);
    assert_eq!(env.store.doc(&k).await.unwrap().version, DocVersion(1));
}

/// A payload that is nested too deeply is rejected, wherever it occurs. Brackets inside a string do not count.
pub async fn t12_a_payload_may_not_go_too_deep(env: &Env) {
    let nested = |depth: usize| {
        let text = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        tidelock_core::payload::Payload::from_json(text).unwrap()
    };
    let (deepest, too_deep) = (nested(limits::PAYLOAD_DEPTH), nested(limits::PAYLOAD_DEPTH + 1));
    let k = key("t12-payload");
    let event =
        |value: &tidelock_core::payload::Payload| NewEvent { payload: value.clone(), ..event("E", 1) };
    let job = |value: &tidelock_core::payload::Payload| {
        NewWork::once(k.clone(), queue_name("jobs")).payload(value.clone())
    };
    env.store.done(Batch::new().put(&k, Expect::Any, deepest.clone()).enqueue(job(&deepest))).await;
    env.store.done(Batch::new().append(&k, Expect::Any, [event(&deepest)])).await;
    let brackets = format!("[\"{}\"]", "[{\\\"".repeat(limits::PAYLOAD_DEPTH));
    env.other
        .done(Batch::new().put(
            &k,
            Expect::Any,
            tidelock_core::payload::Payload::from_json(brackets).unwrap(),
        ))
        .await;
    for refused in [
        Batch::new().put(&k, Expect::Any, too_deep.clone()),
        Batch::new().append(&k, Expect::Any, [event(&too_deep)]),
        Batch::new().enqueue(job(&too_deep)),
    ] {
        assert!(matches!(env.store.refused(refused).await, Refusal::Invalid(InvalidInput::Limit { .. })));
    }
}

/// Deltas that are nested too deeply are rejected: by their path, by their value and by the resulting document.
/// Documents only.
pub async fn t12_a_merge_may_not_go_too_deep(env: &Env) {
    let k = key("t12-deep");
    let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    env.store.done(Batch::new().put(&k, Expect::Absent, payload(json!({ "n": 1 })))).await;
    let refused = [
        (Delta::set("/a".repeat(3_000), 1), 3_000, contract::PATH_STEPS),
        (Delta::inc("/a".repeat(65), 1), 65, contract::PATH_STEPS),
        (Delta::push("/list", nested(200)), 200, contract::MERGE_DEPTH),
        (Delta::set("/a/b", nested(100)), 102, contract::MERGE_DEPTH),
    ];
    for (delta, found, limit) in refused {
        assert_eq!(exceeded(env.other.refused(Batch::new().merge(&k, [delta])).await), (found, limit));
    }
    let document = env.store.doc(&k).await.unwrap();
    assert_eq!((document.version, document.value), (DocVersion(1), payload(json!({ "n": 1 }))));
    env.other.done(Batch::new().merge(&k, [Delta::set("/a", nested(99))])).await;
    env.store.done(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
}

/// A merge keeps the numbers that it does not touch exactly as they are. An addition that cannot be exact is rejected.
/// Documents only.
pub async fn t12_a_merge_rounds_no_number(env: &Env) {
    let (k, text) = (key("t12-wide"), r#"{"id":123456789012345678901,"n":1}"#);
    env.store.done(Batch::new().put(&k, Expect::Absent, Payload::from_json(text).unwrap())).await;
    env.other.done(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
    let text = text.replace(":1}", ":2}");
    assert_eq!(env.store.doc(&k).await.unwrap().value.as_str(), text);
    let k = key("t12-whole");
    env.store.done(Batch::new().put(&k, Expect::Absent, payload(json!({ "n": u64::MAX })))).await;
    env.other.refused(Batch::new().merge(&k, [Delta::inc("/n", 1)])).await;
    env.other.done(Batch::new().merge(&k, [Delta::inc("/n", -1)])).await;
    assert_eq!(env.store.value(&k).await, Some(json!({ "n": u64::MAX - 1 })));
}

/// Correlations, selections by name and positions also have limits.
pub async fn t12_small_things_are_bounded(env: &Env) {
    let k = key("t12-small");
    let said = |bytes| NewEvent { correlation: Some("c".repeat(bytes)), ..event("E", 1) };
    let append = |bytes| Batch::new().append(&k, Expect::Any, [said(bytes)]);
    env.store.done(append(contract::CORRELATION_BYTES)).await;
    let over = contract::CORRELATION_BYTES + 1;
    assert_eq!(exceeded(env.store.refused(append(over)).await), (over, contract::CORRELATION_BYTES));
    let names = Selection::Keys(vec![k.clone(); contract::OPERATE_ROWS + 1]);
    let refusal = env.store.refused(Batch::new().operate(names, Operation::Remove)).await;
    assert_eq!(exceeded(refusal).1, contract::OPERATE_ROWS);
    let highest = Position(i64::MAX as u64);
    let from = |position| enqueue(NewWork { position: Some(position), ..standing("t12-small") });
    assert_eq!(env.store.refused(from(highest.next())).await.code().as_str(), "TL0103");
    env.store.done(from(highest)).await;
    assert_eq!(env.other.row(&k).await.position, Some(highest));
}

/// Pages and claims that request too much are rejected with the code of a limit.
pub async fn t12_pages_and_claims_are_bounded(env: &Env) {
    let rows = contract::PAGE_ROWS + 1;
    let claim = |limit| Claim::queues(&owner("w"), [jobs()], limit, TTL);
    let errors = [
        env.store.documents(&all_keys(), Page::first(rows)).await.unwrap_err(),
        env.store.streams(&all_keys(), Page::first(rows)).await.unwrap_err(),
        env.store.works(&WorkFilter::default(), Page::first(rows)).await.unwrap_err(),
        env.store.read_log(LogQuery::all(rows)).await.unwrap_err(),
        env.store.read_stream(StreamQuery::forward(&key("x"), rows)).await.unwrap_err(),
        env.store.claim(claim(contract::CLAIM_ROWS + 1)).await.unwrap_err(),
        env.store.claim(claim(1).with_events(rows)).await.unwrap_err(),
        env.store.claim(claim(contract::CLAIM_ROWS).with_events(11)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Invalid, "TL0105"), "{error}");
        assert_eq!((error.retry(), error.outcome()), (Retry::Never, Outcome::NotApplied));
    }
    env.store.claim(claim(contract::CLAIM_ROWS).with_events(10)).await.unwrap();
    env.store.claim(claim(1).with_events(contract::PAGE_ROWS)).await.unwrap();
    let error = env.store.claim(claim(0)).await.unwrap_err();
    assert_eq!((error.kind, error.code().as_str()), (StoreErrorKind::Invalid, "TL0103"), "{error}");
    assert_eq!((error.retry(), error.outcome()), (Retry::Never, Outcome::NotApplied));
}

/// Large rows make short pages, whatever the requested number of rows, and the next page continues. The memory of a
/// reader is thus also bounded by bytes.
pub async fn t12_pages_of_large_rows_are_short_and_continue(env: &Env) {
    let value = long_text(contract::PAYLOAD_BYTES);
    let most = contract::PAGE_BYTES / contract::PAYLOAD_BYTES;
    let stream = key("t12-large");
    for n in 0..=most {
        let k = key(&format!("t12-{n:02}"));
        let batch = Batch::new().put(&k, Expect::Absent, value.clone());
        let batch = batch.append(&stream, Expect::Any, [NewEvent::new(event_type("E"), value.clone())]);
        env.store.done(batch.enqueue(NewWork::once(k, jobs()).payload(value.clone()))).await;
    }
    let first = env.other.documents(&all_keys(), Page::first(100)).await.unwrap();
    let rest = env.other.documents(&all_keys(), Page::after(&first.next.unwrap(), 100)).await.unwrap();
    assert_eq!((first.rows.len(), rest.rows.len(), rest.next), (most, 1, None), "documents");
    let all = WorkFilter::default();
    let first = env.other.works(&all, Page::first(100)).await.unwrap();
    let rest = env.other.works(&all, Page::after(&first.next.unwrap(), 100)).await.unwrap();
    assert_eq!((first.rows.len(), rest.rows.len(), rest.next), (most, 1, None), "work");
    let page = env.other.read_stream(StreamQuery::forward(&stream, 100)).await.unwrap();
    assert_eq!((page.events.len(), page.end), (most, false), "events of a stream");
    let page = env.other.read_log(LogQuery::all(100)).await.unwrap();
    assert_eq!((page.events.len(), page.end), (most, false), "events of the log");
}

/// Errors and reasons that are too long are truncated, never rejected: a failing worker must be able to report its
/// failure.
pub async fn t12_long_errors_are_cut(env: &Env) {
    env.store.done(enqueue(job("t12-error"))).await;
    let long = "ä".repeat(contract::ERROR_BYTES);
    let grant = env.store.take_job("w").await;
    env.store.done(Batch::new().fail(&grant.lease(), long.clone(), Due::Now)).await;
    let row = env.other.row(&key("t12-error")).await;
    let kept = row.last_error.unwrap();
    assert!(
        kept.len() <= contract::ERROR_BYTES && long.starts_with(&kept) && kept.len() > 1_000,
        "{}",
        kept.len()
    );
    let grant = env.store.take_job("w").await;
    env.store.done(Batch::new().block(&grant.lease(), long.clone())).await;
    let reason = env.other.row(&key("t12-error")).await.blocked.unwrap().reason;
    assert!(reason.len() <= contract::ERROR_BYTES && long.starts_with(&reason));
}

/// Connections opened at the same time all work and see one database. Documents only.
pub async fn t13_connections_opened_at_once_share_one_database(env: &Env) {
    let (a, b, c) = tokio::join!(env.connect(), env.connect(), env.connect());
    for (i, conn) in [&a, &b, &c, &env.store].into_iter().enumerate() {
        let batch = Batch::new().merge_or_create(&key("t13"), number(0), [Delta::inc("/n", 1)]);
        assert_eq!(conn.done(batch).await.documents[0].version, DocVersion(i as u64 + 1));
    }
    assert_eq!(env.other.value(&key("t13")).await, Some(json!({ "n": 4 })));
}

/// An existing database is opened unchanged: no acknowledged write is missing.
pub async fn t13_acknowledged_writes_survive_a_restart(env: &Env) {
    if !env.capabilities().durable {
        return;
    }
    let k = key("t13-restart");
    let batch = Batch::new().put(&k, Expect::Absent, number(1)).append(&k, Expect::Absent, events(3));
    env.store.done(batch.enqueue(job("t13-a")).enqueue(standing("t13-b"))).await;
    let lease = env.store.take("w", &key("t13-b")).await.unwrap();
    env.store.done(Batch::new().put(&key("t13-gone"), Expect::Any, number(1))).await;
    env.store
        .done(Batch::new().delete(&key("t13-gone"), Expect::Any).close(&key("t13-closed"), Expect::Any))
        .await;
    let before = Dump::of(&env.other).await;
    let store = env.restart().await;
    assert_eq!(Dump::of(&store).await, before);
    store.done(Batch::new().guard_lease(&lease.lease())).await;
    let next = store.lock("v", &key("t13-lock")).await.unwrap();
    assert!(next.fence > lease.fence, "fences keep rising");
    let receipt = store.done(Batch::new().append(&k, at(2), events(1))).await;
    assert!(receipt.appended[0].first_position > before.events[2].position, "positions keep rising");
    let receipt = store.done(Batch::new().put(&key("t13-gone"), Expect::Absent, number(1))).await;
    assert_eq!(receipt.documents[0].version, DocVersion(3), "versions continue");
    let row = store.done(enqueue(job("t13-c"))).await;
    assert_eq!(row.at, env.now());
    assert!(store.row(&key("t13-c")).await.seq > store.row(&key("t13-a")).await.seq);
}

/// A store describes itself and takes its time from the given clock.
pub async fn t13_a_store_describes_itself(env: &Env) {
    let info = env.store.info().await.unwrap();
    assert!(!info.backend.is_empty() && !info.engine.is_empty() && !info.location.is_empty(), "{info:?}");
    assert_eq!(info.durability == Durability::None, !env.capabilities().durable);
    for _ in 0..2 {
        assert_eq!(env.store.now().await.unwrap(), env.now());
        assert_eq!(env.other.now().await.unwrap(), env.now());
        env.pass(TICK);
    }
    let receipt = env.store.done(Batch::new().append(&key("t13-at"), Expect::Any, events(1))).await;
    assert_eq!(receipt.at, env.now());
    assert_eq!(env.other.history(&key("t13-at")).await[0].at, env.now());
}

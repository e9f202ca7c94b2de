//! HTTP API of streams, documents, leases, work and schedules, with its audit events.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[macro_use]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Site, TestResponse, encoded};
use serde_json::{Value, json};
use tidelock::lease::{self, LeaseError};
use tidelock::prelude::*;
use tidelock::schedule::{Schedule, Scheduler, Schedules};
use tidelock::state::history_batch;

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

async fn append(site: &Site, stream: &str, expected: Value, events: Value) -> TestResponse {
    let path = format!("/api/v1/streams/{}/events", encoded(stream));
    site.post(&path, &json!({"expected": expected, "events": events})).await
}

async fn events_are_appended_where_they_were_expected_and_read_by_pages(site: Site) {
    let stream = "order(\"a/b\", 7)";
    let first = append(&site, stream, json!("absent"), json!([{"type": "Placed", "payload": {"n": 1.50}}]))
        .await
        .when(201);
    assert_eq!((&first["first_version"], &first["stream"]), (&json!(0), &json!(stream)));
    let more: Vec<Value> = (0..4)
        .map(|n| json!({"type": "Paid", "payload": n, "meta": {"by": "x"}, "correlation": "c"}))
        .collect();
    assert_eq!(append(&site, stream, json!(0), json!(more)).await.when(201)["last_version"], 4);

    let conflict = append(&site, stream, json!(0), json!([{"type": "Late"}])).await;
    assert_eq!(conflict.refused(409), "TL0201");
    assert_eq!(conflict.json()["found"], json!({"version": 4}));
    assert_eq!(conflict.json()["outcome"], "not_applied");

    let path = format!("/api/v1/streams/{}/events", encoded(stream));
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let page = site.get(&format!("{path}?from={from}&limit=2")).await.when(200);
        seen.extend(page["events"].as_array().unwrap().clone());
        from = page["next"].as_u64().unwrap();
        if page["end"] == true {
            break;
        }
    }
    let versions: Vec<u64> = seen.iter().map(|event| event["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [0, 1, 2, 3, 4]);
    assert_eq!(
        (&seen[1]["type"], &seen[1]["correlation"], &seen[1]["stream"]),
        (&json!("Paid"), &json!("c"), &json!(stream))
    );

    let info = site.get(&format!("/api/v1/streams/{}", encoded(stream))).await.when(200);
    assert_eq!(info["head"], 4);
    assert_eq!(site.get("/api/v1/streams/nothing").await.refused(404), "TL1307");
    assert_eq!(site.get("/api/v1/streams/nothing/events").await.refused(404), "TL1307");
    assert_eq!(site.audit().await, ["write append order('a/b', 7)"; 2]);
}

async fn payloads_keep_their_digits(site: Site) {
    let payload = r#"{"n":1.50,"m":12345678901234567890123}"#;
    let body = format!(r#"{{"expected": "any", "events": [{{"type": "A", "payload": {payload}}}]}}"#);
    let ask = site.ask("POST", "/api/v1/streams/s/events").header("content-type", "application/json");
    ask.body(&body).send().await.when(201);
    let read = site.get("/api/v1/streams/s/events").await;
    assert!(read.text.contains(payload), "{read:?}");
}

async fn an_append_that_is_sent_again_is_answered_as_before(site: Site) {
    let (one, other) = (EventId::new(), EventId::new());
    let events = json!([{"id": one, "type": "A", "payload": 1}, {"id": other, "type": "B"}]);
    let first = append(&site, "s", json!("absent"), events.clone()).await.when(201);
    assert_eq!(first["repeated"], false);
    let again = append(&site, "s", json!("absent"), events).await.when(201);
    assert_eq!(again["repeated"], true);
    for same in ["first_version", "last_version", "first_position", "last_position", "recorded_at", "ids"] {
        assert_eq!(first[same], again[same], "{same}");
    }
    assert_eq!(site.audit().await.len(), 1);
    let changed = append(&site, "s", json!("any"), json!([{"id": one, "type": "A", "payload": 2}])).await;
    assert_eq!(changed.refused(409), "TL0208");
}

#[tokio::test]
async fn d15_reserved_names_are_not_written() {
    let site = Site::new();
    let event = json!([{"type": "X"}]);
    assert_eq!(append(&site, "tidelock.audit", json!("any"), event).await.refused(403), "TL0106");
    assert_eq!(
        append(&site, "s", json!("any"), json!([{"type": "tidelock.x"}])).await.refused(403),
        "TL0106"
    );
    let put =
        site.ask("PUT", "/api/v1/state/tidelock.run").header("if-none-match", "*").json(&json!({"value": 1}));
    assert_eq!(put.send().await.refused(403), "TL0106");
    assert_eq!(site.audit().await, [""; 0]);
}

#[tokio::test]
async fn unparsable_requests_are_reported() {
    let site = Site::new();
    for (path, code) in [
        ("/api/v1/streams?limit=0", "TL1308"),
        ("/api/v1/streams?limit=1001", "TL1308"),
        ("/api/v1/streams?limit=x", "TL1308"),
        ("/api/v1/streams?lmit=1", "TL1308"),
        ("/api/v1/streams?cursor=a(", "TL0101"),
        ("/api/v1/streams/a%28", "TL0101"),
        ("/api/v1/streams/%FF", "TL1308"),
        ("/api/v1/work?blocked=true&pattern=(a%2B)%2B", "TL0104"),
        ("/api/v1/runs?status=odd", "TL1308"),
        ("/api/v1/runs/r/result?wait=31s", "TL1308"),
        ("/api/v1/events/tail?from=x", "TL1308"),
        ("/api/v1/events/tail?stream=a&prefix=b", "TL1308"),
    ] {
        assert_eq!(site.get(path).await.refused(400), code, "{path}");
    }
    for (expected, events) in [
        (json!("odd"), json!([{"type": "A"}])),
        (json!(-1), json!([{"type": "A"}])),
        (json!("any"), json!([])),
        (json!("any"), json!([{"type": ""}])),
        (json!("any"), json!([{"kind": "A"}])),
        (json!("any"), json!([{"type": "A", "id": "no"}])),
    ] {
        append(&site, "s", expected.clone(), events.clone()).await.refused(400);
    }
    let broken = site.ask("POST", "/api/v1/runs").header("content-type", "application/json").body("{");
    assert_eq!(broken.send().await.refused(400), "TL1308");
}

async fn put(site: &Site, key: &str, condition: (&str, &str), value: Value) -> TestResponse {
    let ask = site.ask("PUT", &format!("/api/v1/state/{}", encoded(key)));
    ask.header(condition.0, condition.1).json(&json!({"value": value})).send().await
}

async fn a_document_is_replaced_by_those_who_have_seen_it(site: Site) {
    let cart = "cart(17)";
    let new = put(&site, cart, ("if-none-match", "*"), json!({"n": 1})).await;
    assert_eq!((new.status.as_u16(), &new.headers["etag"]), (200, &"\"1\"".parse().unwrap()));
    let exists = put(&site, cart, ("if-none-match", "*"), json!(0)).await;
    assert_eq!((exists.refused(412).as_str(), &exists.json()["found"]["version"]), ("TL0202", &json!(1)));

    assert_eq!(put(&site, cart, ("if-match", "\"1\""), json!({"n": 2})).await.when(200)["version"], 2);
    let late = put(&site, cart, ("if-match", "\"1\""), json!({"n": 3})).await;
    assert_eq!((late.refused(412).as_str(), &late.json()["found"]["version"]), ("TL0202", &json!(2)));

    let path = format!("/api/v1/state/{}", encoded(cart));
    let read = site.get(&path).await;
    assert_eq!(
        (&read.when(200)["value"], &read.headers["etag"]),
        (&json!({"n": 2}), &"\"2\"".parse().unwrap())
    );
    assert_eq!(site.ask("GET", &path).header("if-none-match", "\"2\"").send().await.status, 304);

    assert_eq!(site.ask("DELETE", &path).send().await.refused(428), "TL1309");
    assert_eq!(site.ask("DELETE", &path).header("if-match", "\"1\"").send().await.refused(412), "TL0202");
    assert_eq!(site.ask("DELETE", &path).header("if-match", "\"2\"").send().await.when(200)["version"], 3);
    assert_eq!(site.get(&path).await.refused(404), "TL1307");
    let gone = put(&site, cart, ("if-match", "*"), json!(0)).await;
    assert_eq!((gone.refused(412).as_str(), &gone.json()["found"]["version"]), ("TL0202", &Value::Null));
    assert_eq!(site.audit().await, ["write put cart(17)", "write put cart(17)", "write delete cart(17)"]);
}

#[tokio::test]
async fn a_condition_that_is_none_is_refused() {
    let site = Site::new();
    for condition in
        [("if-match", "1"), ("if-match", "W/\"1\""), ("if-match", "\"x\""), ("if-none-match", "\"1\"")]
    {
        assert_eq!(put(&site, "k", condition, json!(1)).await.refused(400), "TL1308", "{condition:?}");
    }
    let none = site.ask("PUT", "/api/v1/state/k").json(&json!({"value": 1})).send().await;
    assert_eq!(none.refused(428), "TL1309");
    assert!(site.store.document(&key("k")).await.unwrap().is_none());
}

async fn a_write_keeps_the_expiry_and_is_recorded_in_the_history(site: Site) {
    let value = Payload::of(&1).unwrap();
    let until = Due::After(Duration::from_secs(3_600));
    let told = history_batch(&key("k"), tidelock::state::HistoryChange::Put(value.clone()), 1).unwrap();
    site.store
        .apply(Batch::new().put_until(&key("k"), Expect::Absent, value, until).and(told))
        .await
        .unwrap();
    let before = site.store.document(&key("k")).await.unwrap().unwrap();
    put(&site, "k", ("if-match", "*"), json!(2)).await.when(200);
    let after = site.store.document(&key("k")).await.unwrap().unwrap();
    assert_eq!((after.expires_at, after.version), (before.expires_at, DocVersion(2)));
    let history = site.store.stream(&key("history(\"k\")")).await.unwrap().unwrap();
    assert_eq!(history.head, Some(StreamVersion(1)));
}

async fn lists_are_read_page_by_page(site: Site) {
    for n in 0..5 {
        put(&site, &format!("doc({n})"), ("if-none-match", "*"), json!(n)).await.when(200);
        append(&site, &format!("log({n})"), json!("absent"), json!([{"type": "A"}])).await.when(201);
    }
    for (path, rows, prefix) in [("state", "records", "doc"), ("streams", "streams", "log")] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = site.get(&format!("/api/v1/{path}?prefix={prefix}&limit=2{after}")).await.when(200);
            seen.extend(
                page[rows].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&cursor={}", encoded(next));
        }
        let all: Vec<String> = (0..5).map(|n| format!("{prefix}({n})")).collect();
        assert_eq!(seen, all);
    }
}

async fn take(site: &Site, key: &str, owner: &str, ttl_ms: u64) -> TestResponse {
    site.post(&format!("/api/v1/leases/{}", encoded(key)), &json!({"owner": owner, "ttl_ms": ttl_ms})).await
}

async fn a_lease_is_taken_renewed_and_released_under_its_fence(site: Site) {
    let path = format!("/api/v1/leases/{}", encoded("report(1)"));
    let held = take(&site, "report(1)", "me", 30_000).await.when(200);
    let fence = held["fence"].as_u64().unwrap();
    assert_eq!(held["owner"], "http/me");

    let other = take(&site, "report(1)", "you", 30_000).await;
    assert_eq!(other.refused(409), "TL0511");
    assert_eq!(other.json()["found"]["holder"]["fence"], fence);
    let inside = lease::request(&site.store, key("report(1)")).try_acquire().await;
    assert!(
        matches!(inside, Err(LeaseError::Held { .. })),
        "the leases of the library are the same: {inside:?}"
    );

    let renew = async |fence: u64| {
        site.ask("PUT", &path).json(&json!({"fence": fence, "ttl_ms": 60_000})).send().await
    };
    let longer = renew(fence).await.when(200);
    assert!(longer["expires_at"].as_str() > held["expires_at"].as_str(), "{longer} {held}");
    assert_eq!(renew(fence + 1).await.refused(409), "TL0204");
    let wrong = site.ask("DELETE", &format!("{path}?fence={}", fence + 1)).send().await;
    assert_eq!(wrong.refused(409), "TL0204");
    assert_eq!(site.get(&path).await.when(200)["holder"]["fence"], fence, "it is held as before");
    assert_eq!(site.get("/api/v1/leases").await.when(200)["leases"].as_array().unwrap().len(), 1);

    site.ask("DELETE", &format!("{path}?fence={fence}")).send().await.when(200);
    assert_eq!(
        site.get(&path).await.refused(404),
        "TL1307",
        "a key that was used once leaves nothing behind"
    );
    assert_eq!(renew(fence).await.refused(409), "TL0204");
    let next = take(&site, "report(1)", "you", 30_000).await.when(200);
    assert!(next["fence"].as_u64() > Some(fence));
    let told = [
        "write acquire report(1)",
        "write renew report(1)",
        "write release report(1)",
        "write acquire report(1)",
    ];
    assert_eq!(site.audit().await, told, "what was refused is not told");
}

async fn a_lease_of_the_library_is_not_taken_over(site: Site) {
    let held =
        lease::request(&site.store, key("k")).ttl(Duration::from_secs(30)).try_acquire().await.unwrap();
    let name = held.owner().to_string();
    assert_eq!(take(&site, "k", &name, 1_000).await.refused(409), "TL0511");
    assert_eq!(take(&site, "other", "", 1_000).await.refused(400), "TL0103", "an owner has a name");
    for (ttl, code) in [(0, "TL1308"), (99, "TL1308"), (3_600_001, "TL1321"), (u64::MAX, "TL1321")] {
        assert_eq!(take(&site, "other", "me", ttl).await.refused(400), code);
    }
    held.release().await.unwrap();
    take(&site, "k", "me", 1_000).await.when(200);
}

async fn a_lease_of_the_library_is_neither_renewed_nor_released(site: Site) {
    let held =
        lease::request(&site.store, key("k")).ttl(Duration::from_secs(30)).try_acquire().await.unwrap();
    let (owner, fence) = (held.owner().to_string(), held.fence());
    let before = site.get("/api/v1/leases/k").await.when(200);
    let renew = site.ask("PUT", "/api/v1/leases/k").json(&json!({"fence": fence, "ttl_ms": 60_000}));
    let release = site.ask("DELETE", &format!("/api/v1/leases/k?fence={fence}"));
    for refused in [renew.send().await, release.send().await] {
        assert_eq!(refused.refused(409), "TL0511");
        assert_eq!(refused.json()["found"]["holder"]["owner"], owner.as_str());
    }
    let after = site.get("/api/v1/leases/k").await.when(200);
    assert_eq!(before["holder"], after["holder"], "it is held as before");
    assert_eq!(site.audit().await, [""; 0]);
    held.release().await.unwrap();
}

async fn a_write_under_a_lost_lease_is_rejected(site: Site) {
    let lease = |fence: &Value| json!({"key": "report(1)", "fence": fence});
    let append = async |fence: &Value| {
        let body = json!({"expected": "any", "events": [{"type": "A"}], "lease": lease(fence)});
        site.post("/api/v1/streams/s/events", &body).await
    };
    let write = |method: &str, fence: &Value| {
        site.ask(method, &format!("/api/v1/state/doc?lease=report%281%29&fence={fence}"))
    };
    let put = async |condition: (&str, &str), fence: &Value| {
        write("PUT", fence).header(condition.0, condition.1).json(&json!({"value": 1})).send().await
    };
    let old = take(&site, "report(1)", "one", 30_000).await.when(200)["fence"].clone();
    append(&old).await.when(201);
    put(("if-none-match", "*"), &old).await.when(200);
    put(("if-match", "\"1\""), &old).await.when(200);

    // The first owner releases the lease, and another owner acquires it.
    let gone = site.ask("DELETE", &format!("/api/v1/leases/report%281%29?fence={old}")).send().await;
    gone.when(200);
    let new = take(&site, "report(1)", "other", 30_000).await.when(200)["fence"].clone();
    let audited = site.audit().await.len();
    for refused in [
        append(&old).await,
        put(("if-match", "\"2\""), &old).await,
        put(("if-match", "\"1\""), &old).await,
        put(("if-none-match", "*"), &old).await,
        write("DELETE", &old).header("if-match", "\"2\"").send().await,
    ] {
        assert_eq!(refused.refused(409), "TL0204");
        assert_eq!(refused.json()["found"]["holder"]["owner"], "http/other");
    }
    assert_eq!(site.audit().await.len(), audited, "what is refused is not told");
    assert_eq!(site.store.stream(&key("s")).await.unwrap().unwrap().head, Some(StreamVersion(0)));
    assert_eq!(site.store.document(&key("doc")).await.unwrap().unwrap().version, DocVersion(2));

    append(&new).await.when(201);
    assert_eq!(
        put(("if-match", "\"1\""), &new).await.refused(412),
        "TL0202",
        "other conditions count as before"
    );
    write("DELETE", &new).header("if-match", "\"2\"").send().await.when(200);
}

#[tokio::test]
async fn a_lease_is_shown_with_its_fence() {
    let site = Site::new();
    for query in ["lease=a", "fence=1", "lease=a%28&fence=1", "lease=a&fence=x", "lease=a&fence=-1", "odd=1"]
    {
        let put = site.ask("PUT", &format!("/api/v1/state/k?{query}")).header("if-none-match", "*");
        put.json(&json!({"value": 1})).send().await.refused(400);
    }
    let held = take(&site, "a", "me", 1_000).await.when(200);
    let body = |lease: Value| json!({"expected": "any", "events": [{"type": "A"}], "lease": lease});
    for lease in [json!({"key": "a"}), json!({"fence": 1}), json!({"key": "a", "fence": "1"}), json!(1)] {
        site.post("/api/v1/streams/s/events", &body(lease)).await.refused(400);
    }
    let never =
        site.post("/api/v1/streams/s/events", &body(json!({"key": "b", "fence": held["fence"]}))).await;
    assert_eq!(never.refused(409), "TL0204", "a fence is that of its own lease");
    assert!(site.store.stream(&key("s")).await.unwrap().is_none());
}

#[tokio::test]
async fn d15_documents_and_streams_beside_others_are_not_written() {
    let site = Site::new();
    for stream in ["history(\"user\", \"u-1\")", "tagged(\"username:alice\")"] {
        assert_eq!(append(&site, stream, json!("any"), json!([{"type": "X"}])).await.refused(403), "TL0106");
    }
    for document in ["snapshot(\"stock\", \"apples\")", "base(\"stock\", \"apples\")"] {
        assert_eq!(put(&site, document, ("if-none-match", "*"), json!(1)).await.refused(403), "TL0106");
        let delete = site.ask("DELETE", &format!("/api/v1/state/{}", encoded(document)));
        assert_eq!(delete.header("if-match", "*").send().await.refused(403), "TL0106");
    }
    put(&site, "history(17)", ("if-none-match", "*"), json!(1)).await.when(200);
    append(&site, "snapshot(\"mine\")", json!("absent"), json!([{"type": "X"}])).await.when(201);
}

async fn blocked_work_is_unblocked_after_its_count_was_confirmed(site: Site) {
    let (queue, owner): (QueueName, Owner) = ("mails".parse().unwrap(), "w".parse().unwrap());
    for n in 0..3 {
        site.store
            .apply(Batch::new().enqueue(NewWork::once(key(&format!("mail({n})")), queue.clone())))
            .await
            .unwrap();
    }
    let claim = Claim::queues(&owner, [queue], 3, Duration::from_secs(30));
    for grant in site.store.claim(claim).await.unwrap().grants {
        site.store.apply(Batch::new().block(&grant.lease(), "no \u{202e} such address")).await.unwrap();
    }
    let list = site.get("/api/v1/work?blocked=true&limit=2").await.when(200);
    assert_eq!((&list["blocked"], list["rows"].as_array().unwrap().len()), (&json!(3), 2));

    let unblock = async |body: Value| site.post("/api/v1/work:batch", &body).await;
    let other = unblock(json!({"verb": "unblock", "confirm": 2})).await;
    assert_eq!((other.refused(409).as_str(), &other.json()["found"]), ("TL1310", &json!(3)));
    assert_eq!(
        unblock(json!({"verb": "unblock", "keys": ["mail(1)"], "confirm": 1})).await.when(200)["changed"],
        1
    );
    assert_eq!(
        unblock(json!({"verb": "unblock", "queue": "others", "confirm": 0})).await.when(200)["changed"],
        0
    );
    assert_eq!(
        unblock(json!({"verb": "unblock", "queue": "mails", "confirm": 2})).await.when(200)["changed"],
        2
    );
    assert_eq!(site.get("/api/v1/work?blocked=true").await.when(200)["blocked"], 0);
    assert_eq!(site.audit().await.len(), 3);
}

async fn tasks_are_listed_and_shown(site: Site) {
    let task = |name: &str| Schedule::new(name).cron("0 3 * * *").zone("UTC").run(async |_| Ok(Batch::new()));
    let scheduler = Scheduler::new(Arc::clone(&site.store)).with(task("a")).with(task("b"));
    let running = scheduler.start().await.unwrap();
    assert_eq!(Schedules::new(Arc::clone(&site.store)).list().await.unwrap().len(), 2);
    let page = site.get("/api/v1/schedules?limit=1").await.when(200);
    assert_eq!((&page["schedules"][0]["name"], &page["next"]), (&json!("a"), &json!("a")));
    let page = site.get("/api/v1/schedules?limit=1&cursor=a").await.when(200);
    assert_eq!((&page["schedules"][0]["name"], &page["next"]), (&json!("b"), &Value::Null));
    let shown = site.get("/api/v1/schedules/a").await.when(200);
    assert_eq!(shown["upcoming"].as_array().unwrap().len(), 10);
    assert_eq!(site.get("/api/v1/schedules/c").await.refused(404), "TL1105");
    running.shutdown().await;
}

#[tokio::test]
async fn health_and_metrics_say_what_the_store_has() {
    let site = Site::new();
    append(&site, "s", json!("any"), json!([{"type": "A"}])).await.when(201);
    assert_eq!(site.bare("GET", "/healthz").send().await.text, "ok\n");
    let ready = site.get("/readyz").await.when(200);
    assert_eq!((&ready["backend"], &ready["position"]), (&json!("memory"), &json!(2)));
    let metrics = site.get("/metrics").await;
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    for line in [
        "tidelock_store_info{backend=\"memory\"",
        "tidelock_log_position 2\n",
        "tidelock_work_rows 0\n",
        "tidelock_work_blocked 0\n",
        "tidelock_runs{status=\"failed\"} 0\n",
        "tidelock_http_requests_total{method=\"POST\",route=\"/api/v1/streams/{key}/events\",status=\"2xx\"} 1\n",
    ] {
        assert!(metrics.text.contains(line), "{line}: {}", metrics.text);
    }
}

#[tokio::test]
async fn the_description_is_served() {
    let site = Site::new();
    let document = site.get("/api/v1/openapi.json").await.when(200);
    assert_eq!(document["openapi"], "3.1.0");
    for (method, path, _) in tidelock_server::routes() {
        assert!(document["paths"][path][method.to_ascii_lowercase()].is_object(), "{method} {path}");
    }
}

on_each_store! {
    events_are_appended_where_they_were_expected_and_read_by_pages,
    payloads_keep_their_digits,
    an_append_that_is_sent_again_is_answered_as_before,
    a_document_is_replaced_by_those_who_have_seen_it,
    a_write_keeps_the_expiry_and_is_recorded_in_the_history,
    lists_are_read_page_by_page,
    a_lease_is_taken_renewed_and_released_under_its_fence,
    a_lease_of_the_library_is_not_taken_over,
    a_lease_of_the_library_is_neither_renewed_nor_released,
    a_write_under_a_lost_lease_is_rejected,
    blocked_work_is_unblocked_after_its_count_was_confirmed,
    tasks_are_listed_and_shown,
}

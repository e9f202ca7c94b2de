//! Inspector pages and the routes that they use.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Site, encoded};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tidelock::lock::LockClass;
use tidelock::prelude::*;
use tidelock::reactions::{Reaction, Reactions};
use tidelock::state::{HistoryChange, history_batch};
use tidelock::store::Delta;
use tidelock_server::{Conflicts, Server, ServerOptions, Token, Tokens};

fn ui() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

/// Collects all files below a directory, by their relative path.
fn files(below: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path.strip_prefix(ui()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

#[tokio::test]
async fn every_page_file_is_public_and_runs_only_our_scripts() {
    let (site, mut found) = (Site::new(), Vec::new());
    files(&ui(), &mut found);
    // The remaining files are for development only: tests, types and licences.
    let kept = |name: &str| ["tests/", "types/", "tsconfig.json"].iter().any(|ours| name.starts_with(ours));
    let served = |name: &&String| !kept(name) && !name.ends_with("LICENSE") && !name.ends_with(".md");
    let mut count = 0;
    for name in found.iter().filter(served) {
        let path = if name == "index.html" { "/ui/".to_owned() } else { format!("/ui/{name}") };
        let answer = site.bare("GET", &path).send().await;
        assert_eq!(answer.status, 200, "{path}: add it to the table in ui.rs");
        assert_eq!(answer.text, std::fs::read_to_string(ui().join(name)).unwrap(), "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("require-trusted-types-for 'script'"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        count += 1;
    }
    assert!(count > 20, "{count}");
    for path in [
        "/ui/nothing.js",
        "/ui/../Cargo.toml",
        "/ui/tests/common.mjs",
        "/ui/vendor/README.md",
        "/ui/tsconfig.json",
        "/ui/types/vendor/uplot.d.ts",
    ] {
        assert_eq!(site.bare("GET", path).send().await.status, 401, "{path}");
    }
    assert_eq!(site.bare("POST", "/ui/app.js").send().await.status, 401);
}

#[tokio::test]
async fn the_first_page_is_found_from_wherever_the_server_is_mounted() {
    let site = Site::new();
    for path in ["/", "/ui"] {
        let answer = site.bare("GET", path).send().await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["location"]),
            (303, &"/ui/".parse().unwrap()),
            "{path}"
        );
    }
    let router = tidelock_server::router(Arc::clone(&site.store), ServerOptions::behind_own_auth());
    let app: axum::Router = axum::Router::new().nest("/admin/store", router);
    let request =
        http::Request::get("/admin/store").header("host", "localhost").body(axum::body::Body::empty());
    let answer = tower::ServiceExt::oneshot(app, request.unwrap()).await.unwrap();
    assert_eq!(answer.headers()["location"], "/admin/store/ui/");
}

#[test]
fn pages_have_no_script_or_style_in_them_and_never_make_markup_of_text() {
    let mut found = Vec::new();
    files(&ui(), &mut found);
    for name in found.iter().filter(|name| !name.starts_with("tests/") && !name.starts_with("vendor/")) {
        let text = std::fs::read_to_string(ui().join(name)).unwrap();
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "style=",
            "onclick=",
            "javascript:",
            "https://",
        ] {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn vendored_files_are_unchanged() {
    let vendor = ui().join("vendor");
    let readme = std::fs::read_to_string(vendor.join("README.md")).unwrap();
    let lines: Vec<Vec<&str>> = readme.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut known = BTreeSet::from(["README.md".to_owned()]);
    for line in lines.iter().filter(|line| line.len() == 7 && line[5].len() == 64) {
        let bytes = std::fs::read(vendor.join(line[1])).unwrap();
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, line[5], "{}", line[1]);
        known.insert(line[1].to_owned());
    }
    let there =
        std::fs::read_dir(vendor).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(there.collect::<BTreeSet<_>>(), known, "each file has a line");
}

#[tokio::test]
async fn a_caller_learns_what_it_may_do() {
    let site = Site::new();
    let about = site.get("/api/v1/info").await.when(200);
    assert_eq!(
        (&about["role"], &about["writes"], &about["locks"]),
        (&json!("write"), &json!(true), &json!(false))
    );
    let reader = site.bare("GET", "/api/v1/info").bearer(&site.read).send().await.when(200);
    assert_eq!((&reader["role"], &reader["writes"]), (&json!("read"), &json!(false)));
    let shut = Site::with(|options| options).get("/api/v1/info").await.when(200);
    assert_eq!((&shut["role"], &shut["writes"]), (&json!("write"), &json!(false)));
}

/// Creates a site with a reaction whose key `order("bad")` is blocked.
async fn stuck() -> (Site, tidelock::worker::WorkerHandle<tidelock::reactions::ReactionEngine>) {
    let site = Site::new();
    let policy = tidelock::model::retry::RetryPolicy { max_attempts: 1, ..Default::default() };
    let reaction = Reaction::new("mail").on(["placed"]).retry(policy).each(async |turn, _| {
        if turn.key().to_string().contains("bad") { Err(Failure::retry("no")) } else { Ok(Batch::new()) }
    });
    for name in ["bad", "good"] {
        let placed = NewEvent::new("placed".parse().unwrap(), Payload::null());
        let key = Key::new("order", [name]).unwrap();
        site.store.apply(Batch::new().append(&key, Expect::Absent, [placed])).await.unwrap();
    }
    let running = Reactions::new(Arc::clone(&site.store)).with(reaction).start().await.unwrap();
    running.quiesce().await.unwrap();
    (site, running)
}

#[tokio::test]
async fn verbs_count_first_and_want_that_number() {
    let (site, running) = stuck().await;
    let rows = site.get("/api/v1/work?blocked=true").await.when(200);
    assert_eq!(
        (&rows["rows"][0]["reaction"], &rows["rows"][0]["reaction_key"]),
        (&json!("mail"), &json!("order(\"bad\")"))
    );
    assert_eq!(rows["rows"].as_array().unwrap().len(), 1);
    let shown = site
        .get(&format!("/api/v1/work/{}", encoded(rows["rows"][0]["key"].as_str().unwrap())))
        .await
        .when(200);
    assert_eq!(shown["attempts"], 1);
    let overview = site.get("/api/v1/overview").await.when(200);
    assert_eq!((&overview["work"]["blocked"], &overview["reactions"][0]["blocked"]), (&json!(1), &json!(1)));

    let operate = "/api/v1/reactions/mail/keys:batch";
    let would =
        site.post(operate, &json!({"verb": "park", "blocked": true, "dry_run": true})).await.when(200);
    assert_eq!(would, json!({"would_change": 1, "changed": 0}));
    assert_eq!(
        site.post(operate, &json!({"verb": "park", "blocked": true, "confirm": 2})).await.refused(409),
        "TL1310"
    );
    assert_eq!(site.post(operate, &json!({"verb": "park", "blocked": true})).await.refused(400), "TL1308");
    assert!(site.audit().await.is_empty());
    site.post(operate, &json!({"verb": "park", "blocked": true, "confirm": 1})).await.when(200);
    running.quiesce().await.unwrap();
    assert_eq!(site.audit().await, ["write park mail"]);
    let parked = site.get("/api/v1/reactions/mail/dead-letters").await.when(200);
    assert_eq!(parked["dead_letters"][0]["key"], "order(\"bad\")");
    let keys = site.get("/api/v1/reactions/mail/keys?blocked=true").await.when(200);
    assert_eq!(keys["keys"], json!([]));
    assert_eq!(site.get("/api/v1/reactions/none/keys").await.refused(404), "TL0706");
    running.shutdown().await;
}

#[tokio::test]
async fn rows_are_unblocked_by_name_with_their_event_in_the_audit() {
    let (site, running) = stuck().await;
    let rows = site.get("/api/v1/work?blocked=true").await.when(200);
    let key = rows["rows"][0]["key"].clone();
    running.shutdown().await;
    let ask = |more: serde_json::Value| {
        let mut body = json!({"verb": "unblock", "keys": [key, "none"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let operate = "/api/v1/work:batch";
    assert_eq!(site.post(operate, &ask(json!({"dry_run": true}))).await.when(200)["would_change"], 1);
    assert_eq!(site.post(operate, &ask(json!({"confirm": 2}))).await.refused(409), "TL1310");
    assert_eq!(site.post(operate, &ask(json!({"confirm": 1}))).await.when(200)["changed"], 1);
    assert_eq!(site.get("/api/v1/work?blocked=true").await.when(200)["blocked"], 0);
    assert_eq!(site.audit().await, ["write unblock work"]);
}

#[tokio::test]
async fn a_document_is_shown_as_it_was() {
    let site = Site::new();
    let conflicts = Conflicts::new();
    let states =
        StateRegistry::new(Arc::clone(&site.store)).with_history().observer(Arc::clone(&conflicts) as _);
    let cart = states.state::<serde_json::Value>(&Scope::user("u"), "cart").unwrap();
    cart.set(json!({"total": 1})).await.unwrap();
    cart.inc("/total", 2).await.unwrap();
    cart.inc("/total", 4).await.unwrap();
    let key = encoded("user(\"u\", \"cart\")");
    let history = site.get(&format!("/api/v1/state/{key}/history?limit=2")).await.when(200);
    assert_eq!((&history["writes"][0]["number"], &history["next"]), (&json!(2), &json!(1)));
    for (number, total) in [(0, 1), (1, 3), (2, 7)] {
        let at = site.get(&format!("/api/v1/state/{key}/history/{number}")).await.when(200);
        assert_eq!((&at["value"]["total"], &at["deleted"]), (&json!(total), &json!(false)), "{number}");
    }
    assert_eq!(site.get(&format!("/api/v1/state/{key}/history/3")).await.refused(404), "TL1307");
    assert_eq!(site.get("/api/v1/state/conflicts").await.when(200)["shown"], false);
    let token = Token::generate().unwrap();
    let server = Server::new(Arc::clone(&site.store), ServerOptions::new(Tokens::none().write(&token)))
        .conflicts(&conflicts);
    let request = http::Request::get("/api/v1/state/conflicts").header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {}", token.reveal()));
    let answer =
        tower::ServiceExt::oneshot(server.router(), request.body(axum::body::Body::empty()).unwrap())
            .await
            .unwrap();
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(said["kinds"]["user"]["mutations"], 3, "{said}");
}

#[tokio::test]
async fn a_history_is_read_to_its_end_also_when_pages_are_full_of_bytes() {
    let (store, _directory) = common::stores::sqlite().await;
    let (site, key) = (Site::writing(store), Key::single("big").unwrap());
    // The total size exceeds a page of the store, but the number of writes fits a page of the API.
    let value = Payload::of(&"x".repeat(4_000_000)).unwrap();
    for _ in 0..18 {
        let told = history_batch(&key, HistoryChange::Put(value.clone()), 1).unwrap();
        site.store.apply(told).await.unwrap();
    }
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/api/v1/state/big/history?limit=100{before}")).await.when(200);
        seen.extend(page["writes"].as_array().unwrap().iter().map(|write| write["number"].as_u64().unwrap()));
        let Some(next) = page["next"].as_u64() else { break };
        before = format!("&cursor={next}");
    }
    assert_eq!(seen, (0..18).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_value_of_very_many_merges_is_not_reported_as_lost() {
    let (site, key) = (Site::new(), Key::single("k").unwrap());
    let told = |change: HistoryChange| history_batch(&key, change, 1).unwrap();
    site.store.apply(told(HistoryChange::Put(Payload::of(&json!({"n": 0})).unwrap()))).await.unwrap();
    let add = Delta::Inc { path: "/n".to_owned(), by: 1.into() };
    let merges =
        (0..5_400).fold(Batch::new(), |all, _| all.and(told(HistoryChange::Merge(vec![add.clone()]))));
    site.store.apply(merges).await.unwrap();
    assert_eq!(site.get("/api/v1/state/k/history/4000").await.when(200)["value"]["n"], 4_000);
    let many = site.get("/api/v1/state/k/history/5400").await;
    assert_eq!(many.refused(400), "TL1308");
    assert!(many.text.contains("more than 5000 merges"), "{many:?}");

    site.store
        .apply(Batch::new().truncate(&key.beside("history").unwrap(), StreamVersion(10)))
        .await
        .unwrap();
    let lost = site.get("/api/v1/state/k/history/4000").await;
    assert_eq!(lost.refused(400), "TL1308");
    assert!(lost.text.contains("removed from the history"), "{lost:?}");
}

static ACCOUNT: LockClass = LockClass::new("inspector-account");

/// Returns the response of a server that shows these locks.
async fn asked_of(locks: &Locks, path: &str) -> String {
    let token = Token::generate().unwrap();
    let store: SharedStore = Arc::new(MemoryStore::new());
    let router = Server::new(store, ServerOptions::new(Tokens::none().read(&token))).locks(locks).router();
    let request = http::Request::get(path).header("host", "localhost");
    let request =
        request.header("authorization", format!("Bearer {}", token.reveal())).body(axum::body::Body::empty());
    let answer = tower::ServiceExt::oneshot(router, request.unwrap()).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn locks_that_are_held_and_waited_for_are_measured() {
    let (locks, term) = (Locks::new(), ACCOUNT.key(["held"]).unwrap());
    let held = locks.lock(&term).await.unwrap();
    let waiting = tokio::spawn({
        let (locks, term) = (locks.clone(), term.clone());
        async move { drop(locks.lock(&term).await.unwrap()) }
    });
    while locks.snapshot().terms.iter().all(|term| term.waiters.is_empty()) {
        tokio::task::yield_now().await;
    }
    let text = asked_of(&locks, "/metrics").await;
    assert!(
        text.contains("\ntidelock_locks_held 1\n") && text.contains("\ntidelock_locks_waiting 1\n"),
        "{text}"
    );
    drop(held);
    waiting.await.unwrap();
    assert!(asked_of(&locks, "/metrics").await.contains("\ntidelock_locks_held 0\n"));
}

#[tokio::test]
async fn a_cycle_that_was_refused_is_remembered() {
    let locks = Locks::new();
    let met = Arc::new(tokio::sync::Barrier::new(2));
    let task = |one: &str, other: &str| {
        let (one, other) = (ACCOUNT.key([one]).unwrap(), ACCOUNT.key([other]).unwrap());
        let (locks, met) = (locks.clone(), Arc::clone(&met));
        tokio::spawn(async move {
            let _held = locks.lock(&one).await.unwrap();
            met.wait().await;
            locks.lock(&other).await.is_err()
        })
    };
    let (one, other) = (task("a", "b"), task("b", "a"));
    let refused = u8::from(one.await.unwrap()) + u8::from(other.await.unwrap());
    assert_eq!(refused, 1);
    let said: serde_json::Value = serde_json::from_str(&asked_of(&locks, "/api/v1/locks").await).unwrap();
    assert_eq!(said["found"][0]["links"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!((&said["held"], &said["cycles"]), (&json!(0), &json!([])));
    assert!(locks.cycles()[0].0 < Duration::from_secs(60));
}

#[tokio::test]
async fn tasks_are_asked_for_over_the_api() {
    let site = Site::new();
    let task = tidelock::schedule::Schedule::new("t").cron("0 3 * * *").run(async |_| Ok(Batch::new()));
    let running =
        tidelock::schedule::Scheduler::new(Arc::clone(&site.store)).with(task).start().await.unwrap();
    assert_eq!(
        site.post("/api/v1/schedules/t/pause", &json!({"reason": "x"})).await.when(202)["schedule"],
        "t"
    );
    assert_eq!(site.get("/api/v1/schedules/t").await.when(200)["doing"]["state"], "paused");
    site.post("/api/v1/schedules/t/resume", &json!({})).await.when(202);
    site.post("/api/v1/schedules/t/run", &json!({})).await.when(202);
    running.quiesce().await.unwrap();
    assert_eq!(site.get("/api/v1/schedules/t").await.when(200)["history"][0]["outcome"], "succeeded");
    assert_eq!(site.audit().await, ["write pause t", "write resume t", "write run t"]);
    running.shutdown().await;
}

#[tokio::test]
async fn the_lag_of_a_reaction_counts_events_that_wait_at_blocked_keys() {
    let clock = Arc::new(tidelock::clock::ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000)));
    let store: SharedStore = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
    let policy = tidelock::model::retry::RetryPolicy { max_attempts: 1, ..Default::default() };
    let reaction = Reaction::new("mail").on(["placed"]).retry(policy);
    let reaction = reaction.each(async |_, _| Err::<Batch, _>(Failure::retry("no")));
    let placed = NewEvent::new("placed".parse().unwrap(), Payload::null());
    let key = Key::new("order", ["o"]).unwrap();
    store.apply(Batch::new().append(&key, Expect::Absent, [placed])).await.unwrap();
    let running = Reactions::new(Arc::clone(&store)).with(reaction).start().await.unwrap();
    running.quiesce().await.unwrap();
    running.shutdown().await;
    clock.advance(Duration::from_mins(10));
    let site = Site::writing(store);
    let overview = site.get("/api/v1/overview").await.when(200);
    assert_eq!(overview["reactions"][0]["lag_ms"], 600_000, "everything was routed long ago");
    assert!(overview["latency_us"].is_u64(), "{overview}");
    let text = site.get("/metrics").await.text;
    for line in [
        "tidelock_reaction_lag_seconds{reaction=\"mail\"} 600\n",
        "tidelock_work_overdue 0\n",
        "tidelock_work_blocked 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test]
async fn a_server_is_not_ready_when_a_part_of_its_program_or_its_store_is_not() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let stuck = Arc::new(AtomicBool::new(false));
    let inner: SharedStore = Arc::new(MemoryStore::new());
    let away = common::away::Away::after(&inner, 0);
    let store: SharedStore = Arc::clone(&away) as _;
    let token = Token::generate().unwrap();
    let seen = Arc::clone(&stuck);
    let router = Server::new(store, ServerOptions::new(Tokens::none().read(&token)))
        .probe("the drain loop", move || {
            if seen.load(Ordering::SeqCst) { Err("it came round 40 s ago".to_owned()) } else { Ok(()) }
        })
        .router();
    let ask = async || {
        let request = http::Request::get("/readyz").header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {}", token.reveal()));
        let request = request.body(axum::body::Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    };
    assert_eq!(ask().await.0, 200);
    stuck.store(true, Ordering::SeqCst);
    let (status, said) = ask().await;
    assert!(
        status == 503 && said.contains("TL1320") && said.contains("the drain loop is not ready"),
        "{said}"
    );
    stuck.store(false, Ordering::SeqCst);
    away.schema.store(99, Ordering::SeqCst);
    let (status, said) = ask().await;
    assert!(status == 503 && said.contains("its schema is 99 by now"), "{said}");
    away.schema.store(0, Ordering::SeqCst);
    away.reads.store(true, Ordering::SeqCst);
    assert_eq!(ask().await.0, 503);
}

#[tokio::test]
async fn a_caller_in_another_language_is_linked_by_its_traceparent() {
    let site = Site::new();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = json!({"expected": "any", "events": [{"type": "A"}]});
    for (sent, kept) in [(trace, json!({"trace": trace})), ("00-0-0-00", serde_json::Value::Null)] {
        let ask = site.ask("POST", "/api/v1/streams/s/events").header("traceparent", sent).json(&body);
        ask.send().await.when(201);
        let events = site.get("/api/v1/streams/s/events").await.when(200);
        assert_eq!(events["events"].as_array().unwrap().last().unwrap()["meta"], kept, "{sent}");
    }
}

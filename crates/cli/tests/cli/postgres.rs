//! PostgreSQL at the command line: migrations, diagnostics, measurements and the demo, without any password in
//! the output.
//!
//! `DATABASE_URL` names the server. Without it, a private one is started, which ends with this process.

use std::process::Output;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tidelock::prelude::*;
use tidelock_pgserver::Server;

use crate::support::{stderr, stdout, tidelock, tidelock_with};
use crate::terminal::Terminal;

/// Returns the address of the server.
pub(crate) fn url() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
        return url;
    }
    SERVER.get_or_init(|| Server::start(&tidelock_pgserver::PgServerOptions::default()).unwrap()).url()
}

/// A schema that no other test uses, dropped at the end.
struct Schema(String);

impl Schema {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("cli_test_{}_{count}", std::process::id()))
    }

    fn run(&self, args: &[&str]) -> Output {
        let all: Vec<&str> = args.iter().copied().chain(["--schema", &self.0]).collect();
        // The servers of tests may not flush.
        tidelock_with(&all, &[("TIDELOCK_STORE", &url()), ("TIDELOCK_DURABILITY", "relaxed")])
    }

    async fn open(&self) -> PostgresStore {
        open(&self.0).await
    }

    /// Creates a store with blocked work.
    async fn with_blocked_work(&self) {
        let store = self.open().await;
        let job = NewWork::once(Key::new("job", ["a"]).unwrap(), "jobs".parse().unwrap());
        store.apply(Batch::new().enqueue(job)).await.unwrap();
        let owner: Owner = "worker".parse().unwrap();
        let claim = Claim::queues(&owner, ["jobs".parse().unwrap()], 1, Duration::from_secs(60));
        let lease = store.claim(claim).await.unwrap().grants.first().unwrap().lease();
        store.apply(Batch::new().block(&lease, "bad address")).await.unwrap();
        store.close().await;
    }

    async fn drop(self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.0);
        client().await.batch_execute(&sql).await.unwrap();
    }
}

/// Opens a store in a schema, on a server that need not flush.
pub(crate) async fn open(schema: &str) -> PostgresStore {
    use tidelock::store::Durability;
    let options = PostgresOptions {
        schema: schema.to_owned(),
        durability: Durability::Relaxed,
        ..PostgresOptions::default()
    };
    PostgresStore::open(&url(), options).await.unwrap()
}

/// Opens a separate connection for the test.
pub(crate) async fn client() -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn json(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).expect(name)
}

/// Asserts that the output does not contain the password of the address, if it has one.
fn assert_no_password(output: &Output) {
    let url = url();
    let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map(|(user, _)| user);
    if let Some((_, password)) = user.and_then(|user| user.split_once(':')) {
        let shown = stdout(output) + &stderr(output);
        assert!(!shown.contains(password), "{shown}");
    }
}

#[test]
fn migrations_are_printed_without_a_server() {
    let whole = tidelock(&["migrate", "sql", "--schema", "shop"]);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    for text in ["CREATE SCHEMA shop", "CREATE TABLE shop.events", "INSERT INTO shop.migrations"] {
        assert!(stdout(&whole).contains(text), "{text}: {}", stdout(&whole));
    }
    let named = tidelock(&["migrate", "sql", "--store", "postgres://localhost:1/db?schema=shop"]);
    assert_eq!(stdout(&named), stdout(&whole));
    let rest = tidelock(&["migrate", "sql", "--from", "1000"]);
    assert_eq!((rest.status.code(), stdout(&rest).as_str()), (Some(0), ""));
    assert!(stderr(&rest).contains("nothing comes after"), "{}", stderr(&rest));
}

#[tokio::test]
async fn a_schema_is_missing_then_migrated_then_well() {
    let schema = Schema::new();
    let missing = schema.run(&["migrate", "status", "-o", "json"]);
    assert_eq!(missing.status.code(), Some(0), "{}", stderr(&missing));
    assert_eq!(
        (&json(&missing)["installed"], &json(&missing)["current"]),
        (&Value::Null, &Value::Bool(false))
    );
    assert!(stderr(&missing).contains("tidelock migrate up"), "{}", stderr(&missing));
    let ill = schema.run(&["doctor", "-o", "json"]);
    assert_eq!(ill.status.code(), Some(1), "{}", stderr(&ill));
    assert_eq!(check(&json(&ill), "schema")["status"], "fail");

    let up = schema.run(&["migrate", "up"]);
    assert_eq!(up.status.code(), Some(0), "{}", stderr(&up));
    assert!(stdout(&up).contains("applied"), "{}", stdout(&up));
    let current = schema.run(&["migrate", "status", "-o", "json"]);
    assert_eq!(json(&current)["current"], true);
    for output in [&missing, &ill, &up, &current] {
        assert_no_password(output);
    }
    schema.drop().await;
}

#[tokio::test]
async fn the_doctor_sees_blocked_work_and_settings() {
    let schema = Schema::new();
    schema.with_blocked_work().await;
    let output = schema.run(&["doctor", "-o", "json"]);
    let report = json(&output);
    // Test servers may be configured not to flush, which is reported as a separate failure.
    let flushes = check(&report, "durability")["status"] == "ok";
    assert_eq!(output.status.code(), Some(if flushes { 5 } else { 1 }), "{report:#}");
    for name in ["schema", "store", "clock", "pooler"] {
        assert_eq!(check(&report, name)["status"], "ok", "{report:#}");
    }
    assert_eq!(check(&report, "blocked")["status"], "blocked");
    assert_no_password(&output);
    schema.drop().await;
}

#[tokio::test]
async fn streams_are_appended_shown_copied_and_their_work_unblocked() {
    let (from, to) = (Schema::new(), Schema::new());
    from.with_blocked_work().await;
    let done = |schema: &Schema, args: &[&str], code: i32| {
        let output = schema.run(&[&["streams"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        assert_no_password(&output);
        output
    };
    for n in ["1", "2"] {
        done(&from, &["append", "order(\"o-1\")", "Placed", n, "--correlation", "c"], 0);
    }
    done(&from, &["append", "order(\"o-1\")", "Placed", "3", "--if-version", "0"], 4);
    done(&from, &["close", "order(\"o-1\")", "--yes"], 0);
    let list = json(&done(&from, &["list", "-o", "json"], 0));
    assert_eq!(
        (&list["streams"][0]["head"], &list["streams"][0]["last_type"]),
        (&1.into(), &"Placed".into())
    );
    let newest =
        json(&done(&from, &["show", "order(\"o-1\")", "--backward", "--limit", "1", "-o", "jsonl"], 0));
    assert_eq!((&newest["payload"], &newest["correlation"]), (&2.into(), &"c".into()));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all.jsonl");
    let file = file.to_str().unwrap();
    assert_eq!(json(&done(&from, &["export", "--file", file, "-o", "json"], 0))["events"], 2);
    assert_eq!(to.run(&["migrate", "up"]).status.code(), Some(0));
    assert_eq!(json(&done(&to, &["import", "--yes", "--file", file, "-o", "json"], 0))["imported"], 2);
    assert_eq!(json(&done(&to, &["import", "--yes", "--file", file, "-o", "json"], 0))["there"], 2);
    done(&to, &["append", "order(\"o-1\")", "Placed", "3"], 4);

    let (late, version) = (Key::single("late").unwrap(), StreamVersion(2));
    let events = (0..4).map(|n| NewEvent::new("Placed".parse().unwrap(), Payload::of(&n).unwrap()));
    let (source, copy) = (from.open().await, to.open().await);
    source.apply(Batch::new().append(&late, Expect::Absent, events).truncate(&late, version)).await.unwrap();
    done(&from, &["export", "--prefix", "late", "--file", file], 0);
    assert!(stderr(&done(&to, &["import", "--yes", "--file", file], 4)).contains("--begin-later"));
    assert_eq!(copy.stream(&late).await.unwrap(), None);
    for imported in [2, 0] {
        let report = json(&done(&to, &["import", "--yes", "--file", file, "--begin-later", "-o", "json"], 0));
        assert_eq!(report["imported"], imported);
        assert_eq!(copy.stream(&late).await.unwrap(), source.stream(&late).await.unwrap());
    }
    source.close().await;
    copy.close().await;

    let work = |args: &[&str], code: i32| {
        let output = from.run(&[&["work"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    };
    assert_eq!(json(&work(&["blocked", "--pattern", "^job", "-o", "json"], 5))["blocked"], 1);
    assert_eq!(json(&work(&["unblock", "--queue", "jobs", "-o", "json"], 0))["changed"], 1);
    work(&["blocked"], 0);
    from.drop().await;
    to.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_started_followed_shown_and_removed() {
    use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
    const DOUBLE: Workflow<u32, u32> = Workflow::new("double");
    async fn double(cx: &Ctx, n: u32) -> Result<u32, Failure> {
        Ok(cx.step("double", async move |_| Ok(2 * n)).await?)
    }
    let schema = Schema::new();
    let store: SharedStore = std::sync::Arc::new(schema.open().await);
    let driving = Worker::new(store).register(DOUBLE, double).start().await.unwrap();
    let done = |args: &[&str], code: i32| {
        let output = schema.run(&[&["runs"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        assert_no_password(&output);
        output
    };
    let brought = done(&["start", "double", "--input", "21", "--id", "d-1", "--wait"], 0);
    assert_eq!(stdout(&brought), "42\n");
    assert!(stdout(&done(&["watch", "d-1"], 0)).contains("completed: 42"));
    assert_eq!(json(&done(&["show", "d-1", "-o", "json"], 0))["steps"][0]["value"], 42);
    done(&["show", "d-2"], 3);
    done(&["cancel", "d-1"], 4);
    assert_eq!(json(&done(&["prune", "--older", "0s", "--yes", "-o", "json"], 0))["removed"], 1);
    assert_eq!(json(&done(&["list", "-o", "json"], 0))["runs"], serde_json::json!([]));
    driving.shutdown().await;
    schema.drop().await;
}

#[test]
fn a_server_that_is_not_there_ends_with_1_and_shows_no_password() {
    for verb in [&["doctor"][..], &["migrate", "status"], &["migrate", "up"]] {
        let args: Vec<&str> =
            verb.iter().copied().chain(["--store", "postgres://me:hunter2@127.0.0.1:1/db"]).collect();
        let output = tidelock(&args);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains("error[TL0"), "{}", stderr(&output));
        assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
    }
}

#[test]
fn the_bench_compares_with_handwritten_sql_and_leaves_nothing_behind() {
    let joint = if url().contains('?') { '&' } else { '?' };
    let named = format!("{}{joint}schema=not_mine", url());
    let output =
        tidelock_with(&["bench", "--seconds", "0.5", "-o", "json"], &[("TIDELOCK_STORE", named.as_str())]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_no_password(&output);
    let report = json(&output);
    assert_eq!(report["store"], "postgres");
    for name in [
        "commit64_to_plain",
        "commit64_to_single_statement",
        "commit1_to_single_statement1",
        "claim_ack_to_driver",
    ] {
        assert!(report["ratios"][name].as_f64().is_some_and(|ratio| ratio > 0.0), "{name}: {report:#}");
    }
    assert!(report["machine"]["server"]["fsync"].is_string(), "{report:#}");
    let listed = stderr(&output);
    let listed = listed.split("dropped afterwards: ").nth(1).unwrap().trim();
    assert_eq!(listed.split(", ").count(), 2, "{listed}");
    assert_eq!(remaining(listed), 0, "{listed}");
}

/// Returns how many of the listed schemas exist, with the one in the URL.
fn remaining(listed: &str) -> i64 {
    let names: Vec<String> = listed.split(", ").chain(["not_mine"]).map(str::to_owned).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = ANY ($1)";
        client().await.query_one(sql, &[&names]).await.unwrap().get(0)
    })
}

#[test]
fn the_proof_holds_on_a_server() {
    let output = tidelock(&["demo", "--seconds", "5", "-o", "json", "--store", &url()]);
    let proof = json(&output);
    assert_eq!(output.status.code(), Some(0), "{proof:#} {}", stderr(&output));
    for name in crate::demo::WRONG {
        assert_eq!(proof[name], 0, "{name}: {proof:#}");
    }
    assert!(proof["kills"].as_u64().unwrap() > 0, "{proof:#}");
    assert_no_password(&output);
}

#[tokio::test]
async fn records_are_read_and_written_and_no_schema_is_made() {
    let schema = Schema::new();
    let missing = schema.run(&["state", "list"]);
    assert_ne!(missing.status.code(), Some(0));
    assert!(stderr(&missing).contains("error[TL0"), "{}", stderr(&missing));
    schema.with_blocked_work().await;
    let set = schema.run(&["state", "set", "limits(\"mail\")", "{\"n\": 1}", "-o", "json"]);
    assert_eq!(json(&set)["version"], 1);
    let refused = schema.run(&["state", "set", "limits(\"mail\")", "2", "--if-absent"]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert_eq!(json(&schema.run(&["state", "get", "limits(\"mail\")", "-o", "json"]))["value"]["n"], 1);
    assert_eq!(
        json(&schema.run(&["state", "list", "--prefix", "limits", "-o", "json"]))["records"][0]["version"],
        1
    );
    assert_eq!(schema.run(&["state", "delete", "--yes", "limits(\"mail\")"]).status.code(), Some(0));
    assert_eq!(schema.run(&["state", "get", "limits(\"mail\")"]).status.code(), Some(3));
    schema.drop().await;
}

#[tokio::test]
async fn a_server_that_does_not_flush_is_refused_unless_that_is_meant() {
    let schema = Schema::new();
    schema.open().await.close().await;
    let flushes = client().await.query_one("SELECT current_setting('fsync')", &[]).await.unwrap();
    let flushes = flushes.get::<_, String>(0) == "on";
    let list = ["work", "list", "--schema", &schema.0];
    let careful = tidelock_with(&list, &[("TIDELOCK_STORE", &url())]);
    let relaxed =
        tidelock_with(&[&list[..], &["--durability", "relaxed"]].concat(), &[("TIDELOCK_STORE", &url())]);
    assert_eq!(relaxed.status.code(), Some(0), "{}", stderr(&relaxed));
    if flushes {
        assert_eq!(careful.status.code(), Some(0), "{}", stderr(&careful));
        assert!(!stderr(&relaxed).contains("warning"), "it flushes: {}", stderr(&relaxed));
    } else {
        assert_eq!(careful.status.code(), Some(1), "{}", stderr(&careful));
        assert!(stderr(&careful).contains("error[TL0404]"), "{}", stderr(&careful));
        assert!(stderr(&relaxed).contains("warning: a power cut"), "{}", stderr(&relaxed));
    }
    schema.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_presses_are_handled_while_a_view_refreshes() {
    let schema = Schema::new();
    schema.open().await.close().await;
    let directory = tempfile::tempdir().unwrap();
    let settings = format!("TIDELOCK_STORE='{}' TIDELOCK_DURABILITY=relaxed", url());
    let verb = format!("top --every 100ms --schema {}", schema.0);
    if let Some(mut terminal) = Terminal::run_with(&settings, &verb, directory.path()) {
        terminal.sees("tidelock top  postgres");
        // From now on a refresh takes as long as this transaction.
        let client = client().await;
        let lock = format!("BEGIN; LOCK TABLE {}.work IN ACCESS EXCLUSIVE MODE", schema.0);
        client.batch_execute(&lock).await.unwrap();
        terminal.types("?");
        terminal.sees("pauses and resumes");
        terminal.types("q");
        terminal.ends();
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    schema.drop().await;
}

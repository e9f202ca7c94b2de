//! Records at the command line: reads, writes, and conflicts that prevent an overwrite.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidelock::prelude::*;
use tidelock::state::history_key;

use crate::support::{self, stderr, stdout};

const CART: &str = r#"session("s-1", "cart")"#;

/// A store in a temporary directory.
struct Site {
    directory: TempDir,
    store: SqliteStore,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("a.db"), SqliteOptions::default()).await.unwrap();
        Self { directory, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.db")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(&[&["state"], args].concat());
        command.env("TIDELOCK_STORE", self.path());
        command
    }

    /// Runs a verb that must exit with this code.
    fn run(&self, args: &[&str], code: i32) -> Output {
        let output = self.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat(), 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    async fn put(&self, key: &str, value: Value) -> DocVersion {
        let batch = Batch::new().put(&key.parse().unwrap(), Expect::Any, Payload::of(&value).unwrap());
        self.store.apply(batch).await.unwrap().documents[0].version
    }

    async fn value(&self, key: &str) -> Option<Value> {
        let found = self.store.document(&key.parse().unwrap()).await.unwrap();
        found.map(|document| document.value.parse().unwrap())
    }

    /// Returns a container with a history.
    fn with_history(&self, key: &str) -> State<Value> {
        StateRegistry::new(Arc::new(self.store.clone())).with_history().at(key.parse::<Key>().unwrap())
    }
}

fn keys(listing: &Value) -> Vec<&str> {
    let records = listing["records"].as_array().unwrap();
    records.iter().map(|record| record["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_shows_keys_of_a_prefix_and_the_next_page() {
    let site = Site::new().await;
    for key in
        [CART, r#"session("s-1", "seen")"#, r#"session("t-2", "cart")"#, "sessions", r#"user("\u202e")"#]
    {
        site.put(key, json!({"a": 1})).await;
    }
    assert_eq!(keys(&site.json(&["list"])).len(), 5);
    assert_eq!(
        keys(&site.json(&["list", "--prefix", "session"])),
        [CART, r#"session("s-1", "seen")"#, r#"session("t-2", "cart")"#]
    );
    assert_eq!(keys(&site.json(&["list", "--prefix", r#"session("s-1")"#])).len(), 2);
    assert_eq!(keys(&site.json(&["list", "--prefix", r#"session("t-"#])), [r#"session("t-2", "cart")"#]);
    assert_eq!(site.json(&["list", "--prefix", "nothing"]), json!({"records": [], "next": null}));

    let first = site.json(&["list", "--prefix", "session", "--limit", "2"]);
    assert_eq!(first["records"][0]["version"], 1);
    assert_eq!(first["records"][0]["size"], 7);
    let next = first["next"].as_str().unwrap();
    let rest = site.json(&["list", "--prefix", "session", "--limit", "2", "--cursor", next]);
    assert_eq!((keys(&rest), &rest["next"]), (vec![r#"session("t-2", "cart")"#], &Value::Null));

    let table = site.run(&["list", "--prefix", "session", "--limit", "2"], 0);
    assert!(stdout(&table).contains(CART), "{}", stdout(&table));
    assert!(stderr(&table).contains(r#"--cursor 'session("s-1", "seen")'"#), "{}", stderr(&table));
    let odd = site.run(&["list", "--prefix", "user"], 0);
    assert!(stdout(&odd).contains(r#"user("\u202e")"#), "what is shown can be typed: {}", stdout(&odd));
    assert!(stderr(&odd).is_empty(), "these were all: {}", stderr(&odd));
}

#[tokio::test]
async fn a_record_is_printed_with_every_digit() {
    let site = Site::new().await;
    let text = r#"{"n": 123456789012345678901, "s": "\u001b[31m"}"#;
    let key: Key = CART.parse().unwrap();
    let until = Due::After(Duration::from_secs(3600));
    let batch = Batch::new().put_until(&key, Expect::Absent, Payload::from_json(text).unwrap(), until);
    let at = site.store.apply(batch).await.unwrap().at;
    let table = site.run(&["get", CART], 0);
    assert_eq!(stdout(&table), "{\n  \"n\": 123456789012345678901,\n  \"s\": \"\\u001b[31m\"\n}\n");
    let envelope = stdout(&site.run(&["get", CART, "-o", "json"], 0));
    assert!(envelope.contains("123456789012345678901"), "{envelope}");
    let envelope: Value = serde_json::from_str(&envelope).unwrap();
    assert_eq!(envelope["key"], CART);
    assert_eq!((&envelope["version"], &envelope["updated_at"]), (&json!(1), &json!(at)));
    assert_eq!(envelope["expires_at"], json!(at.after(Duration::from_secs(3600))));
    assert_eq!(envelope["value"]["s"], "\u{1b}[31m");
}

#[tokio::test]
async fn a_missing_item_exits_with_3_and_an_invalid_key_with_2() {
    let site = Site::new().await;
    for verb in ["get", "delete"] {
        let missing = site.run(&[verb, CART], 3);
        assert!(stdout(&missing).is_empty());
        assert!(stderr(&missing).contains("tidelock state list --prefix session"), "{}", stderr(&missing));
    }
    for call in
        [&["get", "session(s-1)"][..], &["list", "--prefix", "session(s-1)"], &["watch", "session(s-1)"]]
    {
        let wrong = site.run(call, 2);
        assert!(stderr(&wrong).contains("error[TL0101]"), "{}", stderr(&wrong));
        assert!(stderr(&wrong).contains("at character 9"), "{}", stderr(&wrong));
    }
    site.run(&["list", "--limit", "0"], 2);
    site.run(&["set", CART, "1", "--if-absent", "--force"], 2);
    site.run(&["set", CART], 2);
}

#[test]
fn no_verb_makes_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing.db");
    let calls: [&[&str]; 6] =
        [&["list"], &["get", "a"], &["set", "a", "1"], &["delete", "a"], &["history", "a"], &["watch", "a"]];
    for call in calls {
        let args = [&["state"], call, &["--store", path.to_str().unwrap()]].concat();
        let output = support::tidelock(&args);
        assert_eq!(output.status.code(), Some(3), "{call:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("error[TL0401]"), "{}", stderr(&output));
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn a_record_is_set_from_an_argument_a_file_and_standard_input() {
    let site = Site::new().await;
    assert!(stdout(&site.run(&["set", CART, r#"{"n": 1}"#], 0)).contains("version 1 now; it is new"));
    let file = site.directory.path().join("value.json");
    std::fs::write(&file, "{\n  \"n\": 2\n}\n").unwrap();
    let set = site.json(&["set", CART, "--file", file.to_str().unwrap()]);
    assert_eq!((&set["version"], &set["changed"], &set["history"]), (&json!(2), &json!(true), &Value::Null));
    assert_eq!(set["before"]["value"], json!({"n": 1}), "what was there is not lost: {set}");
    let stored = site.store.document(&CART.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(stored.value.as_str(), r#"{"n":2}"#, "blanks are not kept");

    let mut child =
        site.command(&["set", CART, "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"-3\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).contains("version 3 now; it was 2"), "{}", stdout(&output));
    site.run(&["set", CART, "-4"], 0);
    assert_eq!(site.value(CART).await, Some(json!(-4)));

    for wrong in
        [&["set", CART, "hello"][..], &["set", CART, "{} {}"], &["set", CART, "--file", "no/such/file"]]
    {
        assert!(!stderr(&site.run(wrong, 2)).is_empty());
    }
    assert_eq!(site.value(CART).await, Some(json!(-4)), "nothing of these was written");
}

#[tokio::test]
async fn failed_preconditions_exit_with_4_and_print_the_version() {
    let site = Site::new().await;
    site.put(CART, json!(1)).await;
    site.put(CART, json!(2)).await;
    let calls: [&[&str]; 5] = [
        &["set", CART, "9", "--if-version", "1"],
        &["set", CART, "2", "--if-version", "1"],
        &["set", CART, "9", "--if-absent"],
        &["set", CART, "2", "--if-absent"],
        &["delete", "--yes", CART, "--if-version", "1"],
    ];
    for call in calls {
        let refused = site.run(call, 4);
        assert!(stdout(&refused).is_empty());
        assert!(stderr(&refused).contains("error[TL0202]"), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("is at version 2"), "{}", stderr(&refused));
    }
    for call in
        [["set", "gone", "9", "--if-version", "1"].as_slice(), &["delete", "gone", "--if-version", "1"]]
    {
        assert!(stderr(&site.run(call, 4)).contains("gone does not exist, and version 1 was expected"));
    }
    assert_eq!(site.json(&["set", CART, "3", "--if-version", "2"])["version"], 3);
    assert_eq!(site.json(&["set", "new", "3", "--if-absent"])["version"], 1);
    assert_eq!(site.json(&["set", CART, "4", "--force"])["version"], 4);
    assert!(
        stderr(&site.run(&["delete", CART], 2)).contains("Delete it? There is no terminal to confirm it")
    );
    assert_eq!(site.json(&["delete", CART, "--dry-run"])["changed"], false);
    assert!(site.value(CART).await.is_some(), "nothing was deleted");
    assert_eq!(site.json(&["delete", "--yes", CART, "--if-version", "4"])["before"]["value"], 4);
    assert_eq!(site.value(CART).await, None);
    assert_eq!(site.json(&["delete", "--yes", "new", "--force"])["version"], 2);
}

#[tokio::test]
async fn the_same_value_is_not_written_again_unless_it_is_forced() {
    let site = Site::new().await;
    site.put(CART, json!({"a": 1, "b": 2})).await;
    let same = site.json(&["set", CART, r#"{"b": 2, "a": 1}"#]);
    assert_eq!((&same["version"], &same["changed"]), (&json!(1), &json!(false)));
    assert!(stdout(&site.run(&["set", CART, r#"{"b": 2, "a": 1}"#], 0)).contains("still version 1"));
    assert_eq!(site.json(&["set", CART, r#"{"b": 2, "a": 1}"#, "--force"])["version"], 2);
}

#[tokio::test]
async fn an_expiry_outlives_an_edit() {
    let site = Site::new().await;
    let key: Key = CART.parse().unwrap();
    let until = Due::After(Duration::from_secs(3600));
    site.store.apply(Batch::new().put_until(&key, Expect::Any, Payload::null(), until)).await.unwrap();
    let before = site.store.document(&key).await.unwrap().unwrap();
    site.run(&["set", CART, "1"], 0);
    site.run(&["set", CART, "2", "--if-version", "2"], 0);
    site.run(&["set", CART, "3", "--force"], 0);
    let after = site.store.document(&key).await.unwrap().unwrap();
    assert_eq!((after.version, after.expires_at), (DocVersion(4), before.expires_at));
}

#[tokio::test]
async fn edits_are_recorded_in_an_existing_history() {
    let site = Site::new().await;
    let record = site.with_history(CART);
    record.set(json!({"n": 1})).await.unwrap();
    record.inc("/n", 2).await.unwrap();
    assert_eq!(site.json(&["set", CART, r#"{"n": 9}"#])["history"], 2);
    assert!(stdout(&site.run(&["delete", "--yes", CART], 0)).contains("write 3 of its history"));
    let told = site.json(&["history", CART]);
    let changes: Vec<&Value> =
        told["writes"].as_array().unwrap().iter().map(|past| &past["change"]).collect();
    let merged = json!({"merge": [{"inc": {"path": "/n", "by": 2}}]});
    let expected = [json!("delete"), json!({"put": {"n": 9}}), merged, json!({"put": {"n": 1}})];
    assert_eq!(changes, expected.iter().collect::<Vec<_>>());
    assert_eq!((&told["key"], &told["next"]), (&json!(CART), &Value::Null));
    assert_eq!(record.history(None, 10).await.unwrap().len(), 4, "the program reads what the operator did");

    let newest = site.run(&["history", CART, "--limit", "2"], 0);
    assert!(stderr(&newest).contains("--cursor 2"), "{}", stderr(&newest));
    let older = site.run(&["history", CART, "--cursor", "2"], 0);
    assert!(stdout(&older).contains("inc /n 2") && !stdout(&older).contains("delete"), "{}", stdout(&older));
    assert_eq!(site.json(&["history", CART, "--cursor", "0"])["writes"], json!([]));
}

#[tokio::test]
async fn a_record_without_a_history_says_how_to_begin_one() {
    let site = Site::new().await;
    site.run(&["set", CART, "1"], 0);
    let none = site.run(&["history", CART], 3);
    assert!(stdout(&none).is_empty());
    assert!(stderr(&none).contains("StateRegistry::with_history"), "{}", stderr(&none));
}

#[tokio::test]
async fn a_history_with_foreign_events_is_reported_by_its_code() {
    let site = Site::new().await;
    let stream = history_key(&CART.parse().unwrap()).unwrap();
    let foreign = NewEvent::new("Other".parse().unwrap(), Payload::null());
    site.store.apply(Batch::new().append(&stream, Expect::Any, [foreign])).await.unwrap();
    let broken = site.run(&["history", CART], 1);
    assert!(stderr(&broken).contains("error[TL0609]"), "{}", stderr(&broken));
}

/// A child process that prints versions.
struct Watching {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watching {
    fn start(site: &Site) -> Self {
        let mut command = site.command(&["watch", CART, "-o", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// Waits until the child exits with success.
fn ends(mut child: Child) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return assert_eq!(status.code(), Some(0));
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    panic!("the watch does not exit");
}

#[tokio::test]
async fn a_watch_prints_each_version_on_a_line() {
    let site = Site::new().await;
    let mut watching = Watching::start(&site);
    let none = json!({"key": CART, "version": null, "updated_at": null, "expires_at": null, "value": null});
    assert_eq!(watching.next(), none);
    for n in 1..=3 {
        site.put(CART, json!({"n": n})).await;
        let line = watching.next();
        assert_eq!((&line["version"], &line["value"]), (&json!(n), &json!({"n": n})));
    }
    site.run(&["delete", "--yes", CART], 0);
    assert_eq!(watching.next(), none);
    let interrupted = Command::new("kill").args(["-INT", &watching.child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    ends(watching.child);
}

#[tokio::test]
async fn a_watch_ends_when_its_reader_closes_the_pipe() {
    let site = Site::new().await;
    site.put(CART, json!(1)).await;
    let mut watching = Watching::start(&site);
    assert_eq!(watching.next()["value"], 1);
    drop(watching.lines);
    ends(watching.child);
}

#[test]
fn each_verb_has_examples() {
    for verb in ["list", "get", "set", "delete", "history", "watch"] {
        let help = support::tidelock(&["state", verb, "--help"]);
        assert_eq!(help.status.code(), Some(0));
        assert!(stdout(&help).contains(&format!("tidelock state {verb}")), "{verb}: {}", stdout(&help));
        assert!(stdout(&help).contains("Examples:"), "{verb}");
    }
}

#[tokio::test]
async fn reserved_names_are_not_written() {
    let site = Site::new().await;
    let key: Key = r#"tidelock.schedule("report")"#.parse().unwrap();
    site.store.apply(Batch::new().put(&key, Expect::Absent, Payload::null())).await.unwrap();
    for call in [&["set", &key.to_string(), "1", "--force"][..], &["delete", &key.to_string(), "--yes"]] {
        let refused = site.run(call, 2);
        assert!(stderr(&refused).contains("error[TL0106]"), "{}", stderr(&refused));
    }
    assert_eq!(site.store.document(&key).await.unwrap().unwrap().value, Payload::null());
}

/// An account of which only the last event remains.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
struct Account {
    balance: i64,
}

#[derive(serde::Serialize, serde::Deserialize)]
enum AccountEvent {
    Paid(i64),
}

impl tidelock::events::Aggregate for Account {
    const KIND: &'static str = "account";
    type Event = AccountEvent;

    fn apply(&mut self, event: &AccountEvent) {
        let AccountEvent::Paid(amount) = event;
        self.balance += amount;
    }
}

#[tokio::test]
async fn d15_the_base_of_an_archived_stream_is_neither_set_nor_deleted() {
    use tidelock::events::{Aggregate as _, Events};
    let site = Site::new().await;
    let store: SharedStore = Arc::new(site.store.clone());
    let events = || Events::new(Arc::clone(&store)).snapshots::<Account>(u64::MAX);
    let paid = [800, 28, 217].map(AccountEvent::Paid);
    events().append::<Account>("ann", paid).await.unwrap();
    let books = tidelock::archive::Archiver::new(events());
    books.close(&Account::stream("ann").unwrap()).discard().keep_last::<Account>(1).await.unwrap();
    let base = r#"base("account", "ann")"#;
    let forged = r#"{"fold":1,"version":1,"position":2,"at":"1970-01-01T00:00:00.000001Z","state":{"balance":999999}}"#;
    for call in
        [&["delete", base, "--yes"][..], &["delete", base, "--yes", "--force"], &["set", base, forged]]
    {
        let said = stderr(&site.run(call, 2));
        assert!(said.contains("error[TL0106]") && said.contains(base), "{said}");
    }
    assert_eq!(events().load::<Account>("ann").await.unwrap().state.balance, 1_045);
}

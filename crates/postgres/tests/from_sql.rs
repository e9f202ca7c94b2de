//! SQL functions for programs in other languages: they write the same rows as the store, under the same names, with the
//! same results and the same refusals.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::Postgres;
use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::id::{EventId, EventType, Owner, Position, Priority, QueueName, StreamVersion};
use tidelock_core::key::{Arg, Key};
use tidelock_core::model::lease;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Event, Expect, Lease, Lifetime, LogQuery, NewEvent, NewWork, Operation, Page, Selection,
    Store as _, StreamQuery, WorkFilter, WorkRow,
};
use tidelock_postgres::PostgresStore;
use tidelock_postgres::tokio_postgres::types::ToSql;
use tidelock_postgres::tokio_postgres::{self, Client, Row};
use tidelock_tck::rng::Rng;
use uuid::Uuid;

/// The time limit for an event that must happen.
const LIMIT: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The codes of rejected input.
const KEY: &str = "TL101";
const NAME: &str = "TL103";
const TOO_LARGE: &str = "TL105";

/// A store, and a program that uses SQL only.
struct Sql {
    store: PostgresStore,
    client: Client,
    schema: String,
    _backend: Postgres,
}

impl Sql {
    async fn open() -> Self {
        let backend = Postgres::default();
        let schema = backend.schema();
        let address = common::address(&schema);
        let store = common::open(&address, None).await;
        Self { store, client: common::client().await, schema, _backend: backend }
    }

    /// Runs a statement with `{s}` for the schema.
    async fn one(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Row, tokio_postgres::Error> {
        self.client.query_one(&sql.replace("{s}", &self.schema), values).await
    }

    async fn text(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> String {
        self.one(sql, values).await.unwrap().get(0)
    }

    async fn append(&self, event: &Append<'_>) -> Result<(i64, i64), tokio_postgres::Error> {
        let sql =
            "SELECT version, position FROM {s}.append($1, $2, $3::text::json, $4, $5, $6::text::json, $7)";
        let Append { stream, kind, payload, expected, id, meta, correlation } = event;
        let row = self.one(sql, &[stream, kind, payload, expected, id, meta, correlation]).await?;
        Ok((row.get(0), row.get(1)))
    }

    async fn events(&self, stream: &Key) -> Vec<Event> {
        self.store.read_stream(StreamQuery::forward(stream, 99)).await.unwrap().events
    }
}

/// The arguments of append.
#[derive(Clone, Copy)]
struct Append<'a> {
    stream: &'a str,
    kind: &'a str,
    payload: &'a str,
    expected: Option<i64>,
    id: Option<Uuid>,
    meta: Option<&'a str>,
    correlation: Option<&'a str>,
}

const SOLD: Append<'static> = Append {
    stream: "sales",
    kind: "Sold",
    payload: "1",
    expected: None,
    id: None,
    meta: None,
    correlation: None,
};

fn sales() -> Key {
    Key::single("sales").unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, tokio_postgres::Error>, code: &str, parts: &[&str]) {
    let error = result.unwrap_err();
    let told = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(told.code().code(), code, "{told}");
    for part in parts {
        assert!(told.message().contains(part), "{part:?} is missing in: {told}");
    }
}

fn awkward_texts() -> Vec<String> {
    let given = [
        "",
        " ",
        "  ",
        "a",
        "a b",
        "$",
        "$$",
        "$P",
        "\"",
        "'",
        "''",
        "\\",
        "\\'",
        "#",
        "!",
        "%",
        "&",
        "a\"b",
        "a#B42",
        "a$Tb",
        "\t",
        "\n",
        "\r\n",
        "\u{1}",
        "\u{1f}",
        "\u{7f}",
        "\u{80}",
        "\u{85}",
        "\u{9f}",
        "ä",
        "ß",
        "日本語",
        "e\u{301}",
        "👩‍👩‍👧",
        "שלום",
        "\u{feff}",
        "\u{fffd}",
        "\u{ffff}",
        "\u{10ffff}",
        "-",
        "-1",
        "null",
        "{\"a\":1}",
        "%s",
        "{schema}",
        "Ünï cödé $ #1",
    ];
    let mut texts: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
    texts.extend((1..=0x100).filter_map(char::from_u32).map(|c| format!("a{c}b")));
    let mut rng = Rng::new(7);
    for _ in 0..200 {
        let length = rng.below(12);
        let wide = |n: u64| char::from_u32(u32::try_from(n).unwrap()).filter(|c| *c != '\0');
        texts.push(
            (0..length)
                .filter_map(|i| wide(rng.within(0..if i % 2 == 0 { 0x80 } else { 0x11_0000 })))
                .collect(),
        );
    }
    texts.sort();
    texts.dedup();
    texts
}

#[tokio::test]
async fn keys_of_texts_are_the_stores_keys() {
    let sql = Sql::open().await;
    let texts = awkward_texts();
    let made = "SELECT array_agg({s}.key('k' || t) || {s}.arg(t) || {s}.arg('x' || t) ORDER BY n)
        FROM unnest($1::text[]) WITH ORDINALITY u (t, n)";
    let keys: Vec<String> = sql.one(made, &[&texts]).await.unwrap().get(0);
    assert_eq!(keys.len(), texts.len());
    for (text, key) in texts.iter().zip(keys) {
        let expected = Key::new(&format!("k{text}"), [text.clone(), format!("x{text}")]).unwrap();
        assert_eq!(key, expected.canonical(), "{text:?}");
    }
    // The form that programs use.
    let key = sql.text("SELECT {s}.key('order') || {s}.arg('o-1') || {s}.arg(42)", &[]).await;
    let args = [Arg::from("o-1"), Arg::from(42)];
    assert_eq!(key, Key::of("order", &args).unwrap().canonical());
}

#[tokio::test]
async fn keys_of_numbers_and_uuids_are_the_stores_keys() {
    let sql = Sql::open().await;
    let mut numbers = vec![0, 1, -1, 9, 10, -9, -10, 42, -42, 99, 100, i64::MAX, i64::MIN, i64::MAX - 1];
    numbers.extend((0..63).flat_map(|bit| [1_i64 << bit, -(1_i64 << bit), (1_i64 << bit) - 1]));
    let mut rng = Rng::new(11);
    for bits in 0..64 {
        numbers.extend((0..10).map(|_| rng.draw().cast_signed() >> bits));
    }
    let made = "SELECT array_agg({s}.key('n') || {s}.arg(v) ORDER BY n)
        FROM unnest($1::bigint[]) WITH ORDINALITY u (v, n)";
    let keys: Vec<String> = sql.one(made, &[&numbers]).await.unwrap().get(0);
    assert_eq!(keys.len(), numbers.len());
    for (number, key) in numbers.iter().zip(keys) {
        assert_eq!(key, Key::new("n", [*number]).unwrap().canonical(), "{number}");
    }
    let mut uuids = vec![Uuid::nil(), Uuid::max()];
    uuids.extend((0..50).map(|_| Uuid::from_u64_pair(rng.draw(), rng.draw())));
    for uuid in uuids {
        let key = sql.text("SELECT {s}.key('u') || {s}.arg($1::uuid)", &[&uuid]).await;
        assert_eq!(key, Key::new("u", [uuid]).unwrap().canonical());
    }
}

/// Every key that the store accepts names the same stream here.
#[tokio::test]
async fn every_key_of_the_store_can_be_appended_to() {
    let sql = Sql::open().await;
    let mut refused = Vec::new();
    for text in &awkward_texts() {
        let key = Key::new("k", [text.clone()]).unwrap();
        match sql.append(&Append { stream: key.canonical(), ..SOLD }).await {
            Ok(_) => assert_eq!(sql.events(&key).await.len(), 1, "{key}"),
            Err(error) => refused.push(format!("{text:?}: {}", error.as_db_error().unwrap())),
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
}

#[tokio::test]
async fn the_store_reads_the_appended_events() {
    let sql = Sql::open().await;
    let id = Uuid::now_v7();
    let full = Append {
        payload: r#"{"total": 3}"#,
        id: Some(id),
        meta: Some(r#"{"by":"psql"}"#),
        correlation: Some("c-1"),
        ..SOLD
    };
    let first = sql.append(&full).await.unwrap();
    let plain = sql.one("SELECT * FROM {s}.append('sales', 'Sold')", &[]).await.unwrap();
    assert_eq!((first.0, plain.get::<_, i64>("version")), (0, 1));
    let now = sql.store.now().await.unwrap();
    let events = sql.events(&sales()).await;
    let [one, two] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(one.position.0, u64::try_from(first.1).unwrap());
    assert_eq!(two.position.0, u64::try_from(plain.get::<_, i64>("position")).unwrap());
    assert_eq!((one.version.0, one.id, one.event_type.as_str()), (0, EventId(id), "Sold"));
    assert_eq!((one.payload.as_str(), one.meta.as_str()), (r#"{"total": 3}"#, r#"{"by":"psql"}"#));
    assert_eq!((one.correlation.as_deref(), two.correlation.as_deref()), (Some("c-1"), None));
    assert_eq!((two.payload.as_str(), two.meta.as_str()), ("null", "null"));
    assert!(now.since(one.at) < LIMIT && one.at <= two.at && two.at <= now, "{events:?}");
    assert_eq!(sql.store.read_log(LogQuery::all(9)).await.unwrap().events, events);
    assert_eq!(sql.store.stream(&sales()).await.unwrap().unwrap().head, Some(StreamVersion(1)));
}

#[tokio::test]
async fn the_store_and_sql_take_turns_without_holes() {
    let sql = Sql::open().await;
    let event = || NewEvent::new(EventType::new("Sold").unwrap(), Payload::null());
    let append = |expect| Batch::new().append(&sales(), expect, [event()]);
    sql.store.apply(append(Expect::Absent)).await.unwrap();
    assert_eq!(sql.append(&SOLD).await.unwrap().0, 1);
    // The store caches version 0 and must not rely on it.
    sql.store.apply(append(Expect::Any)).await.unwrap();
    assert_eq!(sql.append(&Append { expected: Some(2), ..SOLD }).await.unwrap().0, 3);
    let late = sql.store.apply(append(Expect::Exact(StreamVersion(2)))).await.unwrap_err();
    assert!(late.to_string().contains("it is at version 3"), "{late}");
    sql.store.apply(append(Expect::Exact(StreamVersion(3)))).await.unwrap();
    let versions: Vec<u64> = sql.events(&sales()).await.iter().map(|event| event.version.0).collect();
    assert_eq!(versions, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn an_expectation_that_does_not_hold_names_what_was_found() {
    let sql = Sql::open().await;
    let expecting = |expected| Append { expected: Some(expected), ..SOLD };
    refused(sql.append(&expecting(0)).await, "TL201", &["'sales'", "version -1", "expected 0"]);
    assert!(sql.store.stream(&sales()).await.unwrap().is_none(), "a refused append leaves a stream behind");
    assert_eq!(sql.append(&expecting(-1)).await.unwrap().0, 0);
    refused(sql.append(&expecting(-1)).await, "TL201", &["version 0", "expected -1"]);
    assert_eq!(sql.append(&expecting(0)).await.unwrap().0, 1);
    refused(sql.append(&expecting(7)).await, "TL201", &["version 1", "expected 7"]);
    refused(sql.append(&expecting(0)).await, "TL201", &["version 1", "expected 0"]);
    sql.store.apply(Batch::new().close(&sales(), Expect::Any)).await.unwrap();
    refused(sql.append(&SOLD).await, "TL205", &["'sales'", "closed"]);
    refused(sql.append(&expecting(1)).await, "TL205", &["closed"]);
    assert_eq!(sql.events(&sales()).await.len(), 2);
}

#[tokio::test]
async fn the_same_id_again_gives_the_first_answer() {
    let sql = Sql::open().await;
    let id = Uuid::now_v7();
    let one =
        Append { id: Some(id), expected: Some(-1), meta: Some("{\"n\":1}"), correlation: Some("c"), ..SOLD };
    let first = sql.append(&one).await.unwrap();
    sql.append(&SOLD).await.unwrap();
    assert_eq!(sql.append(&one).await.unwrap(), first);
    let others = [
        Append { stream: "other", ..one },
        Append { kind: "Bought", ..one },
        Append { payload: "2", ..one },
        Append { meta: None, ..one },
        Append { correlation: Some("d"), ..one },
        Append { correlation: None, ..one },
    ];
    for other in others {
        refused(sql.append(&other).await, "TL208", &[&id.to_string(), "version 0", "'sales'"]);
    }
    assert_eq!(sql.append(&one).await.unwrap(), first);
    // SQL recognises an event that the store appended, and the store recognises an event that SQL appended.
    let event = NewEvent::new(EventType::new("Sold").unwrap(), Payload::of(&9).unwrap());
    let batch = |event: &NewEvent| Batch::new().append(&sales(), Expect::Any, [event.clone()]);
    let receipt = sql.store.apply(batch(&event)).await.unwrap();
    let again = sql.append(&Append { id: Some(event.id.0), payload: "9", ..SOLD }).await.unwrap();
    assert_eq!(u64::try_from(again.1).unwrap(), receipt.last_position().unwrap().0);
    let mine = NewEvent { id: EventId(id), meta: Payload::from_json("{\"n\":1}").unwrap(), ..event };
    let mine = NewEvent { payload: Payload::of(&1).unwrap(), correlation: Some("c".to_owned()), ..mine };
    let receipt = sql.store.apply(batch(&mine)).await.unwrap();
    assert!(receipt.repeated);
    assert_eq!(u64::try_from(first.1).unwrap(), receipt.last_position().unwrap().0);
    assert_eq!(sql.events(&sales()).await.len(), 3);
}

/// The store compares values, not their spelling. The functions must do the same.
#[tokio::test]
async fn the_same_content_in_other_words_is_the_same_content() {
    let sql = Sql::open().await;
    let id = Some(Uuid::now_v7());
    let first = sql.append(&Append { id, payload: r#"{"a":1,"b":[2]}"#, ..SOLD }).await.unwrap();
    let again = sql.append(&Append { id, payload: r#"{ "b": [2], "a": 1 }"#, ..SOLD }).await.unwrap();
    assert_eq!(again, first);
}

#[tokio::test]
async fn rolled_back_events_never_appear() {
    let sql = Sql::open().await;
    let (s, client) = (&sql.schema, &sql.client);
    client.batch_execute(&format!("CREATE TABLE {s}.invoices (n int)")).await.unwrap();
    for end in ["ROLLBACK", "COMMIT"] {
        let all = format!(
            "BEGIN; INSERT INTO {s}.invoices VALUES (1); SELECT {s}.append('sales', 'Sold'); \
             SELECT {s}.enqueue('job', 'queue'); {end}"
        );
        client.batch_execute(&all).await.unwrap();
        let invoices = sql.text("SELECT count(*)::text FROM {s}.invoices", &[]).await;
        let job = sql.store.work(&Key::single("job").unwrap()).await.unwrap();
        let found = (invoices.as_str(), sql.events(&sales()).await.len(), job.is_some());
        assert_eq!(found, if end == "COMMIT" { ("1", 1, true) } else { ("0", 0, false) });
    }
    // A savepoint protects the program from an error, as with any other statement.
    let caught = format!(
        "BEGIN; SELECT {s}.append('sales', 'Sold'); SAVEPOINT a; SELECT {s}.append('sales', 'Sold'); \
         ROLLBACK TO a; SELECT {s}.append('sales', 'Sold', expected => 1); COMMIT"
    );
    client.batch_execute(&caught).await.unwrap();
    let versions: Vec<u64> = sql.events(&sales()).await.iter().map(|event| event.version.0).collect();
    assert_eq!(versions, [0, 1, 2]);
}

#[tokio::test]
async fn a_run_begins_with_an_append_and_an_enqueue() {
    let sql = Sql::open().await;
    let begin = "WITH started AS (
            SELECT * FROM {s}.append({s}.key('run') || {s}.arg('r-1'), 'RunStarted', '{\"n\":1}', expected => -1))
        SELECT started.version, {s}.enqueue({s}.key('run') || {s}.arg('r-1'), 'runs', recurring => true,
            follows => {s}.key('run') || {s}.arg('r-1'))::text FROM started";
    sql.one(begin, &[]).await.unwrap();
    refused(sql.one(begin, &[]).await, "TL201", &["version 0", "expected -1"]);
    let (owner, queue): (Owner, QueueName) = ("worker".parse().unwrap(), "runs".parse().unwrap());
    let claim = Claim::queues(&owner, [queue], 9, LIMIT).with_events(10);
    let claimed = sql.store.claim(claim).await.unwrap();
    let [grant] = claimed.grants.as_slice() else { panic!("{claimed:?}") };
    let run = Key::new("run", ["r-1"]).unwrap();
    assert_eq!((&grant.row.key, grant.row.follow.as_ref()), (&run, Some(&run)));
    assert_eq!((grant.row.lifetime, grant.row.position), (Lifetime::Standing, None));
    assert_eq!(grant.events, sql.events(&run).await);
    assert_eq!(grant.events.first().unwrap().event_type.as_str(), "RunStarted");
    // After the acknowledgement the row rests. Enqueued again, it continues after the last event that it has seen.
    let seen = grant.events.first().unwrap().position;
    sql.store.apply(Batch::new().advance(&grant.lease(), seen).ack(&grant.lease())).await.unwrap();
    let next = "SELECT {s}.append({s}.key('run') || {s}.arg('r-1'), 'Signal')::text,
        {s}.enqueue({s}.key('run') || {s}.arg('r-1'), 'runs')::text";
    sql.one(next, &[]).await.unwrap();
    let claim = Claim::existing(&owner, &run, LIMIT).with_events(10);
    let claimed = sql.store.claim(claim).await.unwrap();
    let grant = claimed.grants.first().unwrap();
    let types: Vec<&str> = grant.events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!((types, grant.row.position), (vec!["Signal"], Some(seen)));
}

#[tokio::test]
async fn a_hint_wakes_those_who_wait() {
    let sql = Sql::open().await;
    // The store wakes its waiters once when it begins to listen, but not every time.
    for version in 0..10 {
        let mut watch = sql.store.watch();
        sql.append(&SOLD).await.unwrap();
        sql.one("SELECT {s}.hint()::text", &[]).await.unwrap();
        assert!(tokio::time::timeout(LIMIT, watch.changed()).await.unwrap());
        assert_eq!(sql.store.stream(&sales()).await.unwrap().unwrap().head, Some(StreamVersion(version)));
    }
}

#[tokio::test]
async fn input_that_no_store_takes_is_refused() {
    let sql = Sql::open().await;
    let (long, huge) = ("x".repeat(201), format!("\"{}\"", "x".repeat(4 * 1024 * 1024)));
    let key = "k".repeat(1025);
    for bad in ["", &long, "a\nb", "a\u{1}", "\u{7f}", "a\u{85}b", "\u{9f}"] {
        refused(sql.append(&Append { kind: bad, ..SOLD }).await, NAME, &["the type"]);
        let queue = sql.one("SELECT {s}.enqueue('job', $1)::text", &[&bad]).await;
        refused(queue, NAME, &["the queue"]);
    }
    for bad in ["", key.as_str()] {
        refused(sql.append(&Append { stream: bad, ..SOLD }).await, KEY, &["the stream"]);
        refused(sql.one("SELECT {s}.enqueue($1, 'queue')::text", &[&bad]).await, KEY, &["the key"]);
    }
    let large = |result| refused(result, TOO_LARGE, &["4194306 bytes", "4194304"]);
    large(sql.append(&Append { payload: &huge, ..SOLD }).await.map(drop));
    large(sql.append(&Append { meta: Some(&huge), ..SOLD }).await.map(drop));
    large(sql.one("SELECT {s}.enqueue('job', 'queue', $1::text::json)::text", &[&huge]).await.map(drop));
    for bad in [-1_i32, 10] {
        let enqueued = sql.one("SELECT {s}.enqueue('job', 'queue', priority => $1)::text", &[&bad]).await;
        refused(enqueued, NAME, &[&bad.to_string()]);
    }
    // None of these rows stays, and values just within the limits are accepted.
    assert!(sql.store.read_log(LogQuery::all(9)).await.unwrap().events.is_empty());
    assert!(sql.store.work(&Key::single("job").unwrap()).await.unwrap().is_none());
    let (long, huge) = ("x".repeat(200), format!("\"{}\"", "x".repeat(4 * 1024 * 1024 - 2)));
    let key = "k".repeat(1024);
    sql.append(&Append { kind: &long, payload: &huge, stream: &key, ..SOLD }).await.unwrap();
    sql.one("SELECT {s}.enqueue($1, $2, priority => 9::smallint)::text", &[&key, &long]).await.unwrap();
    assert_eq!(sql.events(&Key::single(&key).unwrap()).await.len(), 1);
}

/// Values that the store would refuse must not get into its tables through SQL.
#[tokio::test]
async fn limits_are_those_of_the_store() {
    let sql = Sql::open().await;
    let long = "c".repeat(1025);
    let mut taken = Vec::new();
    for append in [Append { correlation: Some(&long), ..SOLD }, Append { kind: "a\u{9f}b", ..SOLD }] {
        if sql.append(&append).await.is_ok() {
            taken.push(format!(
                "append {:?}, a correlation of {:?}",
                append.kind,
                append.correlation.map(str::len)
            ));
        }
    }
    for arguments in ["'k', 'queue', \"position\" => -1", "'k', 'queue', follows => ''"] {
        if sql.one(&format!("SELECT {{s}}.enqueue({arguments})::text"), &[]).await.is_ok() {
            taken.push(format!("enqueue {arguments:?}"));
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

/// A text that is not a key names nothing that a program could request.
#[tokio::test]
async fn texts_that_are_no_keys_are_refused() {
    let sql = Sql::open().await;
    let mut taken = Vec::new();
    for text in ["Order #5", " k", "k$", "k\"1", "a\"b\"", "k!", "$", "k#Q1", "k#A12", "k#-Y"] {
        assert!(Key::from_canonical(text).is_err(), "{text:?}");
        if sql.append(&Append { stream: text, ..SOLD }).await.is_ok() {
            taken.push(format!("append to {text:?}"));
        }
        if sql.one("SELECT {s}.enqueue($1, 'queue')::text", &[&text]).await.is_ok() {
            taken.push(format!("enqueue {text:?}"));
        }
        if sql.one("SELECT {s}.enqueue('k', 'queue', follows => $1)::text", &[&text]).await.is_ok() {
            taken.push(format!("follow {text:?}"));
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

/// The set of control characters does not depend on the locale of the database. A control character that gets in
/// affects every reader of the log.
#[tokio::test]
async fn names_are_checked_alike_in_every_locale() {
    let (admin, name) = (common::client().await, common::fresh_schema());
    let create = format!("CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0");
    admin.batch_execute(&create).await.unwrap();
    let (before, after) = common::url().rsplit_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let query = after.split_once('?').map(|(_, query)| format!("?{query}")).unwrap_or_default();
    let url = format!("{before}/{name}{query}");
    let store = common::open(&url, None).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    for bad in ["a\u{1}b", "a\u{7f}b", "a\u{85}b", "a\u{9f}b"] {
        let append = client.execute("SELECT tidelock.append('sales', $1)", &[&bad]).await;
        let enqueue = client.execute("SELECT tidelock.enqueue('job', $1)", &[&bad]).await;
        let log = store.read_log(LogQuery::all(99)).await.map(drop);
        let works = store.works(&WorkFilter::default(), Page::first(99)).await.map(drop);
        assert!(log.is_ok() && works.is_ok(), "{bad:?} got in: {log:?}, {works:?}");
        refused(append, NAME, &["the type"]);
        refused(enqueue, NAME, &["the queue"]);
    }
    store.close().await;
    drop((store, client));
    connection.await.unwrap().unwrap();
    admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
}

/// An action on a row, the same on both sides.
#[derive(Clone, Debug)]
enum Step {
    Enqueue(Box<NewWork>),
    Claim,
    Renew,
    Ack,
    Release,
    Defer(Due),
    Fail(Due),
    Block,
    Unblock,
}

/// One of two stores that execute the same steps; the other enqueues by SQL.
struct Side {
    sql: Sql,
    by_sql: bool,
    leases: Vec<Option<Lease>>,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn name(index: usize) -> Key {
    Key::new("job", [*NAMES.get(index).unwrap()]).unwrap()
}

impl Side {
    async fn open(by_sql: bool) -> Self {
        Self { sql: Sql::open().await, by_sql, leases: vec![None; NAMES.len()] }
    }

    async fn row(&self, index: usize) -> Option<WorkRow> {
        self.sql.store.work(&name(index)).await.unwrap()
    }

    /// Executes one step. Returns `false` when the step does not apply to the state of the row.
    async fn step(&mut self, index: usize, step: &Step) -> bool {
        let held = self.leases.get(index).unwrap().clone();
        let batch = match (step, held) {
            (Step::Enqueue(new), _) if self.by_sql => {
                self.enqueue(new).await;
                return true;
            }
            (Step::Enqueue(new), _) => Batch::new().enqueue((**new).clone()),
            (Step::Claim, None) => {
                let claim = Claim::existing(&"worker".parse().unwrap(), &name(index), DAY);
                let claimed = self.sql.store.claim(claim).await.unwrap();
                *self.leases.get_mut(index).unwrap() = claimed.grants.first().map(|grant| grant.lease());
                return !claimed.grants.is_empty();
            }
            (Step::Unblock, _) => {
                Batch::new().operate(Selection::Keys(vec![name(index)]), Operation::Unblock)
            }
            (Step::Renew, Some(lease)) => Batch::new().renew(&lease, DAY),
            (Step::Ack, Some(lease)) => Batch::new().ack(&lease),
            (Step::Release, Some(lease)) => Batch::new().release(&lease),
            (Step::Defer(due), Some(lease)) => Batch::new().defer(&lease, *due),
            (Step::Fail(due), Some(lease)) => Batch::new().fail(&lease, "it broke", *due),
            (Step::Block, Some(lease)) => Batch::new().block(&lease, "no"),
            _ => return false,
        };
        self.sql.store.apply(batch).await.unwrap();
        if !matches!(step, Step::Enqueue(_) | Step::Renew | Step::Unblock) {
            *self.leases.get_mut(index).unwrap() = None;
        }
        true
    }

    async fn enqueue(&self, new: &NewWork) {
        let enqueue = "SELECT {s}.enqueue($1, $2, $3::text::json, \
            'epoch'::timestamptz + $4::bigint * interval '1 microsecond', $5, $6, $7, $8)::text";
        let due = match new.due {
            Due::At(at) => Some(at.as_micros()),
            _ => None,
        };
        let payload = new.payload.as_ref().map(Payload::as_str);
        let priority = i32::from(new.priority.level());
        let standing = new.lifetime == Lifetime::Standing;
        let follow = new.follow.as_ref().map(Key::canonical);
        let position = new.position.map(|position| i64::try_from(position.0).unwrap());
        let (key, queue) = (new.key.canonical(), new.queue.as_str());
        let values: [&(dyn ToSql + Sync); 8] =
            [&key, &queue, &payload, &due, &priority, &standing, &follow, &position];
        self.sql.one(enqueue, &values).await.unwrap();
        // Claims use this column, and nothing renews it here.
        let column = "SELECT ready_at FROM {s}.work WHERE key = $1";
        let ready_at: Option<i64> = self.sql.one(column, &[&key]).await.unwrap().get(0);
        let row = self.sql.store.work(&new.key).await.unwrap().unwrap();
        assert_eq!(ready_at.map(Timestamp::from_micros), lease::ready_at(&row), "{row:?}");
    }
}

/// Returns a row without the values in which the clocks and counters of two servers may differ. All instants near the
/// present become equal.
fn shape(row: Option<&WorkRow>, now: Timestamp) -> Option<WorkRow> {
    let near = |at: Timestamp| at.since(now) < 2 * DAY && now.since(at) < 2 * DAY;
    let plain = |at: Timestamp| if near(at) { Timestamp::EPOCH } else { at };
    let mut row = row?.clone();
    row.seq = 0;
    row.due = row.due.map(plain);
    row.woken = row.woken.map(plain);
    row.enqueued_at = plain(row.enqueued_at);
    if let Some(lease) = &mut row.lease {
        (lease.since, lease.until, lease.fence.0) = (plain(lease.since), plain(lease.until), 0);
    }
    if let Some(blocked) = &mut row.blocked {
        blocked.since = plain(blocked.since);
    }
    Some(row)
}

/// Returns which instants a step changed. That must agree even where the instants are near the present.
fn moved(before: Option<&WorkRow>, after: Option<&WorkRow>) -> [bool; 4] {
    let all = |row: Option<&WorkRow>| {
        let lease = row.and_then(|row| row.lease.as_ref().map(|lease| lease.until));
        let at = row.map(|row| row.enqueued_at);
        [row.and_then(|row| row.due), row.and_then(|row| row.woken), lease, at]
    };
    let (before, after) = (all(before), all(after));
    let mut pairs = before.iter().zip(after);
    std::array::from_fn(|_| pairs.next().is_some_and(|(before, after)| *before != after))
}

fn random_due(rng: &mut Rng) -> Due {
    let far = |days: u64| {
        Due::At(Timestamp::from_micros(4_102_444_800_000_000).after(DAY * u32::try_from(days).unwrap()))
    };
    let past = |days: u64| {
        Due::At(Timestamp::from_micros(978_307_200_000_000).after(DAY * u32::try_from(days).unwrap()))
    };
    match rng.below(5) {
        0 => far(rng.within(0..4)),
        1 => past(rng.within(0..4)),
        _ => Due::Now,
    }
}

fn random_work(rng: &mut Rng, index: usize) -> NewWork {
    let key = name(index);
    let new = NewWork::once(key, rng.pick(&["one", "two"]).parse().unwrap()).due(random_due(rng));
    let half = |rng: &mut Rng| rng.below(2) == 0;
    NewWork {
        priority: Priority::new(rng.pick(&[0, 5, 5, 9])).unwrap(),
        lifetime: rng.pick(&[Lifetime::Once, Lifetime::Standing]),
        payload: half(rng).then(|| Payload::of(&rng.below(100)).unwrap()),
        follow: half(rng).then(|| Key::new("s", [i64::try_from(rng.below(3)).unwrap()]).unwrap()),
        position: half(rng).then(|| Position(rng.within(0..100))),
        ..new
    }
}

fn random_step(rng: &mut Rng, index: usize) -> Step {
    match rng.below(16) {
        0..=5 => Step::Enqueue(Box::new(random_work(rng, index))),
        6..=8 => Step::Claim,
        9 => Step::Renew,
        10 => Step::Ack,
        11 => Step::Release,
        12 => Step::Defer(random_due(rng)),
        13 => Step::Fail(random_due(rng)),
        14 => Step::Block,
        _ => Step::Unblock,
    }
}

async fn live_alike(seed: u64, steps: u32) {
    let mut rng = Rng::new(seed);
    let (mut sql, mut model) = (Side::open(true).await, Side::open(false).await);
    let mut history = Vec::new();
    for _ in 0..steps {
        let index = rng.below(NAMES.len());
        let step = random_step(&mut rng, index);
        history.push((NAMES.get(index).copied().unwrap(), step.clone()));
        let before = (sql.row(index).await, model.row(index).await);
        let done = (sql.step(index, &step).await, model.step(index, &step).await);
        let after = (sql.row(index).await, model.row(index).await);
        let now = model.sql.store.now().await.unwrap();
        let seen = (shape(after.0.as_ref(), now), moved(before.0.as_ref(), after.0.as_ref()), done.0);
        let expected = (shape(after.1.as_ref(), now), moved(before.1.as_ref(), after.1.as_ref()), done.1);
        assert_eq!(seen, expected, "seed {seed}: after {before:?} and {history:#?}");
    }
    let queues: Vec<QueueName> = ["one", "two"].iter().map(|queue| queue.parse().unwrap()).collect();
    let all = Claim::queues(&"other".parse().unwrap(), queues, 100, DAY);
    let mut orders = Vec::new();
    for side in [&sql, &model] {
        let claimed = side.sql.store.claim(all.clone()).await.unwrap();
        orders.push(claimed.grants.iter().map(|grant| grant.row.key.clone()).collect::<Vec<_>>());
    }
    assert_eq!(orders.first(), orders.last(), "seed {seed}: {history:#?}");
}

#[tokio::test]
async fn an_enqueue_by_sql_is_an_enqueue() {
    if let Some(seed) = std::env::var("TIDELOCK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return live_alike(seed, 60).await;
    }
    for seed in 1..=12 {
        live_alike(seed, 60).await;
    }
}

/// The states one by one, so that a failure names the state.
#[tokio::test]
async fn an_enqueue_meets_a_row_in_every_state() {
    let far = Due::At(Timestamp::from_micros(4_102_444_800_000_000));
    let new = |queue: &str| Step::Enqueue(Box::new(NewWork::once(name(0), queue.parse().unwrap())));
    let standing = Step::Enqueue(Box::new(NewWork::standing(name(0), "one".parse().unwrap())));
    let later = Step::Enqueue(Box::new(NewWork::once(name(0), "one".parse().unwrap()).due(far)));
    let states: [(&str, Vec<Step>); 8] = [
        ("new", vec![]),
        ("due", vec![new("one")]),
        ("due later", vec![later]),
        ("leased", vec![new("one"), Step::Claim]),
        ("woken", vec![new("one"), Step::Claim, new("two")]),
        ("backing off", vec![new("one"), Step::Claim, Step::Fail(far)]),
        ("blocked", vec![new("one"), Step::Claim, Step::Block]),
        ("resting", vec![standing, Step::Claim, Step::Ack]),
    ];
    for (state, steps) in states {
        for due in [Due::Now, far] {
            let (mut sql, mut model) = (Side::open(true).await, Side::open(false).await);
            let wake = NewWork { due, ..random_work(&mut Rng::new(3), 0) };
            for step in steps.iter().chain([&Step::Enqueue(Box::new(wake))]) {
                assert!(sql.step(0, step).await && model.step(0, step).await, "{state}: {step:?}");
            }
            let now = model.sql.store.now().await.unwrap();
            let (seen, expected) = (sql.row(0).await, model.row(0).await);
            assert_eq!(shape(seen.as_ref(), now), shape(expected.as_ref(), now), "{state}, {due:?}");
        }
    }
}

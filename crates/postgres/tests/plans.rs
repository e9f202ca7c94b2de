//! Query plans: the cost of a statement does not grow with the tables. The plans use the indexes that were made for
//! them. They do so whether they were made for empty tables, before the server counted the rows, or after.
//!
//! The statements are the store's own. `auto_explain` writes their plans into the log of a private server, including
//! those inside the functions, with the rows that they actually read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::id::{EventType, OpId, Owner, Position, QueueName, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Delta, Direction, EventFilter, Expect, Grant, LogQuery, NewEvent, NewWork, Page, Pattern,
    Store as _, StreamQuery, Sweep, Swept, WorkFilter,
};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{self, Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore};

/// A server whose log only this program reads. It vacuums and analyzes only on request.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let settings = [
            ("log_line_prefix", "<%a> "),
            ("autovacuum", "off"),
            ("max_wal_size", "8GB"),
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let durable = false;
        let options = tidelock_pgserver::PgServerOptions {
            durable,
            settings,
            ..tidelock_pgserver::PgServerOptions::default()
        };
        Server::start(&options).unwrap()
    })
}

async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&server().url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Opens a store whose statements are explained under a name.
async fn open(schema: &str, name: &str) -> PostgresStore {
    let settings = [
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_nested_statements", "on"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_format", "json"),
    ];
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    let settings = settings.join(" ").replace(' ', "%20").replace('=', "%3D");
    let url = format!("{}?schema={schema}&application_name={name}&options={settings}", server().url());
    let options = PostgresOptions { committers: 1, readers: 1, ..common::options() };
    PostgresStore::open(&url, options).await.unwrap()
}

/// One statement as the server executed it.
#[derive(Debug)]
struct Plan {
    /// The function that contains it, if any.
    function: String,
    query: String,
    nodes: Vec<Node>,
}

/// One step of a plan.
#[derive(Clone, Debug)]
struct Node {
    kind: String,
    /// The table that it reads.
    table: Option<String>,
    index: Option<String>,
    /// The number of rows it read, returned or not.
    rows: f64,
}

/// A fault of a plan.
#[derive(Clone, Debug)]
struct Fault {
    /// When the plan was made.
    phase: &'static str,
    /// The operation.
    doing: String,
    /// The number of occurrences.
    times: u32,
    /// The fault and its statement.
    said: String,
}

const TABLES: [&str; 5] = ["streams", "events", "documents", "work", "receipts"];

impl Plan {
    /// Parses an entry of the log. `None` when the entry is still incomplete.
    fn read(entry: &str, context: &str, schema: &str) -> Option<Self> {
        let all: Value = serde_json::from_str(entry).ok()?;
        let mut nodes = Vec::new();
        collect(all.get("Plan").unwrap(), &mut nodes);
        let prefix = format!("function {schema}.");
        let function =
            context.split(&prefix).nth(1).and_then(|rest| rest.split('(').next()).unwrap_or_default();
        let query = all.get("Query Text").and_then(Value::as_str).unwrap();
        let query = query.split_whitespace().collect::<Vec<_>>().join(" ").replace(&format!("{schema}."), "");
        Some(Self { function: function.to_owned(), query, nodes })
    }

    /// Returns the nodes that read the store's own tables.
    fn scans(&self) -> impl Iterator<Item = &Node> {
        let ours = |node: &&Node| node.table.as_deref().is_some_and(|table| TABLES.contains(&table));
        self.nodes.iter().filter(ours)
    }

    /// Returns the number of rows it read.
    fn rows(&self) -> f64 {
        self.scans().map(|node| node.rows).sum()
    }

    /// Returns the statement without its values, to distinguish statements.
    fn name(&self) -> String {
        format!("{}: {}", self.function, self.query.chars().take(300).collect::<String>())
    }

    /// Returns its faults: it reads a table without its index, sorts much, or reads more rows than it may.
    fn faults(&self, most: f64) -> Vec<String> {
        let mut faults = Vec::new();
        for node in self.scans().filter(|node| !node.kind.contains("Index") && !node.kind.contains("Bitmap"))
        {
            let writes = node.kind == "ModifyTable" || node.kind == "LockRows";
            if !writes {
                faults.push(format!("{} on {}", node.kind, node.table.as_deref().unwrap_or_default()));
            }
        }
        for node in self.nodes.iter().filter(|node| node.kind.contains("Sort") && node.rows > most) {
            faults.push(format!("{} of {} rows", node.kind, node.rows));
        }
        if self.rows() > most {
            faults.push(format!("{} rows read, {most} are enough", self.rows()));
        }
        faults
    }
}

fn collect(node: &Value, nodes: &mut Vec<Node>) {
    let text = |name: &str| node.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| node.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let seen =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let kind = text("Node Type").unwrap();
    let writes = kind == "ModifyTable";
    let rows = if writes { 0.0 } else { seen * number("Actual Loops") };
    nodes.push(Node { kind, table: text("Relation Name"), index: text("Index Name"), rows });
    for child in node.get("Plans").and_then(Value::as_array).into_iter().flatten() {
        collect(child, nodes);
    }
}

/// The part of the server's log that belongs to one store.
struct Log {
    path: PathBuf,
    schema: String,
    mark: String,
    read_to: u64,
}

impl Log {
    fn new(schema: &str, name: &str) -> Self {
        let path = server().data_directory().with_file_name("log");
        let read_to = std::fs::metadata(&path).unwrap().len();
        Self { path, schema: schema.to_owned(), mark: format!("<{name}> "), read_to }
    }

    /// Returns the plans since the last call. A plan is in the log before its statement returns. Plans of statements
    /// without a waiting caller may be incomplete, and are read the next time.
    fn plans(&mut self) -> Vec<Plan> {
        let mut file = std::fs::File::open(&self.path).unwrap();
        file.seek(SeekFrom::Start(self.read_to)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let mut plans = Vec::new();
        let mut lines = text.lines().peekable();
        let is_more = |line: &&str| line.starts_with('\t');
        while let Some(first) = lines.next() {
            if !(first.starts_with(&self.mark) && first.ends_with("plan:")) {
                continue;
            }
            let mut entry = String::new();
            while let Some(line) = lines.next_if(is_more) {
                entry.push_str(line);
            }
            let mut context = String::new();
            context.extend(lines.next_if(|line| line.contains("CONTEXT:")));
            while let Some(line) = lines.next_if(is_more) {
                context.push_str(line);
            }
            let Some(plan) = Plan::read(&entry, &context, &self.schema) else {
                assert!(lines.peek().is_none(), "an entry of the log does not read: {entry}");
                self.read_to += (first.as_ptr() as usize - text.as_ptr() as usize) as u64;
                return plans;
            };
            plans.push(plan);
        }
        self.read_to += text.len() as u64;
        plans
    }
}

/// A store under observation.
struct Watched {
    store: PostgresStore,
    log: Log,
    phase: &'static str,
    faults: Vec<Fault>,
    /// Every statement that was seen, with the most rows that it ever read.
    seen: BTreeMap<String, f64>,
}

impl Watched {
    async fn open(schema: &str, phase: &'static str) -> Self {
        let log = Log::new(schema, phase);
        let store = open(schema, phase).await;
        Self { store, log, phase, faults: Vec::new(), seen: BTreeMap::new() }
    }

    /// Runs an operation and checks the plans: none may read more than `most` rows.
    async fn with<T>(&mut self, doing: &str, most: f64, done: impl Future<Output = T>) -> T {
        self.log.plans();
        let done = done.await;
        for plan in self.log.plans() {
            let rows = self.seen.entry(plan.name()).or_default();
            *rows = rows.max(plan.rows());
            let faults = plan.faults(most);
            if !faults.is_empty() {
                let kinds: Vec<&str> = plan.nodes.iter().map(|node| node.kind.as_str()).collect();
                let indexes: Vec<&str> = plan.nodes.iter().filter_map(|node| node.index.as_deref()).collect();
                let said = format!("{}: {kinds:?} with {indexes:?} in {}", faults.join(", "), plan.name());
                self.fault(doing, said);
            }
        }
        done
    }

    fn fault(&mut self, doing: &str, said: String) {
        let (phase, doing) = (self.phase, doing.to_owned());
        let same = self.faults.iter_mut().find(|fault| fault.doing == doing && fault.phase == phase);
        match same {
            Some(fault) => {
                // A fault that occurs every time takes too long; the other tests need not wait for it.
                assert!(fault.times < 100, "{fault:#?}");
                (fault.times, fault.said) = (fault.times + 1, said);
            }
            None => self.faults.push(Fault { phase, doing, times: 1, said }),
        }
    }
}

fn key(kind: &str, n: i64) -> Key {
    Key::new(kind, [n]).unwrap()
}

fn long() -> Key {
    Key::single("long").unwrap()
}

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Happened").unwrap(), Payload::of(&1).unwrap())
}

fn queue_name(name: &str) -> QueueName {
    name.parse().unwrap()
}

fn worker() -> Owner {
    "worker".parse().unwrap()
}

const TTL: Duration = Duration::from_secs(3600);
/// The number of rows that a statement may read if it needs one, or a few.
const FEW: f64 = 50.0;
/// The number of repetitions of each operation: from the sixth on, a plan may be generic.
const TIMES: i64 = 8;
const WORK: i64 = 1_000_000;
const STREAMS: i64 = 1_000;
const EVENTS_PER_STREAM: i64 = 100;
const LONG_STREAM: i64 = 100_000;
/// The position of the first event of the long stream.
const LONG_AT: i64 = 1_000_000;
const DOCUMENTS: i64 = 100_000;

/// Writes of every kind, to rows beside the existing ones.
async fn write(watched: &mut Watched, base: i64) {
    let store = watched.store.clone();
    for n in base..base + TIMES {
        let (stream, document, job) = (key("s", n), key("d", n), key("j", n));
        let new = Batch::new().append(&stream, Expect::Absent, [event()]).op_id(OpId::new());
        let new =
            new.put(&document, Expect::Absent, Payload::null()).guard_document(&key("no", n), Expect::Absent);
        let new = new.enqueue(NewWork::once(job.clone(), queue_name("mine")).due(Due::After(TTL)));
        let new = new.guard_stream(&key("no", n), Expect::Absent);
        watched.with("writing a new row of each", FEW, store.apply(new)).await.unwrap();
        let more = Batch::new().append(&stream, Expect::Exact(StreamVersion(0)), [event()]);
        let more = more.put(&document, Expect::Any, Payload::of(&1).unwrap());
        let more = more.enqueue(NewWork::once(job, queue_name("mine")).due(Due::After(TTL)));
        watched.with("writing the same rows again", FEW, store.apply(more)).await.unwrap();
        let old = Batch::new().append(&key("stream", n % STREAMS), Expect::Any, [event()]);
        let old = old.merge_or_create(&key("doc", n), Payload::of(&0).unwrap(), [Delta::inc("", 1)]);
        let old = old.enqueue(NewWork::once(key("job", n), queue_name("many")).due(Due::After(TTL)));
        watched
            .with("writing rows of old", FEW, store.apply(old.delete(&document, Expect::Exists)))
            .await
            .unwrap();
        let old = key("stream", n % STREAMS);
        let head = store.stream(&old).await.unwrap().unwrap().head.unwrap();
        let cut = Batch::new()
            .truncate(&old, StreamVersion(head.0.div_ceil(2)))
            .truncate(&stream, StreamVersion(2));
        watched.with("writing removals", 2.0 * FEW, store.apply(cut)).await.unwrap();
    }
}

async fn finish(watched: &mut Watched, grants: &[Grant]) {
    let store = watched.store.clone();
    for grant in grants {
        let lease = grant.lease();
        watched.with("writing a renewal", FEW, store.apply(Batch::new().renew(&lease, TTL))).await.unwrap();
        let end = Batch::new().advance(&lease, Position(1)).ack(&lease);
        watched.with("writing an acknowledgement", FEW, store.apply(end)).await.unwrap();
    }
}

/// Claims of every kind.
async fn claim(watched: &mut Watched, base: i64) {
    let store = watched.store.clone();
    for n in base..base + TIMES {
        let one = Claim::queues(&worker(), [queue_name("many")], 1, TTL);
        let granted = watched.with("claiming one", FEW, store.claim(one)).await.unwrap();
        finish(watched, &granted.grants).await;
        let queues = ["many", "later", "nothing", "held"].map(queue_name);
        let some = Claim::queues(&worker(), queues, 5, TTL);
        let granted = watched.with("claiming in four queues", 4.0 * FEW, store.claim(some)).await.unwrap();
        finish(watched, &granted.grants).await;
        let later = Claim::queues(&worker(), ["later", "held"].map(queue_name), 9, TTL);
        let nothing = watched.with("claiming nothing", FEW, store.claim(later)).await.unwrap();
        assert!(nothing.grants.is_empty(), "{nothing:?}");
        let named = Claim::named(&worker(), &key("lock", n), &queue_name("locks"), TTL);
        watched.with("claiming a lock", FEW, store.claim(named)).await.unwrap();
        // A run that follows its stream, from the beginning, from the middle and from near the end.
        for part in [-1, 0, 50_000, 99_990] {
            let name = key("replay", n * 1_000_000 + part);
            let (follow, position) = (Some(long()), Some(Position(u64::try_from(LONG_AT + part).unwrap())));
            let run = NewWork { follow, position, ..NewWork::standing(name.clone(), queue_name("runs")) };
            store.apply(Batch::new().enqueue(run)).await.unwrap();
            let following = Claim::existing(&worker(), &name, TTL).with_events(10);
            watched.with("following a long stream", FEW, store.claim(following)).await.unwrap();
        }
        for part in [0, 50, 99] {
            let name = key("run", n * 100 + part);
            let follow = Some(key("stream", n % STREAMS));
            let position = Some(Position(u64::try_from((n % STREAMS) * EVENTS_PER_STREAM + part).unwrap()));
            let run = NewWork { follow, position, ..NewWork::standing(name.clone(), queue_name("runs")) };
            store.apply(Batch::new().enqueue(run)).await.unwrap();
            let following = Claim::existing(&worker(), &name, TTL).with_events(10);
            let most = FEW + EVENTS_PER_STREAM as f64;
            watched.with("claiming a run with its events", most, store.claim(following)).await.unwrap();
        }
    }
}

/// Reads of every kind.
async fn read(watched: &mut Watched) {
    let store = watched.store.clone();
    for n in 0..TIMES {
        let page = || Page::after(&key("doc", n * 1_000), 10);
        watched.with("reading a document", FEW, store.document(&key("doc", n))).await.unwrap();
        watched
            .with("reading documents", FEW, store.documents(&KeyPrefix::kind("doc"), page()))
            .await
            .unwrap();
        let one = KeyPrefix::under("doc", &[n.into()]);
        watched
            .with("reading documents of a small range", FEW, store.documents(&one, Page::first(10)))
            .await
            .unwrap();
        watched.with("reading a stream", FEW, store.stream(&key("stream", n))).await.unwrap();
        let one = KeyPrefix::under("stream", &[n.into()]);
        watched
            .with("reading streams of a small range", FEW, store.streams(&one, Page::first(10)))
            .await
            .unwrap();
        watched.with("reading streams", FEW, store.streams(&KeyPrefix::all(), page())).await.unwrap();
        let stream = if n % 2 == 0 { key("stream", n) } else { long() };
        let forward = StreamQuery::forward(&stream, 10).from(StreamVersion(50));
        watched.with("reading events of a stream", FEW, store.read_stream(forward)).await.unwrap();
        let backward = StreamQuery::backward(&stream, 10);
        watched.with("reading the last events of a stream", FEW, store.read_stream(backward)).await.unwrap();
        let after = LogQuery::after(Position(u64::try_from(n).unwrap()), 10);
        watched.with("reading the log", FEW, store.read_log(after)).await.unwrap();
        let end = LogQuery { direction: Direction::Backward, ..LogQuery::all(10) };
        watched.with("reading the end of the log", FEW, store.read_log(end)).await.unwrap();
        let filter = EventFilter { correlation: Some(format!("c-{n}")), ..EventFilter::default() };
        let talk = LogQuery { filter, ..LogQuery::all(10) };
        watched.with("reading a conversation", FEW, store.read_log(talk)).await.unwrap();
        watched.with("reading an operation", FEW, store.operation(OpId::new())).await.unwrap();
    }
}

/// The queries of operators about work.
async fn operate(watched: &mut Watched) {
    let store = watched.store.clone();
    for n in 0..TIMES {
        watched.with("operating: a work row", FEW, store.work(&key("job", n))).await.unwrap();
        let all = WorkFilter::default();
        let page = || Page::after(&key("job", n * 1_000), 10);
        watched.with("operating: work", FEW, store.works(&all, page())).await.unwrap();
        let blocked = WorkFilter { blocked: Some(true), ..WorkFilter::default() };
        watched.with("operating: blocked work", 200.0, store.works(&blocked, Page::first(10))).await.unwrap();
        watched
            .with("operating: the number of blocked rows", 200.0, store.count_work(&blocked))
            .await
            .unwrap();
        let pattern = Some(Pattern::new(&format!("^run#B1{n}$")).unwrap());
        let named = WorkFilter { pattern, ..WorkFilter::default() };
        watched
            .with("operating: work by its beginning", FEW, store.works(&named, Page::first(10)))
            .await
            .unwrap();
        watched.with("d11: a count by its beginning", FEW, store.count_work(&named)).await.unwrap();
    }
}

/// D11: filtered lists and counts, lists beside deleted documents, and sweeps with nothing to do.
async fn housekeep(watched: &mut Watched) {
    let store = watched.store.clone();
    let leased = WorkFilter { leased: Some(true), ..WorkFilter::default() };
    let few = WorkFilter { queue: Some(queue_name("mine")), ..WorkFilter::default() };
    let free = WorkFilter { blocked: Some(false), leased: Some(false), ..few.clone() };
    let rare = WorkFilter { queue: Some(queue_name("many")), blocked: Some(true), ..WorkFilter::default() };
    let far = WorkFilter { queue: Some(queue_name("many")), ..WorkFilter::default() };
    for n in 0..TIMES {
        watched.with("d11: leased work", FEW, store.works(&leased, Page::first(10))).await.unwrap();
        watched.with("d11: a small queue", FEW, store.works(&few, Page::first(10))).await.unwrap();
        watched.with("d11: a count of a small queue", 200.0, store.count_work(&few)).await.unwrap();
        watched
            .with("d11: free rows of a small queue", FEW, store.works(&free, Page::first(10)))
            .await
            .unwrap();
        watched
            .with("d11: blocked rows of a queue", 200.0, store.works(&rare, Page::first(10)))
            .await
            .unwrap();
        watched.with("d11: a count of those", 200.0, store.count_work(&rare)).await.unwrap();
        let page = Page::after(&key("job", 700_000 + n * 1_000), 10);
        watched.with("d11: a page far down a queue", FEW, store.works(&far, page)).await.unwrap();
        let graves = KeyPrefix::kind("grave");
        watched
            .with("d11: a list beside deleted documents", FEW, store.documents(&graves, Page::first(10)))
            .await
            .unwrap();
        let before = Some(Timestamp::from_micros(1));
        let sweep = Sweep { tombstones_before: before, operations_before: before, limit: 10 };
        let swept = watched.with("d11: a sweep with nothing to do", FEW, store.sweep(sweep)).await.unwrap();
        assert_eq!(swept, Swept::default());
    }
}

/// A million rows of work, most of them due at once, and events, streams and documents.
async fn fill(client: &Client, schema: &str) {
    let now = "(extract(epoch FROM now()) * 1000000)::bigint";
    let int = |of: &str| format!("{schema}.arg({of})");
    let sql = format!(
        "SET synchronous_commit = off; SET maintenance_work_mem = '256MB';
        DELETE FROM {schema}.work WHERE key LIKE 'job#%';
        INSERT INTO {schema}.work (key, seq, revision, queue, priority, recurring, ready_at, due_at, payload, attempts,
                takeovers, enqueued_at, lease_owner, lease_fence, leased_at, lease_expires_at, blocked_reason,
                blocked_at)
            SELECT 'job#' || chr(64 + length(n::text)) || n, n, 0,
                CASE WHEN n % 10 < 8 THEN 'many' WHEN n % 10 = 8 THEN 'later' ELSE 'held' END, n % 10, false,
                CASE WHEN n % 10000 = 0 THEN NULL WHEN n % 10 < 8 THEN {now} - 1000000000 + n
                    ELSE {now} + 3600000000 + n END,
                {now} - 1000000000 + n + CASE n % 10 WHEN 8 THEN 4600000000 ELSE 0 END, 'null', 0, 0, {now},
                CASE n % 10 WHEN 9 THEN 'worker' END, CASE n % 10 WHEN 9 THEN 0 END,
                CASE n % 10 WHEN 9 THEN {now} END, CASE n % 10 WHEN 9 THEN {now} + 3600000000 + n END,
                CASE n % 10000 WHEN 0 THEN 'no' END, CASE n % 10000 WHEN 0 THEN {now} END
            FROM generate_series(1, {WORK}) n;
        SELECT setval('{schema}.work_seqs', {WORK} + 1000);
        INSERT INTO {schema}.streams (key, head) SELECT 'stream' || {}, {EVENTS_PER_STREAM} - 1
            FROM generate_series(0, {STREAMS} - 1) n ON CONFLICT (key) DO UPDATE SET head = {EVENTS_PER_STREAM} - 1;
        DELETE FROM {schema}.events WHERE stream LIKE 'stream#%';
        INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, bytes, correlation)
            SELECT 1000 + n, 'stream' || {}, n / {STREAMS}, gen_random_uuid(), 'Happened', {now}, '1', 5,
                CASE n % 10 WHEN 0 THEN 'c-' || n / 20 END
            FROM generate_series(0, {STREAMS} * {EVENTS_PER_STREAM} - 1) n;
        INSERT INTO {schema}.streams (key, head) VALUES ('long', {LONG_STREAM} - 1);
        INSERT INTO {schema}.events (position, stream, version, id, type, recorded_at, payload, bytes)
            SELECT {LONG_AT} + n, 'long', n, gen_random_uuid(), 'Happened', {now}, '1', 5
            FROM generate_series(0, {LONG_STREAM} - 1) n;
        SELECT setval('{schema}.positions', 2000000);
        INSERT INTO {schema}.documents (key, version, value, updated_at, bytes)
            SELECT 'doc' || {}, 1, '1', {now}, 1 FROM generate_series(10000, {DOCUMENTS}) n;
        INSERT INTO {schema}.documents (key, version, updated_at, deleted_at, bytes)
            SELECT 'grave' || {}, 1, {now}, {now}, 0 FROM generate_series(1, {DOCUMENTS}) n;
        INSERT INTO {schema}.documents (key, version, value, updated_at, expires_at, bytes)
            SELECT 'lasting' || {}, 1, '1', {now}, {now} + 3600000000, 1 FROM generate_series(1, {DOCUMENTS}) n;
        INSERT INTO {schema}.receipts (op_id, recorded_at, receipt)
            SELECT gen_random_uuid(), {now}, '{{}}' FROM generate_series(1, 50000) n;",
        int("n"),
        int("n % 1000"),
        int("n"),
        int("n"),
        int("n"),
    );
    client.batch_execute(&sql).await.unwrap();
}

async fn all(watched: &mut Watched, base: i64) {
    write(watched, base).await;
    claim(watched, base).await;
    read(watched).await;
    operate(watched).await;
    housekeep(watched).await;
}

/// The findings, shared by all tests: filling the tables takes a while.
struct Found {
    faults: Vec<Fault>,
    seen: BTreeMap<String, f64>,
}

async fn query_plans() -> Found {
    let schema = common::fresh_schema();
    let mut early = Watched::open(&schema, "early").await;
    let client = connect().await;
    for table in TABLES {
        // Filling them is faster without a WAL, and the plans are the same.
        client.batch_execute(&format!("ALTER TABLE {schema}.{table} SET UNLOGGED")).await.unwrap();
    }
    all(&mut early, 0).await;
    early.faults.clear();
    fill(&client, &schema).await;
    // The plans that were made when the tables were empty, on the same connections.
    all(&mut early, 100).await;
    let mut fresh = Watched::open(&schema, "fresh").await;
    all(&mut fresh, 200).await;
    client.batch_execute("ANALYZE").await.unwrap();
    early.phase = "early, counted";
    all(&mut early, 300).await;
    let mut counted = Watched::open(&schema, "counted").await;
    all(&mut counted, 400).await;
    let faults = [early.faults, fresh.faults, counted.faults].concat();
    Found { faults, seen: early.seen }
}

fn found() -> &'static Found {
    static FOUND: LazyLock<Found> = LazyLock::new(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        std::thread::spawn(move || runtime.block_on(query_plans())).join().unwrap()
    });
    &FOUND
}

#[track_caller]
fn none(what: &str) {
    let faults: Vec<&Fault> = found().faults.iter().filter(|fault| fault.doing.starts_with(what)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn writes_seek_and_never_scan() {
    none("writing");
}

#[test]
fn claims_seek_and_never_scan() {
    none("claiming");
}

#[test]
fn a_run_that_is_far_behind_pays_for_what_it_gets() {
    none("following");
}

#[test]
fn reads_seek_and_never_scan() {
    none("reading");
}

#[test]
fn operator_queries_seek_and_never_scan() {
    none("operating");
}

#[test]
fn d11_filtered_lists_counts_and_sweeps_read_what_matches() {
    none("d11");
}

/// The other tests prove nothing about statements that were never seen.
#[test]
fn the_plans_are_those_of_every_statement() {
    let seen = &found().seen;
    let functions = [
        "write_streams",
        "write_documents",
        "write_work",
        "truncate_streams",
        "lock_streams",
        "lock_documents",
        "lock_work",
        "candidates",
        "lock_candidates",
        "used_levels",
        "next_ready",
        "ceiling",
    ];
    for function in functions {
        let inside = seen.keys().filter(|name| name.starts_with(&format!("{function}: "))).count();
        assert!(inside > 0, "{function} was never seen in {seen:#?}");
    }
    for table in TABLES {
        let direct = |name: &&String| name.starts_with(": SELECT") && name.contains(&format!("FROM {table}"));
        assert!(seen.keys().filter(direct).count() > 0, "{table} was never read in {seen:#?}");
    }
    // The plans include the rows that were read.
    let most = seen.iter().filter(|(name, _)| name.starts_with("candidates: ")).map(|(_, rows)| *rows);
    assert!(most.fold(0.0, f64::max) >= 1.0, "{seen:#?}");
}

/// Returns the server's counts for one table: all updates, and those that touched no index.
async fn updates(client: &Client, schema: &str, table: &str) -> (i64, i64) {
    let sql =
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = $2";
    let row = client.query_one(sql, &[&schema, &table]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Waits until the server has counted this number of updates. Returns those that touched no index.
async fn counted(schema: &str, table: &str, updated: i64) -> i64 {
    let client = connect().await;
    let start = Instant::now();
    loop {
        let (all, hot) = updates(&client, schema, table).await;
        if all >= updated {
            assert_eq!(all, updated, "{table}: there are more updates than were asked for");
            return hot;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{table}: {all} of {updated} updates are counted");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn updates_of_what_changes_often_touch_no_index() {
    let schema = common::fresh_schema();
    let url = format!("{}?schema={schema}", server().url());
    let store = PostgresStore::open(&url, common::options()).await.unwrap();
    let (count, stream, document) = (40, key("s", 1), key("d", 1));
    let job = NewWork::standing(key("j", 1), queue_name("queue"));
    let first = Batch::new().append(&stream, Expect::Absent, [event()]).enqueue(job);
    store.apply(first.put(&document, Expect::Absent, Payload::of(&0).unwrap())).await.unwrap();
    let granted = store.claim(Claim::queues(&worker(), [queue_name("queue")], 1, TTL)).await.unwrap();
    let lease = granted.grants.first().unwrap().lease();
    for n in 0..count {
        let batch = Batch::new().append(&stream, Expect::Any, [event()]);
        let batch = batch.put(&document, Expect::Any, Payload::of(&n).unwrap());
        let ttl = TTL + Duration::from_secs(n);
        let row = if n % 2 == 0 { batch.renew(&lease, ttl) } else { batch.advance(&lease, Position(n)) };
        store.apply(row).await.unwrap();
    }
    // The connections report their counts when they end.
    store.close().await;
    let count = i64::try_from(count).unwrap();
    assert_eq!(counted(&schema, "streams", count).await, count, "heads");
    assert_eq!(counted(&schema, "documents", count).await, count, "documents");
    // The claim moved the row in its index; renewals and advances do not.
    assert_eq!(counted(&schema, "work", count + 1).await, count, "work");
}

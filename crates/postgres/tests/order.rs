//! Total order of the log without a lock on it: readers that follow the log miss nothing. They wait only for writers
//! that have drawn positions and have not ended, and continue in a restored copy.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

#[path = "common/child.rs"]
mod child;
mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use child::{Process, say, setting};
use load::{append, check_streams, event, key, sayings, whole_log};
use poll::{in_time, until};
use serde_json::{Value, json};
use tidelock_core::id::{EventType, Position};
use tidelock_core::key::Key;
use tidelock_core::store::{
    Batch, Direction, Event, EventFilter, Expect, LogQuery, Receipt, Store as _, StreamQuery,
};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{Client, NoTls};
use tidelock_postgres::{PostgresStore, tokio_postgres};
use tidelock_tck::rng::Rng;
use tokio::sync::mpsc;

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    SERVER.get_or_init(|| Server::start(&options).expect("a private server starts"))
}

fn address(schema: &str) -> String {
    format!("{}?schema={schema}", server().url())
}

async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url, common::options()).await.unwrap()
}

/// Opens a plain connection, for the caller's own transactions.
async fn client(url: &str) -> Client {
    let url = url.split('?').next().unwrap();
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A writing process with several tasks, some of which commit late or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_in_a_process_of_its_own() {
    let Some(role) = child::role() else { return };
    let (ending, url) = (child::ending(), role["url"].as_str().unwrap().to_owned());
    let (store, writer) = (open(&url).await, role["writer"].as_u64().unwrap());
    let mut tasks = Vec::new();
    for task in 0..7 {
        let (store, ending, url) = (store.clone(), Arc::clone(&ending), url.clone());
        let rng = Rng::new(writer << 8 | task);
        tasks.push(tokio::spawn(async move {
            match task {
                0..4 => write(&store, &ending, writer, rng).await,
                _ => write_in_transactions(&store, &ending, writer, client(&url).await, rng).await,
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Returns one to four events, on streams of the writer or on shared ones.
fn some_events(writer: u64, rng: &mut Rng) -> Batch {
    let streams = [
        key(&format!("own-{writer}-{}", rng.within(0..3))),
        key(&format!("shared-{}", rng.within(0..2))),
        key(&format!("some-{}", rng.within(0..20))),
    ];
    let from = usize::try_from(rng.within(0..3)).unwrap();
    streams[from..].iter().fold(Batch::new(), |batch, stream| {
        let events = (0..rng.within(1..3)).map(|_| event("o1"));
        batch.append(stream, Expect::Any, events)
    })
}

/// Reports one or two events of each append. Other writers may draw positions between two of them, so each has its own.
fn report(receipt: &Receipt) {
    for appended in &receipt.appended {
        let mut places = vec![
            (appended.first_version.0, appended.first_position.0),
            (appended.last_version.0, appended.last_position.0),
        ];
        places.dedup();
        for (version, position) in places {
            say(&json!({ "told": [appended.stream.canonical(), version, position] }));
        }
    }
}

async fn write(store: &PostgresStore, ending: &AtomicBool, writer: u64, mut rng: Rng) {
    while !ending.load(Ordering::SeqCst) {
        report(&store.apply(some_events(writer, &mut rng)).await.unwrap());
    }
}

async fn write_in_transactions(
    store: &PostgresStore,
    ending: &AtomicBool,
    writer: u64,
    mut client: Client,
    mut rng: Rng,
) {
    while !ending.load(Ordering::SeqCst) {
        let batch = some_events(writer, &mut rng);
        let mut transaction = client.transaction().await.unwrap();
        let receipt = store.apply_in(&mut transaction, &batch).await.unwrap();
        // The sleep waits for no condition: other writers draw positions and commit during it.
        tokio::time::sleep(Duration::from_millis(rng.within(0..20))).await;
        if rng.one_in(2) {
            transaction.rollback().await.unwrap();
            for id in batch.event_ids() {
                say(&json!({ "void": id }));
            }
        } else {
            transaction.commit().await.unwrap();
            store.hint();
            report(&receipt);
        }
    }
}

/// The reports of the writers.
#[derive(Default)]
struct Said {
    told: BTreeSet<(String, u64, u64)>,
    void: BTreeSet<String>,
}

async fn listen(mut hearing: mpsc::UnboundedReceiver<Value>) -> Said {
    let mut all = Said::default();
    while let Some(said) = hearing.recv().await {
        if let Some(at) = said["told"].as_array() {
            let (version, position) = (at[1].as_u64().unwrap(), at[2].as_u64().unwrap());
            assert!(all.told.insert((at[0].as_str().unwrap().to_owned(), version, position)), "{at:?}");
        }
        all.void.extend(said["void"].as_str().map(str::to_owned));
    }
    all
}

/// Follows the log in pages of a size, until the writers are done and nothing is left.
async fn follow(store: PostgresStore, page: usize, done: Arc<AtomicBool>) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    let mut after = Position(0);
    loop {
        let last_round = done.load(Ordering::SeqCst);
        let page = store.read_log(LogQuery::after(after, page)).await.unwrap();
        assert!(page.events.iter().all(|event| event.position > after), "an event below the reader");
        assert!(page.events.is_sorted_by(|a, b| a.position < b.position), "positions rise");
        after = page.scanned_to.map_or(after, |to| to.max(after));
        if last_round && page.events.is_empty() {
            return seen;
        }
        seen.extend(page.events);
        tokio::task::yield_now().await;
    }
}

/// Runs four writing processes for a time, and readers that follow the log concurrently.
async fn write_and_follow(time: Duration) {
    let schema = common::fresh_schema();
    let url = address(&schema);
    let store = open(&url).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for page in [3, 500] {
        readers.push(tokio::spawn(follow(open(&url).await, page, Arc::clone(&done))));
    }
    let (heard, hearing) = mpsc::unbounded_channel();
    let listening = tokio::spawn(listen(hearing));
    let start = |writer: u64| {
        let role = json!({ "url": url, "writer": writer });
        Process::start("a_writer_in_a_process_of_its_own", &role, heard.clone())
    };
    let mut writers: Vec<Process> = (0..4).map(start).collect();
    drop(heard);
    tokio::time::sleep(time).await;
    writers.iter_mut().for_each(Process::tell_to_end);
    for writer in writers {
        writer.end().await;
    }
    done.store(true, Ordering::SeqCst);
    let said = listening.await.unwrap();
    let log = whole_log(&store).await;
    for reader in readers {
        let seen = in_time("a reader comes to the end", reader).await.unwrap();
        assert_eq!(seen.len(), log.len(), "a reader saw another number of events than there are");
        assert!(seen == log, "a reader saw other events, or in another order");
    }
    check_streams(&log);
    let read: BTreeSet<(String, u64, u64)> = log
        .iter()
        .map(|event| (event.stream.canonical().to_owned(), event.version.0, event.position.0))
        .collect();
    assert!(read == said.told, "what the commits returned is not what is read");
    assert!(!log.iter().any(|event| said.void.contains(&event.id.to_string())), "rolled back and read");
    let holes = log.last().map_or(0, |event| event.position.0) - log.len() as u64;
    assert!(holes > 0 && !said.void.is_empty(), "nothing was rolled back");
    assert_eq!(store.stalls().await.unwrap(), []);
    eprintln!(
        "{time:?}, 4 processes: {} events, {} rolled back, {holes} holes; each reader saw every event once",
        log.len(),
        said.void.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o1_readers_beside_four_processes_miss_nothing() {
    write_and_follow(Duration::from_secs(3)).await;
}

/// `TIDELOCK_SOAK_MINUTES` makes it longer than 20 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 20 s and more"]
async fn o1_soak_readers_beside_four_processes_miss_nothing() {
    let minutes = setting("TIDELOCK_SOAK_MINUTES", 0);
    let seconds = if minutes == 0 { setting("TIDELOCK_SOAK_SECONDS", 20) } else { minutes * 60 };
    write_and_follow(Duration::from_secs(seconds)).await;
}

/// Returns the last position that any writer has drawn.
async fn last_drawn(client: &Client, schema: &str) -> i64 {
    let sql = format!("SELECT pg_sequence_last_value('{schema}.positions')");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Waits until a session waits for a lock of this kind.
async fn a_session_waits(client: &Client, schema: &str, kind: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = $1
            AND (classid = '{schema}.positions'::regclass OR relation = '{schema}.events'::regclass)"
    );
    until("a session waits", async || client.query_one(&sql, &[&kind]).await.unwrap().get::<_, i64>(0) > 0)
        .await;
}

/// Otherwise a reader could pass a position that an unknown writer had drawn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o1_no_position_is_drawn_before_its_advertisement() {
    let schema = common::fresh_schema();
    let url = address(&schema);
    let (store, other) = (open(&url).await, client(&url).await);
    store.apply(append(&key("s"), "first")).await.unwrap();
    let last = last_drawn(&other, &schema).await;
    let telling = format!("pg_advisory_lock('{schema}.positions'::regclass::oid::int, {last}::int)");
    other.batch_execute(&format!("SELECT {telling}")).await.unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move { writer.apply(append(&key("s"), "second")).await });
    a_session_waits(&other, &schema, "advisory").await;
    assert_eq!(last_drawn(&other, &schema).await, last, "a position was drawn without an advertisement");
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    let receipt = in_time("the writer continues", writing).await.unwrap().unwrap();
    assert_eq!(receipt.last_position().map(|position| position.0), u64::try_from(last + 1).ok());
}

/// Otherwise the reader misses a writer in between, whose events lie below the position that was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o1_readers_look_for_writers_after_they_looked_for_events() {
    let schema = common::fresh_schema();
    let url = address(&schema);
    let store = open(&url).await;
    store.apply(append(&key("s"), "first")).await.unwrap();
    let (late, quick, admin) = (client(&url).await, client(&url).await, client(&url).await);
    // The reader is stopped where it reads events.
    quick.batch_execute(&format!("BEGIN; LOCK TABLE {schema}.events")).await.unwrap();
    let reader = store.clone();
    let reading = tokio::spawn(async move { log(&reader).await });
    a_session_waits(&admin, &schema, "relation").await;
    // One writer draws a position. Another one draws the next, and is the first to commit.
    late.batch_execute(&format!("BEGIN; SELECT {schema}.draw_positions(1)")).await.unwrap();
    let append = format!("SELECT {schema}.append({schema}.key('q'), 'Said', '\"quick\"')");
    quick.batch_execute(&format!("{append}; COMMIT")).await.unwrap();
    assert_eq!(in_time("the reader continues", reading).await.unwrap(), ["first"]);
    late.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(log(&store).await, ["first", "quick"]);
}

/// Returns the texts of the events of the log.
async fn log(store: &PostgresStore) -> Vec<String> {
    whole_log(store).await.iter().map(|event| event.payload.parse().unwrap()).collect()
}

async fn process_id(client: &Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o2_readers_stop_where_a_stalled_writer_began_and_resume_when_it_ends() {
    for commits in [true, false] {
        let url = address(&common::fresh_schema());
        let (store, other) = (open(&url).await, open(&url).await);
        let before = store.apply(append(&key("s"), "before")).await.unwrap().last_position().unwrap();
        let mut client = client(&url).await;
        client.batch_execute("SET application_name = 'the slow one'").await.unwrap();
        let pid = process_id(&client).await;
        let mut stalled = client.transaction().await.unwrap();
        store.apply_in(&mut stalled, &append(&key("slow"), "slow")).await.unwrap();
        store.apply(append(&key("s"), "later")).await.unwrap();
        other.apply(append(&key("t"), "later still")).await.unwrap();
        for store in [&store, &other] {
            assert_eq!(log(store).await, ["before"]);
            // A single stream is always in order.
            assert_eq!(sayings(store, &key("s")).await, ["before", "later"]);
            let stalls = store.stalls().await.unwrap();
            let [stall] = stalls.as_slice() else { panic!("{stalls:?}") };
            assert_eq!((stall.pid, stall.application.as_str(), stall.floor), (pid, "the slow one", before));
            assert_eq!(stall.state, "idle in transaction");
            assert!(stall.since > Duration::ZERO);
        }
        never_beyond(&store, before).await;
        if commits {
            stalled.commit().await.unwrap();
            assert_eq!(log(&other).await, ["before", "slow", "later", "later still"]);
        } else {
            stalled.rollback().await.unwrap();
            assert_eq!(log(&other).await, ["before", "later", "later still"]);
        }
        assert_eq!(store.stalls().await.unwrap(), []);
        check_streams(&whole_log(&store).await);
    }
}

/// Checks that no way of reading the log leads beyond the position, or reports that it did.
async fn never_beyond(store: &PostgresStore, floor: Position) {
    let said = EventFilter { types: vec![EventType::new("Said").unwrap()], ..EventFilter::default() };
    let other = EventFilter { types: vec![EventType::new("Other").unwrap()], ..EventFilter::default() };
    for filter in [EventFilter::default(), said, other] {
        for direction in [Direction::Forward, Direction::Backward] {
            let query = LogQuery { after: None, direction, limit: 10, filter: filter.clone() };
            let page = store.read_log(query).await.unwrap();
            assert!(page.events.iter().all(|event| event.position <= floor), "{filter:?} {direction:?}");
            assert!(page.scanned_to <= Some(floor), "{filter:?} {direction:?}: {:?}", page.scanned_to);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o2_of_several_stalled_writers_the_first_counts() {
    let url = address(&common::fresh_schema());
    let store = open(&url).await;
    let (mut one, mut two) = (client(&url).await, client(&url).await);
    let pids = [process_id(&one).await, process_id(&two).await];
    let mut first = one.transaction().await.unwrap();
    store.apply_in(&mut first, &append(&key("a"), "first")).await.unwrap();
    store.apply(append(&key("s"), "between")).await.unwrap();
    let mut second = two.transaction().await.unwrap();
    store.apply_in(&mut second, &append(&key("b"), "second")).await.unwrap();
    store.apply(append(&key("s"), "after")).await.unwrap();
    assert_eq!(log(&store).await, [""; 0]);
    let stalls = store.stalls().await.unwrap();
    assert_eq!(stalls.iter().map(|stall| stall.pid).collect::<Vec<_>>(), pids, "the oldest comes first");
    // A part of a transaction that was rolled back to a savepoint does not count; the rest does.
    let mut savepoint = second.savepoint("s").await.unwrap();
    store.apply_in(&mut savepoint, &append(&key("c"), "taken back")).await.unwrap();
    savepoint.rollback().await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(log(&store).await, ["first", "between"]);
    second.commit().await.unwrap();
    assert_eq!(log(&store).await, ["first", "between", "second", "after"]);
    check_streams(&whole_log(&store).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o3_transactions_without_appends_delay_no_reader() {
    let (url, elsewhere) = (address(&common::fresh_schema()), address(&common::fresh_schema()));
    let (store, other) = (open(&url).await, open(&url).await);
    store.apply(append(&key("guarded"), "first")).await.unwrap();
    let database = common::fresh_schema();
    client(&url).await.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
    // Each has an id and a snapshot, and keeps them until the end.
    let (here, there) = (client(&url).await, client(&server().url_of(&database)).await);
    for client in [&here, &there] {
        client.batch_execute("CREATE TABLE busy (n int)").await.unwrap();
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        client.batch_execute("INSERT INTO busy SELECT count(*) FROM pg_class").await.unwrap();
    }
    // One writes documents only, and one has drawn positions in another schema.
    let (mut documents, mut stranger) = (client(&url).await, client(&url).await);
    let mut documents = documents.transaction().await.unwrap();
    let guarded = Batch::new()
        .put(&key("d"), Expect::Absent, tidelock_core::payload::Payload::null())
        .guard_stream(&key("guarded"), Expect::Exists);
    store.apply_in(&mut documents, &guarded).await.unwrap();
    let mut stranger = stranger.transaction().await.unwrap();
    open(&elsewhere).await.apply_in(&mut stranger, &append(&key("s"), "elsewhere")).await.unwrap();
    for n in 0..50_usize {
        store.apply(append(&key("s"), &n.to_string())).await.unwrap();
        assert_eq!(log(&other).await.len(), n + 2, "the reader waits for a transaction");
        assert_eq!(other.stalls().await.unwrap(), []);
    }
    for client in [&here, &there] {
        client.batch_execute("COMMIT; DROP TABLE busy").await.unwrap();
    }
    documents.commit().await.unwrap();
    stranger.rollback().await.unwrap();
    check_streams(&whole_log(&store).await);
}

/// Copies a schema into a separate database. Returns the address there.
fn copy(schema: &str) -> String {
    let database = common::fresh_schema();
    let mut create = server().command("createdb");
    assert!(create.arg(&database).status().unwrap().success());
    let mut dump = server().command("pg_dump");
    let dump = dump.args(["--dbname=tidelock", "--schema", schema]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut restore = server().command("psql");
    restore.args(["-X", "-q", "--set=ON_ERROR_STOP=1", "-d", &database]);
    let mut restore = restore.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    restore.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    assert!(restore.wait().unwrap().success());
    format!("{}?schema={schema}", server().url_of(&database))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_resumes_in_a_restored_copy_where_it_stopped() {
    let schema = common::fresh_schema();
    let url = address(&schema);
    let store = open(&url).await;
    let mut client = client(&url).await;
    // Positions with gaps, and a subscriber that has come half way.
    let mut seen = Vec::new();
    for n in 0..40_u64 {
        let mut transaction = client.transaction().await.unwrap();
        store.apply_in(&mut transaction, &append(&key("void"), "void")).await.unwrap();
        transaction.rollback().await.unwrap();
        store.apply(append(&key(&format!("s-{}", n % 3)), &n.to_string())).await.unwrap();
        if n == 20 {
            seen = whole_log(&store).await;
        }
    }
    // A transaction is open while the copy is made: it belongs to the original.
    let mut stalled = client.transaction().await.unwrap();
    store.apply_in(&mut stalled, &append(&key("s-0"), "only in the original")).await.unwrap();
    let copied = tokio::task::spawn_blocking(move || copy(&schema)).await.unwrap();
    let restored = open(&copied).await;
    let original = whole_log(&store).await;
    follow_on(&restored, &mut seen).await;
    assert!(seen == original, "the subscriber saw other events in the copy");
    let highest = original.last().unwrap().position;
    for n in 0..5 {
        let receipt = restored.apply(append(&key("s-0"), &format!("new {n}"))).await.unwrap();
        assert!(receipt.last_position() > Some(highest));
        follow_on(&restored, &mut seen).await;
        assert_eq!(seen.len(), original.len() + 1 + n);
    }
    stalled.commit().await.unwrap();
    assert_eq!(whole_log(&store).await.len(), original.len() + 1);
    check_streams(&seen);
    let history = restored.read_stream(StreamQuery::forward(&key("s-0"), 100)).await.unwrap();
    assert!(history.events.len() > 5 && check_one(&history.events, &key("s-0")));
}

/// Reads the events that a subscriber has not seen yet.
async fn follow_on(store: &PostgresStore, seen: &mut Vec<Event>) {
    loop {
        let after = seen.last().map_or(Position(0), |event| event.position);
        let page = store.read_log(LogQuery::after(after, 7)).await.unwrap();
        assert!(page.events.iter().all(|event| event.position > after));
        if page.events.is_empty() {
            return;
        }
        seen.extend(page.events);
    }
}

fn check_one(events: &[Event], stream: &Key) -> bool {
    check_streams(events);
    events.iter().all(|event| event.stream == *stream)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_made_under_load_has_no_holes() {
    let schema = common::fresh_schema();
    let store = open(&address(&schema)).await;
    let load = load::Load::start(&store, 4);
    load.progress(50).await;
    let mut seen = whole_log(&store).await;
    let copied = tokio::task::spawn_blocking(move || copy(&schema)).await.unwrap();
    load.progress(10).await;
    let tally = load.end().await;
    load::check(&store, &tally).await;
    let restored = open(&copied).await;
    follow_on(&restored, &mut seen).await;
    assert!(seen == whole_log(&restored).await, "the subscriber saw other events than there are");
    check_streams(&seen);
    let receipt = restored.apply(append(&key("shared"), "new")).await.unwrap();
    assert!(receipt.last_position() > seen.last().map(|event| event.position));
}

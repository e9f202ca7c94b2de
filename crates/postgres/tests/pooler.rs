//! A pooler in transaction mode between the store and the server: no statement outlives its transaction, nobody listens.
//!
//! The tests with a real PgBouncer are passed over, with a line that says so, where there is none.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it passes over"
)]

mod common;
#[path = "common/everything.rs"]
mod everything;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use common::Postgres;
use everything::do_everything;
use tidelock_core::clock::{Clock, ManualClock};
use tidelock_core::id::EventType;
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{Batch, Delta, Expect, LogQuery, NewEvent, Store, StreamQuery};
use tidelock_postgres::tokio_postgres::config::Host;
use tidelock_postgres::tokio_postgres::{self, Client, Config, NoTls};
use tidelock_postgres::{Options, PostgresStore};
use tidelock_tck::{Backend, Capabilities, Database};

/// How long a test waits for something that must happen.
const LIMIT: Duration = Duration::from_secs(20);
/// Connections to the server, for all clients together: so few that they change hands all the time.
const CONNECTIONS: u32 = 3;

/// A PgBouncer in front of the server under test. It ends with this process, however that ends: a shell waits for the
/// end of a pipe.
struct Bouncer {
    shell: Child,
    port: u16,
    database: String,
    directory: tempfile::TempDir,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn settings(port: u16, directory: &Path) -> (String, String) {
    let server: Config = common::url().parse().unwrap();
    let Some(Host::Tcp(host)) = server.get_hosts().first() else { panic!("the server has no address") };
    let to = server.get_ports().first().copied().unwrap_or(5432);
    let user = server.get_user().unwrap();
    let password = String::from_utf8(server.get_password().unwrap_or_default().to_vec()).unwrap();
    let password = if password.is_empty() { password } else { format!("password='{password}'") };
    let database = server.get_dbname().unwrap_or(user).to_owned();
    let directory = directory.display();
    let text = format!(
        "[databases]\n{database} = host={host} port={to} dbname={database} user={user} {password}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = {CONNECTIONS}\nmax_client_conn = 500\n\
         pidfile = {directory}/pid\n"
    );
    (text, database)
}

impl Bouncer {
    /// Starts one; `None` when it is not installed.
    fn start() -> Option<Self> {
        Command::new("pgbouncer").arg("--version").stdout(Stdio::null()).status().ok()?;
        // Somebody else may take the port in between.
        let mut said = String::new();
        for _ in 0..5 {
            match Self::launch() {
                Ok(bouncer) => return Some(bouncer),
                Err(log) => said = log,
            }
        }
        panic!("it does not start: {said}");
    }

    fn launch() -> Result<Self, String> {
        let directory = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (text, database) = settings(port, directory.path());
        fs::write(directory.path().join("pgbouncer.ini"), text).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        // It does not run as root.
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
        let user = if root { "-u nobody" } else { "" };
        let run = format!(
            "pgbouncer {user} \"$0/pgbouncer.ini\" 2>\"$0/log\" & read end; kill $!; wait; rm -r \"$0\""
        );
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(run).arg(directory.path()).stdin(Stdio::piped());
        let shell = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let bouncer = Self { shell, port, database, directory };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(bouncer.directory.path().join("log")).unwrap_or_default();
            if log.contains("FATAL") || start.elapsed() > LIMIT {
                return Err(log);
            }
            std::thread::yield_now();
        }
        Ok(bouncer)
    }

    /// A connection of some other program.
    async fn connect(&self) -> Client {
        let url = format!("postgres://me@127.0.0.1:{}/{}", self.port, self.database);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn address(&self, schema: &str, more: &str) -> String {
        format!(
            "postgres://me@127.0.0.1:{}/{}?sslmode=disable&schema={schema}{more}",
            self.port, self.database
        )
    }
}

/// The one of this program, or a line that says that there is none.
fn bouncer() -> Option<&'static Bouncer> {
    static BOUNCER: OnceLock<Option<Bouncer>> = OnceLock::new();
    let found = BOUNCER.get_or_init(Bouncer::start).as_ref();
    if found.is_none() {
        missing();
    }
    found
}

fn missing() {
    eprintln!("passed over: pgbouncer is not installed");
}

fn key() -> Key {
    Key::single("k").unwrap()
}

fn inc() -> Batch {
    let event = NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    let batch = Batch::new().append(&key(), Expect::Any, [event]);
    batch.merge_or_create(&key(), Payload::of(&0).unwrap(), [Delta::inc("", 1)])
}

/// Two stores that write to the same rows at once and then do everything.
async fn two_stores(address: &str, options: Options) {
    let mut writers = Vec::new();
    for _ in 0..2 {
        let store = PostgresStore::open(address, options.clone()).await.unwrap();
        for _ in 0..5 {
            let store = store.clone();
            writers.push(tokio::spawn(async move {
                for _ in 0..10 {
                    store.apply(inc()).await.unwrap();
                    store.document(&key()).await.unwrap().unwrap();
                }
            }));
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for run in ["one", "two", "three"] {
        let store = PostgresStore::open(address, options.clone()).await.unwrap();
        do_everything(&store, run).await.unwrap();
        assert_eq!(store.document(&key()).await.unwrap().unwrap().value, Payload::of(&100).unwrap());
        let events = store.read_stream(StreamQuery::forward(&key(), 999)).await.unwrap().events;
        let versions: Vec<u64> = events.iter().map(|event| event.version.0).collect();
        assert_eq!(versions, (0..100).collect::<Vec<_>>());
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pooler_its_manners_do_no_harm() {
    let options = Options { pooled: true, ..common::options() };
    let backend = Postgres::default();
    two_stores(&common::address(&backend.schema()), options).await;
}

/// Changes of other processes are noticed, though nobody listens.
async fn noticed(address: &str, watcher: Options) {
    let (one, two) = (
        PostgresStore::open(address, watcher.clone()).await.unwrap(),
        PostgresStore::open(address, watcher).await.unwrap(),
    );
    let mut watch = two.watch();
    one.apply(inc()).await.unwrap();
    let start = Instant::now();
    while two.stream(&key()).await.unwrap().is_none() {
        assert!(start.elapsed() < LIMIT, "nothing was noticed");
        assert!(tokio::time::timeout(LIMIT, watch.changed()).await.unwrap());
    }
    // Again and again, not only when a connection is made.
    for _ in 0..3 {
        assert!(tokio::time::timeout(LIMIT, watch.changed()).await.unwrap());
    }
}

#[tokio::test]
async fn changes_are_noticed_without_listening() {
    let backend = Postgres::default();
    let schema = backend.schema();
    let address = format!("{}&application_name=deaf&pooler=transaction", common::address(&schema));
    noticed(&address, common::options()).await;
    let store = PostgresStore::open(&address, common::options()).await.unwrap();
    let listening =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'deaf' AND query LIKE 'LISTEN%'";
    let client = common::client().await;
    assert_eq!(client.query_one(listening, &[]).await.unwrap().get::<_, i64>(0), 0);
    drop(store);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_pgbouncer_everything_works() {
    let Some(bouncer) = bouncer() else { return };
    let backend = Postgres::default();
    let address = bouncer.address(&backend.schema(), "&pooler=transaction");
    two_stores(&address, common::options()).await;
    noticed(&bouncer.address(&backend.schema(), "&pooler=transaction"), common::options()).await;
}

/// What a store says that was not told of the pooler: nothing when it can do all the same.
async fn untold(bouncer: &Bouncer) -> Vec<String> {
    let backend = Postgres::default();
    let address = bouncer.address(&backend.schema(), "");
    let mut said = Vec::new();
    for run in 0..20 {
        let done = match PostgresStore::open(&address, common::options()).await {
            Ok(store) => do_everything(&store, &run.to_string()).await,
            Err(error) => Err(error.to_string()),
        };
        said.extend(done.err());
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_pgbouncer_a_store_that_was_not_told_says_what_to_do() {
    let Some(bouncer) = Bouncer::start() else { return missing() };
    let mut said = untold(&bouncer).await;
    if said.is_empty() {
        return eprintln!("passed over: this PgBouncer follows prepared statements, and needs no telling");
    }
    said.retain(|error| !error.contains("pooler=transaction"));
    assert!(said.is_empty(), "{said:#?}");
}

/// The connections of a pooler are those of other programs, too.
#[tokio::test(flavor = "multi_thread")]
async fn behind_pgbouncer_a_store_that_was_not_told_leaves_no_settings_behind() {
    let Some(bouncer) = Bouncer::start() else { return missing() };
    let settings = "SELECT name || ' = ' || setting FROM pg_settings WHERE source = 'session' \
                    AND name NOT IN ('application_name', 'client_encoding')";
    drop(untold(&bouncer).await);
    // Transactions at the same time have a connection each.
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(bouncer.connect().await);
    }
    let mut transactions = Vec::new();
    for client in &mut clients {
        transactions.push(client.transaction().await.unwrap());
    }
    let mut left = Vec::new();
    for transaction in &transactions {
        let found = transaction.query_typed(settings, &[]).await.unwrap();
        left.extend(found.iter().map(|row| row.get::<_, String>(0)));
    }
    assert!(left.is_empty(), "{left:?}");
}

/// The kit's view of a store behind PgBouncer.
struct Behind(&'static Bouncer, Postgres);

#[async_trait]
impl Backend for Behind {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    async fn fresh(&self, clock: Arc<ManualClock>) -> Box<dyn Database> {
        let address = self.0.address(&self.1.schema(), "&pooler=transaction");
        Box::new(common::Schema::at(address, clock))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: false, durable: true, documents_only: false }
    }

    async fn attach(&self, address: &str, _clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        Arc::new(common::open(address, None).await)
    }
}

#[test]
fn behind_pgbouncer_the_kit_passes() {
    let Some(bouncer) = bouncer() else { return };
    let names = [
        "e1_writers_that_read_the_same_head_have_one_winner",
        "e4_racing_commits_on_two_streams_stay_whole",
        "k1_a_lane_hands_out_each_row_once",
        "k3_a_stale_holder_writes_nothing",
        "o1_a_tailing_reader_misses_nothing",
        "r1_a_grant_brings_the_pending_events",
        "r6_operators_and_workers_race",
        "s7_increments_make_the_sum",
        "t9_racing_repetitions_have_one_effect",
        "t10_racing_repetitions_append_once",
        "t11_every_connection_knows_the_floor",
        "t13_connections_opened_at_once_share_one_database",
        "t13_what_was_acknowledged_survives_a_restart",
        "t14_watch_hears_of_changes",
    ];
    for name in names {
        eprintln!("{name}");
        tidelock_tck::run_case(name, Box::new(Behind(bouncer, Postgres::default())));
    }
}

/// The log keeps its order when a transaction of the caller's goes through the pooler, too.
#[tokio::test(flavor = "multi_thread")]
async fn behind_pgbouncer_own_transactions_hold_readers_back() {
    let Some(bouncer) = bouncer() else { return };
    let backend = Postgres::default();
    let schema = backend.schema();
    let store = common::open(&bouncer.address(&schema, "&pooler=transaction"), None).await;
    let mut mine = bouncer.connect().await;
    let mut tx = mine.transaction().await.unwrap();
    store.apply_in(&mut tx, &inc()).await.unwrap();
    let other = Key::single("other").unwrap();
    let event = NewEvent::new(EventType::new("Happened").unwrap(), Payload::null());
    store.apply(Batch::new().append(&other, Expect::Absent, [event])).await.unwrap();
    assert_eq!(store.read_log(LogQuery::all(9)).await.unwrap().events.len(), 0);
    assert_eq!(store.stalls().await.unwrap().len(), 1);
    tx.commit().await.unwrap();
    assert_eq!(store.read_log(LogQuery::all(9)).await.unwrap().events.len(), 2);
}

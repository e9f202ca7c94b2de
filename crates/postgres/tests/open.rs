//! Opening a schema: its effects, its requirements, and its errors.
//!
//! Roles, databases and settings are changed on servers that only this program uses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/everything.rs"]
mod everything;

use std::net::TcpListener;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::Postgres;
use everything::do_everything;
use tidelock_core::error::Explain as _;
use tidelock_core::id::{EventType, OpId, Owner};
use tidelock_core::key::Key;
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Delta, Durability, Expect, LogQuery, NewEvent, NewWork, Store as _, StoreError,
    StoreErrorKind, StreamQuery,
};
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{self, Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore, migrate};

/// A server that flushes acknowledged commits.
fn durable() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        Server::start(&tidelock_pgserver::PgServerOptions::default()).expect("a server starts")
    })
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A separate database on the durable server, and a superuser's connection to it.
struct Database {
    name: String,
    admin: Client,
}

impl Database {
    async fn create() -> Self {
        let name = common::fresh_schema();
        let admin = connect(&durable().url()).await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { admin: connect(&durable().url_of(&name)).await, name }
    }

    fn url(&self) -> String {
        durable().url_of(&self.name)
    }

    /// Creates a role that may log in, and returns its address.
    async fn role(&self, name: &str) -> String {
        let role = format!("{name}_{}", self.name);
        self.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'word'")).await;
        format!("postgres://{role}:word@127.0.0.1:{}/{}", durable().port(), self.name)
    }

    async fn run(&self, sql: &str) {
        self.admin.batch_execute(sql).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        self.admin.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn full() -> PostgresOptions {
    PostgresOptions { readers: 3, ..PostgresOptions::default() }
}

fn within(patience: Duration) -> PostgresOptions {
    PostgresOptions { patience, ..common::options() }
}

fn without_migrate() -> PostgresOptions {
    PostgresOptions { migrate: false, ..common::options() }
}

/// Checks that opening fails with this kind and names all of these parts.
async fn check(url: &str, options: PostgresOptions, kind: StoreErrorKind, parts: &[&str]) -> StoreError {
    let error = PostgresStore::open(url, options).await.expect_err("the store must not open");
    assert_eq!(error.kind, kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is missing in: {error}");
    }
    error
}

fn key() -> Key {
    Key::single("k").unwrap()
}

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Happened").unwrap(), Payload::null())
}

fn append() -> Batch {
    Batch::new().append(&key(), Expect::Any, [event()])
}

#[tokio::test]
async fn t13_a_fresh_database_gets_the_schema_and_an_old_one_keeps_it() {
    let backend = Postgres::default();
    let address = common::address(&backend.schema());
    let store = PostgresStore::open(&address, common::options()).await.unwrap();
    assert_eq!(store.info().await.unwrap().schema, migrate::newest());
    store.apply(Batch::new().put(&key(), Expect::Absent, Payload::null())).await.unwrap();
    store.close().await;
    for options in [common::options(), without_migrate()] {
        let store = PostgresStore::open(&address, options).await.unwrap();
        assert!(store.document(&key()).await.unwrap().is_some());
    }
}

/// Opens ten stores at once. All of them work, and the migrations were applied once.
async fn ten_at_once(url: &str, schema: &str) -> Client {
    let options = PostgresOptions { schema: schema.to_owned(), ..common::options() };
    let open = |_| {
        let (url, options) = (url.to_owned(), options.clone());
        tokio::spawn(async move { PostgresStore::open(&url, options).await })
    };
    for opened in (0..10).map(open).collect::<Vec<_>>() {
        opened.await.unwrap().unwrap().apply(append()).await.unwrap();
    }
    let client = connect(url).await;
    let count = |table: &str| format!("SELECT count(*) FROM {schema}.{table}");
    let rows: i64 = client.query_one(&count("migrations"), &[]).await.unwrap().get(0);
    let events: i64 = client.query_one(&count("events"), &[]).await.unwrap().get(0);
    assert_eq!((rows, events), (i64::from(migrate::newest()), 10));
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_many_open_the_same_new_schema_at_once() {
    let backend = Postgres::default();
    ten_at_once(&common::url(), &backend.schema()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_many_open_at_once_whatever_the_users_isolation_is() {
    let database = Database::create().await;
    for level in ["repeatable read", "serializable"] {
        database
            .run(&format!("ALTER DATABASE {} SET default_transaction_isolation = '{level}'", database.name))
            .await;
        let client = ten_at_once(&database.url(), &common::fresh_schema()).await;
        let level_in_force: String =
            client.query_one("SHOW transaction_isolation", &[]).await.unwrap().get(0);
        assert_eq!(level_in_force, level);
    }
}

#[tokio::test]
async fn without_migrating_an_old_schema_is_refused_with_advice() {
    let backend = Postgres::default();
    let schema = backend.schema();
    let address = common::address(&schema);
    let client = common::client().await;
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let parts = [schema.as_str(), "nothing of Tidelock", "tidelock migrate up"];
    check(&address, without_migrate(), StoreErrorKind::Migration, &parts).await;
    assert_eq!(client.query_one(schemas, &[&schema]).await.unwrap().get::<_, i64>(0), 0);
    PostgresStore::open(&address, common::options()).await.unwrap().close().await;
    let newest = migrate::newest();
    client.batch_execute(&format!("DELETE FROM {schema}.migrations WHERE version = {newest}")).await.unwrap();
    let parts = [format!("holds version {}", newest - 1), format!("needs version {newest}")];
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    check(&address, without_migrate(), StoreErrorKind::Migration, &parts).await;
}

#[tokio::test]
async fn migrations_can_be_looked_at_before_and_after() {
    let backend = Postgres::default();
    let (url, schema) = (common::url(), backend.schema());
    let before = migrate::status(&url, &schema).await.unwrap();
    assert_eq!((before.installed, before.newest), (None, migrate::newest()));
    assert_eq!(before.migrations.len(), usize::try_from(migrate::newest()).unwrap());
    assert!(before.migrations.iter().all(|m| m.applied_at.is_none() && m.program.is_none()), "{before:?}");
    let client = common::client().await;
    let found: Option<String> =
        client.query_one("SELECT to_regnamespace($1)::text", &[&schema]).await.unwrap().get(0);
    assert_eq!(found, None, "looking changes nothing");
    let after = migrate::up(&url, &schema).await.unwrap();
    assert_eq!(after.installed, Some(migrate::newest()));
    assert!(after.migrations.iter().all(|m| m.applied_at.is_some()), "{after:?}");
    assert!(after.migrations.iter().all(|m| m.program.as_ref().unwrap().starts_with("tidelock ")));
    assert_eq!(migrate::up(&url, &schema).await.unwrap(), after);
    assert_eq!(migrate::status(&url, &schema).await.unwrap(), after);
    PostgresStore::open(&common::address(&schema), without_migrate()).await.unwrap();
}

/// A schema that an operator created by hand equals one that the program created, in one step or in several.
#[tokio::test]
async fn migrations_can_be_applied_by_hand() {
    let (backend, client) = (Postgres::default(), common::client().await);
    let schema = backend.schema();
    client.batch_execute(&migrate::sql(&schema, 0).unwrap()).await.unwrap();
    let store = PostgresStore::open(&common::address(&schema), without_migrate()).await.unwrap();
    do_everything(&store, "by hand").await.unwrap();

    for by_hand in [true, false] {
        let schema = backend.schema();
        let (whole, rest) = (migrate::sql(&schema, 0).unwrap(), migrate::sql(&schema, 1).unwrap());
        let first = whole.strip_suffix(rest.strip_prefix("BEGIN;").unwrap().trim_start()).unwrap();
        client.batch_execute(&format!("{first}COMMIT;")).await.unwrap();
        let status = migrate::status(&common::url(), &schema).await.unwrap();
        assert_eq!(status.installed, Some(1));
        if by_hand {
            client.batch_execute(&rest).await.unwrap();
        }
        let options = if by_hand { without_migrate() } else { common::options() };
        let store = PostgresStore::open(&common::address(&schema), options).await.unwrap();
        store.apply(append()).await.unwrap();
        let append = format!("SELECT version FROM {schema}.append('k', 'Happened')");
        assert_eq!(client.query_one(&append, &[]).await.unwrap().get::<_, i64>(0), 1);
    }
    let nothing = migrate::sql(&schema, migrate::newest()).unwrap();
    assert_eq!(nothing.split_whitespace().collect::<Vec<_>>(), ["BEGIN;", "COMMIT;"]);
}

#[tokio::test]
async fn t13_a_newer_schema_is_refused_with_both_versions_and_left_alone() {
    let backend = Postgres::default();
    let schema = backend.schema();
    let address = common::address(&schema);
    PostgresStore::open(&address, common::options()).await.unwrap().close().await;
    let client = common::client().await;
    let future = format!("INSERT INTO {schema}.migrations VALUES (99, 'future', 0, 'tidelock 9.9.9')");
    client.batch_execute(&future).await.unwrap();
    let upto = format!("up to {}", migrate::newest());
    let parts = ["version 99", "tidelock 9.9.9", upto.as_str(), "upgrade"];
    for options in [common::options(), without_migrate()] {
        check(&address, options, StoreErrorKind::SchemaTooNew, &parts).await;
    }
    for error in [
        migrate::up(&common::url(), &schema).await.unwrap_err(),
        migrate::status(&common::url(), &schema).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, StoreErrorKind::SchemaTooNew);
    }
    let rows = client.query(&format!("SELECT version FROM {schema}.migrations"), &[]).await.unwrap();
    assert_eq!(rows.len(), usize::try_from(migrate::newest()).unwrap() + 1);
}

/// Returns the statements that the guide lists for the store's user.
fn guide() -> impl Iterator<Item = &'static str> {
    let guide = include_str!("../../../docs/how-to/postgresql.md");
    let (_, rest) =
        guide.split_once("To work with `migrate: false`, it needs:").expect("the guide has this sentence");
    let (_, rest) = rest.split_once("```sql\n").expect("the guide has statements");
    rest.split_once("```").expect("they end").0.lines()
}

/// Returns the exact rights of the store's user: each right on each object. Every role has EXECUTE unless it was
/// revoked.
fn grants(schema: &str) -> Vec<(String, String)> {
    let mut grants = vec![(format!("ALL FUNCTIONS IN SCHEMA {schema}"), "EXECUTE".to_owned())];
    for line in guide() {
        let parts = line.strip_prefix("GRANT ").and_then(|line| line.strip_suffix(" TO app;"));
        let (rights, on) = parts.and_then(|parts| parts.split_once(" ON ")).expect(line);
        let sequence = on.strip_prefix("SEQUENCE ");
        for object in sequence.unwrap_or(on).split(", ") {
            let kind = if sequence.is_some() { "SEQUENCE " } else { "" };
            let on = match object {
                "SCHEMA tidelock" => format!("SCHEMA {schema}"),
                object => format!("{kind}{}", object.replace("tidelock.", &format!("{schema}."))),
            };
            grants.extend(rights.split(", ").map(|right| (on.clone(), right.to_owned())));
        }
    }
    grants
}

/// A database whose program has the rights that the guide names. Its sequences lag behind their tables, as after a copy
/// by logical replication.
struct Granted {
    database: Database,
    schema: String,
    role: String,
    url: String,
}

impl Granted {
    async fn create() -> Self {
        let database = Database::create().await;
        let url = database.role("app").await;
        let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
        let schema = common::fresh_schema();
        migrate::up(&database.url(), &schema).await.unwrap();
        let options = PostgresOptions { schema: schema.clone(), ..full() };
        let store = PostgresStore::open(&database.url(), options).await.unwrap();
        let job = NewWork::once(Key::single("copied").unwrap(), "copies".parse().unwrap());
        store.apply(append().enqueue(job)).await.unwrap();
        store.close().await;
        Self { database, schema, role, url }
    }

    /// Opens the store as the program and runs every operation.
    async fn everything(&self, run: &str) -> Result<(), String> {
        for sequence in ["positions", "work_seqs"] {
            self.database.run(&format!("SELECT setval('{}.{sequence}', 0)", self.schema)).await;
        }
        let options = PostgresOptions { schema: self.schema.clone(), migrate: false, ..full() };
        match PostgresStore::open(&self.url, options).await {
            Ok(store) => do_everything(&store, run).await,
            Err(error) => Err(error.to_string()),
        }
    }
}

#[tokio::test]
async fn a_user_needs_the_rights_that_the_guide_names_and_no_others() {
    let granted = Granted::create().await;
    let Granted { database, schema, role, .. } = &granted;
    let denied = granted.everything("denied").await.unwrap_err();
    assert!(denied.contains("permission denied") && denied.contains(schema), "{denied}");
    database.run(&format!("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC")).await;
    let grants = grants(schema);
    for (on, right) in &grants {
        database.run(&format!("GRANT {right} ON {on} TO {role}")).await;
    }
    granted.everything("all").await.unwrap();
    for (n, (on, right)) in grants.iter().enumerate() {
        database.run(&format!("REVOKE {right} ON {on} FROM {role}")).await;
        let error = granted.everything(&n.to_string()).await;
        let error = error.expect_err(&format!("the store works without {right} on {on}"));
        assert!(error.contains("permission denied"), "{right} on {on}: {error}");
        database.run(&format!("GRANT {right} ON {on} TO {role}")).await;
    }
}

/// An operator may create the schema and make the program its owner. The program may create nothing else.
#[tokio::test]
async fn a_user_who_owns_the_schema_can_migrate_it() {
    let database = Database::create().await;
    let url = database.role("owner").await;
    let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
    let missing = PostgresOptions { schema: "not_there".to_owned(), ..full() };
    check(&url, missing, StoreErrorKind::Migration, &["permission denied for database"]).await;
    database.run(&format!("CREATE SCHEMA given AUTHORIZATION {role}")).await;
    let options = PostgresOptions { schema: "given".to_owned(), ..full() };
    let store = PostgresStore::open(&url, options).await.unwrap();
    do_everything(&store, "owner").await.unwrap();
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let server = durable();
    let admin = connect(&server.url()).await;
    let name = common::fresh_schema();
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    admin.batch_execute(&create).await.unwrap();
    check(&server.url_of(&name), full(), StoreErrorKind::CannotOpen, &["LATIN1", "UTF8"]).await;
    let client = connect(&server.url_of(&name)).await;
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tidelock'";
    assert_eq!(client.query_one(schemas, &[]).await.unwrap().get::<_, i64>(0), 0);
    check(&server.url_of("no_such_database"), full(), StoreErrorKind::CannotOpen, &["no_such_database"])
        .await;
}

#[tokio::test]
async fn an_invalid_schema_name_is_rejected_before_any_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("postgres://me:word@127.0.0.1:{}/db", listener.local_addr().unwrap().port());
    let long = "a".repeat(51);
    let names = ["", "Capital", "a\"b", "a'b", "a b", "a;b", "a.b", "1a", "pg_x", "ünï", "a\0", "a-b", &long];
    for name in names {
        let options = PostgresOptions { schema: name.to_owned(), ..common::options() };
        check(&url, options, StoreErrorKind::Invalid, &["not a plain name", "correct the call"]).await;
        assert_eq!(migrate::sql(name, 0).unwrap_err().kind, StoreErrorKind::Invalid, "{name:?}");
        assert_eq!(migrate::up(&url, name).await.unwrap_err().kind, StoreErrorKind::Invalid, "{name:?}");
        assert_eq!(migrate::status(&url, name).await.unwrap_err().kind, StoreErrorKind::Invalid, "{name:?}");
    }
    let named = format!("{url}?schema=pg_temp");
    check(&named, common::options(), StoreErrorKind::Invalid, &["pg_temp"]).await;
    let accepted = listener.accept().unwrap_err();
    assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock, "a client connected");
    // The longest name is valid.
    let address = common::address(&"z".repeat(50));
    let store = PostgresStore::open(&address, common::options()).await.unwrap();
    store.apply(append()).await.unwrap();
    let drop = format!("DROP SCHEMA {} CASCADE", "z".repeat(50));
    common::client().await.batch_execute(&drop).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unreachable_before_patience_ends() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (address.port(), silent)).unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let patience = Duration::from_millis(400);
    for (host, part) in [
        (format!("127.0.0.1:{}", silent.0), "no answer within 400ms"),
        (format!("127.0.0.1:{closed}"), "refused"),
        ("no-such-host.invalid".to_owned(), "no-such-host.invalid"),
    ] {
        let start = Instant::now();
        let url = format!("postgres://me:s3cr3t@{host}/db");
        let parts = [part, "me@", "check that the server runs"];
        let error = check(&url, within(patience), StoreErrorKind::Unreachable, &parts).await;
        assert!(start.elapsed() < patience + Duration::from_secs(3), "{:?}: {error}", start.elapsed());
        assert_eq!(error.code().as_str(), "TL0308");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }
}

#[tokio::test]
async fn the_password_is_nowhere() {
    let database = Database::create().await;
    let secret = "s3cr3t-%20-w0rd";
    let port = durable().port();
    let base = format!("postgres://no_such_user:{secret}@127.0.0.1:{port}");
    let addresses = [
        format!("{base}/{}", database.name),
        format!("{base}/no_such_database"),
        format!("{base}/{}?sslmode=verify-full", database.name),
        format!("{base}/{}?no_such_parameter=1", database.name),
        format!("postgres://a:{secret}@127.0.0.1:{port}x/db"),
        format!("host=127.0.0.1 port={port} user=no_such_user password={secret} dbname=x"),
        format!("host=127.0.0.1 port={port} user=no_such_user password={secret} dbname=x y=1"),
    ];
    let decoded = "s3cr3t- -w0rd";
    for address in addresses {
        let error = PostgresStore::open(&address, within(Duration::from_millis(100))).await.unwrap_err();
        let all = format!("{error} {error:?}");
        assert!(!all.contains(secret) && !all.contains(decoded) && !all.contains("s3cr3t"), "{all}");
    }
    let url = database.role("secretive").await;
    let role = url.split(['/', ':']).nth(3).unwrap();
    database.run(&format!("ALTER ROLE {role} PASSWORD 's3cr3t'; ALTER ROLE {role} SUPERUSER")).await;
    let url = url.replace(":word@", ":s3cr3t@");
    let store = PostgresStore::open(&url, full()).await.unwrap();
    let all = format!("{store:?} {:?}", store.info().await.unwrap());
    assert!(all.contains(role) && !all.contains("s3cr3t"), "{all}");
    // Nor does it appear when a password is wrong.
    let wrong = url.replace("s3cr3t", "wr0ng");
    let error = check(&wrong, full(), StoreErrorKind::CannotOpen, &["password authentication failed"]).await;
    assert!(!format!("{error:?}").contains("wr0ng"));
}

#[tokio::test]
async fn a_server_that_does_not_flush_is_refused_unless_that_is_wanted() {
    let private;
    let url = if std::env::var("DATABASE_URL").is_ok() {
        let options = tidelock_pgserver::PgServerOptions {
            durable: false,
            ..tidelock_pgserver::PgServerOptions::default()
        };
        private = Server::start(&options).unwrap();
        private.url()
    } else {
        common::url()
    };
    let schema = common::fresh_schema();
    let kind = StoreErrorKind::SettingNotInForce;
    let strict = PostgresOptions { schema: schema.clone(), ..full() };
    check(&url, strict, kind, &["fsync = off", "relaxed durability"]).await;
    let relaxed = PostgresOptions { schema, durability: Durability::Relaxed, ..full() };
    let store = PostgresStore::open(&url, relaxed).await.unwrap();
    assert_eq!(store.info().await.unwrap().durability, Durability::Relaxed);
    store.apply(append()).await.unwrap();
}

/// From now on, every write records, inside its transaction, whether its commit waits for the flush.
async fn record_settings(database: &Database) {
    let tables = ["events", "documents", "work", "receipts"].map(|table| {
        format!(
            "CREATE TRIGGER look AFTER INSERT OR UPDATE ON tidelock.{table} EXECUTE FUNCTION public.look();"
        )
    });
    database
        .run(&format!(
            "CREATE TABLE public.seen (what text, setting text, query text); GRANT INSERT ON public.seen TO PUBLIC;
             CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO public.seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'), current_query());
                 RETURN NULL; END $$; {}",
            tables.concat()
        ))
        .await;
}

/// Returns how many writes to a table were recorded with a setting.
async fn recorded(database: &Database, table: &str, setting: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM public.seen WHERE what = '{table}' AND setting = '{setting}'");
    database.number(&sql).await
}

/// Weakens the flush setting of an open store, then writes on new connections.
async fn weakened_after_opening(pooled: bool, weaken: impl Fn(&str, &str) -> String) {
    let database = Database::create().await;
    let url = database.role("awake").await;
    let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
    let name = database.name.clone();
    database.run(&format!("GRANT CREATE ON DATABASE {name} TO {role}")).await;
    let store = PostgresStore::open(&url, PostgresOptions { pooled, ..full() }).await.unwrap();
    store.apply(append()).await.unwrap();
    record_settings(&database).await;
    database.run(&weaken(&role, &name)).await;
    let plain = async || -> String {
        let row = connect(&url).await.query_one("SHOW synchronous_commit", &[]).await.unwrap();
        row.get(0)
    };
    let start = Instant::now();
    while plain().await != "off" {
        assert!(start.elapsed() < Duration::from_secs(30), "the setting is not in force");
    }
    let end =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{role}'");
    assert!(database.number(&end).await > 0);
    // A write whose connection dies may have an unknown outcome; it is repeated under its id.
    for batch in [append().op_id(OpId::new()), Batch::new().op_id(OpId::new()), append().op_id(OpId::new())] {
        while let Err(error) = store.apply(batch.clone()).await {
            assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        }
    }
    for _ in 0..3 {
        store.apply(append()).await.unwrap();
    }
    for table in ["events", "receipts"] {
        assert!(recorded(&database, table, "on").await >= 2, "{table}, pooled: {pooled}");
        assert_eq!(recorded(&database, table, "off").await, 0, "{table}, pooled: {pooled}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_no_setting_of_the_role_or_the_database_after_opening_weakens_a_write() {
    for pooled in [false, true] {
        weakened_after_opening(pooled, |role, _| format!("ALTER ROLE {role} SET synchronous_commit = off"))
            .await;
        weakened_after_opening(pooled, |_, name| {
            format!("ALTER DATABASE {name} SET synchronous_commit = off")
        })
        .await;
    }
}

/// An administrator may require more than a flush; the store keeps that setting.
#[tokio::test(flavor = "multi_thread")]
async fn d5_a_stronger_setting_stays() {
    for pooled in [false, true] {
        let database = Database::create().await;
        database
            .run(&format!("ALTER DATABASE {} SET synchronous_commit = remote_apply", database.name))
            .await;
        let store = PostgresStore::open(&database.url(), PostgresOptions { pooled, ..full() }).await.unwrap();
        record_settings(&database).await;
        for _ in 0..3 {
            store.apply(append().op_id(OpId::new())).await.unwrap();
        }
        assert_eq!(recorded(&database, "events", "remote_apply").await, 3, "pooled: {pooled}");
        assert_eq!(recorded(&database, "receipts", "remote_apply").await, 3, "pooled: {pooled}");
    }
}

/// The catalog of an engine that accepts advisory locks and does not list them.
const LOOK_ALIKE: &str = "SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_locks AS \
    SELECT * FROM pg_lock_status() l WHERE l.locktype <> 'advisory'";

#[tokio::test(flavor = "multi_thread")]
async fn d10_an_engine_that_does_not_show_advisory_locks_is_refused() {
    let database = Database::create().await;
    let store = PostgresStore::open(&database.url(), full()).await.unwrap();
    store.apply(append()).await.unwrap();
    store.close().await;
    database.run(LOOK_ALIKE).await;
    for pooled in [false, true] {
        let (options, kind) = (PostgresOptions { pooled, ..full() }, StoreErrorKind::UnsupportedEngine);
        let error = check(&database.url(), options, kind, &["advisory locks", "pg_locks"]).await;
        assert_eq!(error.code().as_str(), "TL0406");
    }
    // No lock that holds readers back remains.
    let locks = "SELECT count(*) FROM pg_lock_status() l WHERE l.locktype = 'advisory' \
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while database.number(locks).await > 0 {
        // The server ends a connection a moment after its client did.
        tokio::task::yield_now().await;
    }
}

/// Every commit of the store sets whether the server waits for the flush.
#[tokio::test]
async fn commits_are_flushed_whatever_the_user_is_set_to() {
    for (durability, expected) in [(Durability::Full, "on"), (Durability::Relaxed, "off")] {
        let database = Database::create().await;
        let setting = if durability == Durability::Full { "off" } else { "on" };
        let url = database.role("asleep").await;
        let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
        let name = &database.name;
        database.run(&format!("GRANT CREATE ON DATABASE {name} TO {role}")).await;
        database.run(&format!("ALTER DATABASE {name} SET synchronous_commit = {setting}")).await;
        database.run(&format!("ALTER ROLE {role} SET synchronous_commit = {setting}")).await;
        let store = PostgresStore::open(&url, PostgresOptions { durability, ..full() }).await.unwrap();
        assert_eq!(store.info().await.unwrap().durability, durability);
        record_settings(&database).await;
        // The first is decided with its rows locked, later ones on cached rows, alone or with others.
        for _ in 0..4 {
            store.apply(append()).await.unwrap();
            let inc = append().merge_or_create(&key(), Payload::of(&0).unwrap(), [Delta::inc("", 1)]);
            store.apply(inc).await.unwrap();
        }
        do_everything(&store, "flushed").await.unwrap();
        for what in ["events", "documents", "work", "receipts"] {
            assert!(recorded(&database, what, expected).await > 0, "{what}");
        }
        // A lost sweep is repeated: it need not be flushed.
        let other = format!(
            "SELECT count(*) FROM public.seen WHERE setting <> '{expected}' AND query NOT LIKE 'WITH gone%'"
        );
        let rows =
            database.admin.query("SELECT what, setting, count(*) FROM public.seen GROUP BY 1, 2", &[]).await;
        assert_eq!(database.number(&other).await, 0, "{durability:?}: {rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_default_isolation_works() {
    for level in ["repeatable read", "serializable"] {
        let database = Database::create().await;
        let url = database.role("strict").await;
        let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
        database.run(&format!("GRANT CREATE ON DATABASE {} TO {role}", database.name)).await;
        database.run(&format!("ALTER ROLE {role} SET default_transaction_isolation = '{level}'")).await;
        let mut writers = Vec::new();
        for _ in 0..4 {
            let store = PostgresStore::open(&url, full()).await.unwrap();
            writers.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let inc = append().merge_or_create(&key(), Payload::of(&0).unwrap(), [Delta::inc("", 1)]);
                    store.apply(inc).await.unwrap();
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        let store = PostgresStore::open(&url, full()).await.unwrap();
        let events = store.read_stream(StreamQuery::forward(&key(), 999)).await.unwrap().events;
        let versions: Vec<u64> = events.iter().map(|event| event.version.0).collect();
        assert_eq!(versions, (0..100).collect::<Vec<_>>());
        let count = store.document(&key()).await.unwrap().unwrap().value;
        assert_eq!(count, Payload::of(&100).unwrap(), "{level}");
        let log = store.read_log(LogQuery::all(999)).await.unwrap().events;
        assert_eq!(log.len(), 100);
        do_everything(&store, level).await.unwrap();
    }
}

#[tokio::test]
async fn schemas_of_one_database_know_nothing_of_each_other() {
    let backend = Postgres::default();
    let (one, two) = (backend.schema(), backend.schema());
    let first = PostgresStore::open(&common::address(&one), common::options()).await.unwrap();
    let second = PostgresStore::open(&common::address(&two), common::options()).await.unwrap();
    let mut watch = second.watch();
    // The first hint is its own: from now on it listens.
    assert!(tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.unwrap());
    first.apply(append()).await.unwrap();
    assert!(second.stream(&key()).await.unwrap().is_none());
    let mut mine = common::client().await;
    let mut tx = mine.transaction().await.unwrap();
    first.apply_in(&mut tx, &append()).await.unwrap();
    // The first is held back, the second is not.
    for n in 1..=3 {
        second.apply(append()).await.unwrap();
        assert_eq!(second.read_log(LogQuery::all(9)).await.unwrap().events.len(), n);
    }
    assert_eq!(first.read_log(LogQuery::all(9)).await.unwrap().events.len(), 1);
    assert_eq!((first.stalls().await.unwrap().len(), second.stalls().await.unwrap().len()), (1, 0));
    tx.commit().await.unwrap();
    assert_eq!(first.read_log(LogQuery::all(9)).await.unwrap().events.len(), 2);
    // Hints reach only their own schema.
    let watch = second.watch();
    first.hint();
    first.apply(append()).await.unwrap();
    assert!(!watch.has_changed());
}

/// A copy by logical replication brings the tables but not the numbers.
#[tokio::test]
async fn numbers_that_lag_behind_their_tables_are_moved_on() {
    let backend = Postgres::default();
    let schema = backend.schema();
    let address = common::address(&schema);
    let (owner, queue): (Owner, _) = ("worker".parse().unwrap(), "queue".parse().unwrap());
    let ttl = Duration::from_secs(60);
    let claim = |name: &str| Claim::named(&owner, &Key::single(name).unwrap(), &queue, ttl);
    let store = PostgresStore::open(&address, common::options()).await.unwrap();
    let mut position = None;
    for _ in 0..3 {
        position = store.apply(append()).await.unwrap().last_position();
    }
    store.claim(claim("a")).await.unwrap();
    let granted = store.claim(claim("b")).await.unwrap();
    let (fence, seq) = granted.grants.first().map(|grant| (grant.fence, grant.row.seq)).unwrap();
    store.close().await;
    let client = common::client().await;
    for sequence in ["positions", "fences", "work_seqs"] {
        client.batch_execute(&format!("SELECT setval('{schema}.{sequence}', 0)")).await.unwrap();
    }
    let store = PostgresStore::open(&address, common::options()).await.unwrap();
    let next = store.apply(append()).await.unwrap().last_position();
    assert!(next > position, "{next:?} after {position:?}");
    let granted = store.claim(claim("c")).await.unwrap();
    let grant = granted.grants.first().unwrap();
    assert!(grant.fence > fence && grant.row.seq > seq, "{grant:?} after {fence:?} and {seq}");
    store.apply(Batch::new().enqueue(NewWork::once(Key::single("d").unwrap(), queue.clone()))).await.unwrap();
    assert!(store.work(&Key::single("d").unwrap()).await.unwrap().unwrap().seq > grant.row.seq);
}

#[tokio::test]
async fn numbers_without_measure_are_cut_to_size() {
    let options = PostgresOptions {
        patience: Duration::MAX,
        queue: usize::MAX,
        readers: 0,
        committers: 0,
        ..common::options()
    };
    let backend = Postgres::default();
    let address = common::address(&backend.schema());
    let store = PostgresStore::open(&address, options).await.unwrap();
    store.apply(append()).await.unwrap();
    assert!(store.stream(&key()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_closed_store_reports_it_and_leaves_no_connection() {
    let database = Database::create().await;
    let url = format!("{}?application_name=closing", database.url());
    let store = PostgresStore::open(&url, full()).await.unwrap();
    let late = store.apply(append());
    let (applied, (), ()) = tokio::join!(late, store.close(), store.close());
    applied.unwrap();
    let error = store.apply(append()).await.unwrap_err();
    assert_eq!(error.code().as_str(), "TL0306");
    assert_eq!(store.document(&key()).await.unwrap_err().kind, StoreErrorKind::Closed);
    drop(store);
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'closing'";
    let start = Instant::now();
    while database.number(count).await > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "connections stay");
        tokio::task::yield_now().await;
    }
}

/// Where a retry cannot help, the store does not retry until the patience is used up.
#[tokio::test]
async fn a_rejected_user_gets_the_error_at_once() {
    let database = Database::create().await;
    let url = database.role("locked").await;
    let role = url.split(['/', ':']).nth(3).unwrap().to_owned();
    database.run(&format!("GRANT CREATE ON DATABASE {} TO {role}", database.name)).await;
    let patience = Duration::from_secs(6);
    let store = PostgresStore::open(&url, PostgresOptions { patience, ..full() }).await.unwrap();
    store.apply(append()).await.unwrap();
    database.run(&format!("ALTER ROLE {role} NOLOGIN")).await;
    let end =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{role}'");
    assert!(database.number(&end).await > 0);
    let start = Instant::now();
    let claim = Claim::queues(&"worker".parse().unwrap(), ["queue".parse().unwrap()], 1, patience);
    // A request in flight on a connection that dies is lost; the next connection is rejected.
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(store.apply(append()).await.map(drop).map_err(|e| e.to_string()));
        said.push(store.claim(claim.clone()).await.map(drop).map_err(|e| e.to_string()));
        said.push(store.stream(&key()).await.map(drop).map_err(|e| e.to_string()));
    }
    assert!(start.elapsed() < patience / 2, "{:?}: {said:#?}", start.elapsed());
    for last in said.iter().rev().take(3) {
        assert!(last.as_ref().unwrap_err().contains("not permitted to log in"), "{said:#?}");
    }
}

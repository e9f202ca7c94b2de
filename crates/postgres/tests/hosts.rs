//! Host lists: a host that accepts TCP and never responds costs its limit and nothing else, at open and on an open
//! store.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;
#[path = "common/proxy.rs"]
mod proxy;

use std::net::TcpListener;
use std::sync::OnceLock;
use std::time::Duration;

use load::{Tally, append, key, sayings, surely};
use poll::{LIMIT, in_time, until};
use proxy::Proxy;
use tidelock_core::id::OpId;
use tidelock_core::store::{Store as _, StoreErrorKind};
use tidelock_pgserver::Server;
use tidelock_postgres::{PostgresOptions, PostgresStore, connect, migrate};

/// Much longer than the limits of two hosts together, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(25);

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    SERVER.get_or_init(|| Server::start(&options).expect("a private server starts"))
}

/// Returns the address of the server by several ports, each with a limit of two seconds.
fn address(ports: &[u16], schema: &str) -> String {
    let hosts = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    let url = server().url().replace(&format!("127.0.0.1:{}", server().port()), &hosts);
    format!("{url}?sslmode=disable&connect_timeout=2&schema={schema}")
}

fn options() -> PostgresOptions {
    PostgresOptions { patience: PATIENCE, ..common::options() }
}

/// Opens a port that accepts TCP, by its backlog, and never responds.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_a_silent_host_before_the_server_does_not_keep_a_store_from_opening() {
    let (_listener, port) = silent();
    let schema = common::fresh_schema();
    let url = address(&[port, server().port()], &schema);
    // Less than the server's share of the limits of both hosts would be, were they not limited one by one.
    let store = in_time("the store opens", PostgresStore::open(&url, options())).await.unwrap();
    store.apply(append(&key("s"), "open")).await.unwrap();
    assert_eq!(sayings(&store, &key("s")).await, ["open"]);
    // Connections outside a store find the server as well.
    let client = in_time("a connection is made", connect(&url)).await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    let status = in_time("the schema is looked at", migrate::status(&url, &schema)).await.unwrap();
    assert_eq!(status.installed, Some(status.newest));
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_when_no_host_will_do_the_error_names_each_with_its_cause() {
    let (_listener, port) = silent();
    let closed = silent().1;
    let url = address(&[port, closed], "none");
    let error = in_time("connecting fails", connect(&url)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{port}: no answer within 2s")), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{closed}: ")) && text.contains("refused"), "{text}");
}

/// A store on two proxies to one server, with open connections of every kind to the first.
struct Site {
    first: Proxy,
    second: Proxy,
    store: PostgresStore,
    witness: PostgresStore,
    schema: String,
}

impl Site {
    async fn open() -> Self {
        let (first, second) = (Proxy::before(server().port()).await, Proxy::before(server().port()).await);
        let schema = common::fresh_schema();
        let witness = PostgresStore::open(&address(&[server().port()], &schema), options()).await.unwrap();
        let url = address(&[first.port(), second.port()], &schema);
        let store = PostgresStore::open(&url, options()).await.unwrap();
        for says in ["one", "two", "three"] {
            store.apply(append(&key("s"), says)).await.unwrap();
        }
        // Opens several idle connections of readers and writers.
        let all = (0..8).map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                store.apply(append(&key(&format!("s{n}")), "warm")).await.unwrap();
                store.stream(&key("s")).await.unwrap();
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        wakes("hints arrive", &store, &witness).await;
        assert_eq!(second.accepted(), 0);
        Self { first, second, store, witness, schema }
    }
}

/// Checks that commits of one store wake waiters of the other repeatedly.
async fn wakes(when: &str, listener: &PostgresStore, speaker: &PostgresStore) {
    let mut heard = 0;
    until(when, async || {
        let mut watch = listener.watch();
        speaker.apply(append(&key("hints"), "heard?")).await.unwrap();
        let woken = tokio::time::timeout(Duration::from_millis(200), watch.changed()).await;
        heard += usize::from(woken.unwrap_or(false));
        heard >= 10
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_reads_of_an_open_store_move_to_the_next_host_when_theirs_freezes() {
    let site = Site::open().await;
    site.first.hold();
    // Every read, however many connections to the frozen host are idle.
    for _ in 0..6 {
        let read = in_time("a read is answered", site.store.stream(&key("s"))).await;
        assert!(read.unwrap().is_some());
    }
    assert!(site.second.accepted() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_writes_of_an_open_store_move_to_the_next_host_when_theirs_freezes() {
    let site = Site::open().await;
    site.first.hold();
    let tally = Tally::default();
    for n in 0..6 {
        let batch = append(&key("after"), &n.to_string()).op_id(OpId::new());
        in_time("a write is decided", surely(&site.store, &batch, &tally)).await.unwrap();
    }
    // One silence is enough for all connections that were idle.
    assert!(tally.unknown() <= 2, "{} writes were left open", tally.unknown());
    assert!(tally.slowest() < LIMIT, "a write took {:?}", tally.slowest());
    assert_eq!(sayings(&site.witness, &key("after")).await, ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_hints_arrive_from_the_next_host_when_the_listening_connection_freezes() {
    let site = Site::open().await;
    site.first.hold();
    wakes("hints arrive by the second host", &site.store, &site.witness).await;
    assert!(site.second.accepted() > 0);
}

/// A slow statement does not mean a silent host.
#[tokio::test(flavor = "multi_thread")]
async fn d8_a_statement_that_takes_longer_than_the_limit_is_waited_for() {
    let site = Site::open().await;
    let mut client = connect(&address(&[server().port()], "none")).await.unwrap();
    let lock = client.transaction().await.unwrap();
    lock.batch_execute(&format!("LOCK TABLE {}.streams IN ACCESS EXCLUSIVE MODE", site.schema))
        .await
        .unwrap();
    let (connected, store) = (site.first.accepted(), site.store.clone());
    let read = tokio::spawn(async move { store.stream(&key("s")).await });
    until("the host is asked whether it answers", async || site.first.accepted() > connected + 1).await;
    lock.rollback().await.unwrap();
    assert!(in_time("the read is answered", read).await.unwrap().unwrap().is_some());
    assert_eq!(site.second.accepted(), 0);
}

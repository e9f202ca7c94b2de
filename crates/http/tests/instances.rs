//! Two servers on one store, and many clients that send the same request: one effect for each key, and one response for
//! all.
#![allow(clippy::restriction, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use common::{ReceivedResponse, effects_of, heard, shop};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidelock_core::store::{Durability, SharedStore};
use tidelock_http::IdempotencyLayer;
use tidelock_postgres::PostgresStore;
use tidelock_sqlite::SqliteStore;
use tokio::net::TcpListener;
use tokio::sync::Barrier;

const KEYS: usize = 20;
const COPIES: usize = 10;

/// Starts a server on a store with its own connection.
async fn serve(store: &SharedStore) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = shop(IdempotencyLayer::new(store).required().wait(Duration::from_secs(60)));
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn order(client: Client<HttpConnector, Body>, server: SocketAddr, key: String) -> ReceivedResponse {
    let request = Request::post(format!("http://{server}/orders"))
        .header("idempotency-key", &key)
        .body(Body::from(format!("order of {key}")))
        .unwrap();
    heard(client.request(request).await.unwrap().map(Body::new)).await
}

/// Sends every request ten times at once, half of them to each server.
async fn storm(stores: [SharedStore; 2]) {
    let servers = [serve(&stores[0]).await, serve(&stores[1]).await];
    let client = Client::builder(TokioExecutor::new()).build_http();
    let start = Arc::new(Barrier::new(KEYS * COPIES));
    let mut clients = tokio::task::JoinSet::new();
    for copy in 0..COPIES {
        for n in 0..KEYS {
            let (client, server, start) = (client.clone(), servers[(n + copy) % 2], Arc::clone(&start));
            clients.spawn(async move {
                start.wait().await;
                (n, order(client, server, format!("key-{n}")).await)
            });
        }
    }
    let mut answers: BTreeMap<usize, Vec<ReceivedResponse>> = BTreeMap::new();
    while let Some(answer) = clients.join_next().await {
        let (n, heard) = answer.unwrap();
        answers.entry(n).or_default().push(heard);
    }
    for (n, heard) in answers {
        let bodies: BTreeSet<_> = heard.iter().map(|heard| (heard.status, heard.body.clone())).collect();
        assert_eq!((heard.len(), bodies.len()), (COPIES, 1), "key {n}: {bodies:?}");
        assert!(heard.iter().all(|heard| heard.status == 201 && heard.headers["location"] == "/orders/1"));
        assert_eq!(heard.iter().filter(|heard| !heard.is_replayed()).count(), 1, "one of them ran");
        assert_eq!(effects_of(&stores[n % 2], &format!("key-{n}")).await, 1, "key {n} had its effect once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_servers_on_one_sqlite_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("edge.db");
    let open = || async {
        Arc::new(SqliteStore::open(&path, tidelock_sqlite::SqliteOptions::default()).await.unwrap())
            as SharedStore
    };
    storm([open().await, open().await]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[cfg(unix)]
async fn two_servers_on_one_postgres() {
    let options = tidelock_pgserver::PgServerOptions {
        durable: false,
        ..tidelock_pgserver::PgServerOptions::default()
    };
    let server = match std::env::var("DATABASE_URL") {
        Ok(_) => None,
        Err(_) => Some(tidelock_pgserver::Server::start(&options).expect("a private server starts")),
    };
    let url = server
        .as_ref()
        .map_or_else(|| std::env::var("DATABASE_URL").unwrap(), tidelock_pgserver::Server::url);
    let joint = if url.contains('?') { '&' } else { '?' };
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let address = format!("{url}{joint}schema=edge_{}_{nanos}", std::process::id());
    let open = || async {
        // Processes are killed here, not machines.
        let durability = Durability::Relaxed;
        let options = tidelock_postgres::PostgresOptions {
            durability,
            ..tidelock_postgres::PostgresOptions::default()
        };
        Arc::new(PostgresStore::open(&address, options).await.unwrap()) as SharedStore
    };
    storm([open().await, open().await]).await;
}

//! Transactions over many keys while the network and the server fail: they stay strictly serializable, and resolved outcomes are
//! true.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/poll.rs"]
mod poll;
#[path = "common/proxy.rs"]
mod proxy;

use std::sync::Arc;
use std::time::Duration;

use proxy::{Proxy, Trap};
use tidelock_core::store::SharedStore;
use tidelock_pgserver::{PgServerOptions, Server};
use tidelock_postgres::{PostgresOptions, PostgresStore, tokio_postgres};
use tidelock_tck::rng::Rng;
use tidelock_tck::transactions::disturbed;
use tokio_postgres::{Client, NoTls};

/// A server, and two stores on one schema, each behind a proxy.
struct Site {
    admin: Client,
    proxies: [Proxy; 2],
    stores: [SharedStore; 2],
    schema: String,
    _server: Server,
}

impl Site {
    async fn open() -> Self {
        let server =
            Server::start(&PgServerOptions { durable: false, ..PgServerOptions::default() }).unwrap();
        let (admin, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let schema = common::fresh_schema();
        let url = format!("{}?schema={schema}", server.url());
        PostgresStore::open(&url, common::options()).await.unwrap().close().await;
        let proxies = [Proxy::before(server.port()).await, Proxy::before(server.port()).await];
        let mut stores: Vec<SharedStore> = Vec::new();
        for proxy in &proxies {
            let url = server.url().replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
            let url = format!("{url}?sslmode=disable&schema={schema}&application_name={schema}");
            let options = PostgresOptions { patience: Duration::from_secs(20), ..common::options() };
            stores.push(Arc::new(PostgresStore::open(&url, options).await.unwrap()));
        }
        let stores = stores.try_into().unwrap();
        Self { admin, proxies, stores, schema, _server: server }
    }

    /// Breaks something: a connection before, during or after a write, all of them, or the session in the server.
    async fn disturb(&self, rng: &mut Rng) {
        let proxy = &self.proxies[rng.below(2)];
        match rng.below(5) {
            0 => proxy.cut().await,
            1 => proxy.trap("Appended", Trap::Before),
            2 => proxy.trap("Appended", Trap::Behind),
            3 => proxy.trap("Appended", Trap::Answer),
            _ => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 LIMIT 1";
                self.admin.query(sql, &[&self.schema]).await.unwrap();
            }
        }
    }
}

/// Connections are cut at random and in the middle of commits, and sessions are terminated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_cut_connections_they_are_serializable() {
    let site = Site::open().await;
    let running = tokio::spawn(disturbed("PostgreSQL behind a proxy", site.stores.clone()));
    let (mut rng, mut faults) = (Rng::new(std::process::id().into()), 0);
    while !running.is_finished() {
        site.disturb(&mut rng).await;
        faults += 1;
        // This sleep waits for no condition. It sets the time of the next fault.
        tokio::time::sleep(Duration::from_millis(rng.within(5..60))).await;
    }
    let tally = running.await.unwrap();
    eprintln!("{faults} faults: serializable; {tally}");
    assert!(tally.committed > 100 && tally.had_happened + tally.had_not > 0, "this proves nothing: {tally}");
}

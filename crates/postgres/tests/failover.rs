//! Failover from a frozen primary: its connections are abandoned, writes continue on the promoted standby, and no
//! acknowledged write is lost.
#![cfg(unix)]
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/poll.rs"]
mod poll;

use std::time::Duration;

use load::{Load, check};
use poll::until;
use tidelock_pgserver::Server;
use tidelock_postgres::tokio_postgres::{self, Client, NoTls};
use tidelock_postgres::{PostgresOptions, PostgresStore};

async fn client(server: &Server) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Starts a primary and a standby that confirms every commit.
async fn synchronous_pair() -> (Server, Server) {
    let (primary, standby) = tokio::task::block_in_place(|| {
        let options = tidelock_pgserver::PgServerOptions {
            durable: false,
            ..tidelock_pgserver::PgServerOptions::default()
        };
        let primary = Server::start(&options).expect("a private server starts");
        let standby = primary.standby().unwrap();
        (primary, standby)
    });
    let admin = client(&primary).await;
    admin.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    until("commits wait for the standby", async || {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    (primary, standby)
}

/// Returns the address of both, each with a limit of two seconds.
fn address(primary: &Server, standby: &Server) -> String {
    let (one, two) = (primary.port(), standby.port());
    let hosts = format!("127.0.0.1:{one},127.0.0.1:{two}/");
    let url = primary.url().replace(&format!("127.0.0.1:{one}/"), &hosts);
    format!("{url}?sslmode=disable&connect_timeout=2&application_name=rides_it_out")
}

#[tokio::test(flavor = "multi_thread")]
async fn d9_writes_continue_on_the_new_primary_when_the_old_one_froze() {
    let (primary, standby) = synchronous_pair().await;
    let options = PostgresOptions { patience: Duration::from_secs(60), ..common::options() };
    let store = PostgresStore::open(&address(&primary, &standby), options).await.unwrap();
    let load = Load::start(&store, 8);
    load.progress(200).await;
    tokio::task::block_in_place(|| {
        primary.freeze();
        standby.promote().unwrap();
    });
    load.progress(200).await;
    let tally = load.end().await;
    // Every acknowledged write is on the new primary, once.
    let found = PostgresStore::open(&standby.url(), common::options()).await.unwrap();
    check(&found, &tally).await;
    // The old primary has no connection of the store left once it can notice.
    tokio::task::block_in_place(|| primary.thaw());
    let admin = client(&primary).await;
    until("the old connections are gone", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rides_it_out' AND state = 'idle'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
}

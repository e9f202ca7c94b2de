//! The load of `cargo xtask ha`: clients that write through every way into a cluster and keep a ledger of what they were
//! told, and a comparison of that ledger with the store at the end.
//!
//! `ha_load SCHEMA SEED`, with the addresses in `TIDELOCK_HA_HOSTS`, `TIDELOCK_HA_HAPROXY` and `TIDELOCK_HA_PGBOUNCER`.
//! Commands come on the standard input: `promoted MICROSECONDS` when there is a new primary, and `stop`. The end of the
//! input ends the program. Lines go to the standard output: `ready`, `counts NAME=N …` and `result NAME=N …`; everything
//! else is for people.

#![expect(clippy::print_stdout, reason = "this program reports to the one that started it")]

mod client;
mod compare;
mod ledger;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidelock_postgres::{PostgresOptions, PostgresStore};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::{Client, Pace};
use crate::ledger::Ledger;

/// Clients for each way in.
const CLIENTS: u64 = 3;
/// How often the counts are printed.
const REPORT: Duration = Duration::from_millis(200);
/// The longest time for clients to come to an end: they may be in the middle of a call.
const END_LIMIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A way in: its name, its address, and a store of its own with caches of its own.
struct EntryPoint {
    name: &'static str,
    address: String,
    store: PostgresStore,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let schema = args.next().ok_or("the schema is missing")?;
    let seed: u64 = args.next().ok_or("the seed is missing")?.parse()?;
    let ways = open(&schema).await?;
    let ledger = Arc::new(Ledger::new(ways.iter().map(|way| way.name)));
    let stopping = Arc::new(AtomicBool::new(false));
    let tasks = start(&ways, &ledger, &stopping, seed);
    println!("ready");
    let reporting = tokio::spawn(report(Arc::clone(&ledger)));
    let stopped = follow_commands(&ledger).await?;
    stopping.store(true, Ordering::SeqCst);
    reporting.abort();
    if !stopped {
        return Ok(());
    }
    if tokio::time::timeout(END_LIMIT, tasks.join_all()).await.is_err() {
        println!("clients are still in a call after {END_LIMIT:?}");
    }
    let hosts = ways.first().ok_or("there is no way in")?;
    let result = compare::compare(&hosts.address, &schema, &ledger).await?;
    let fields: Vec<String> = result.iter().map(|(name, number)| format!("{name}={number}")).collect();
    println!("result {}", fields.join(" "));
    remove(&hosts.address, &schema).await
}

/// Opens a store for each way in, and one more on the list of hosts, which is quiet: its caches grow old.
async fn open(schema: &str) -> Result<Vec<EntryPoint>> {
    let named = [("hosts", "HOSTS"), ("quiet", "HOSTS"), ("haproxy", "HAPROXY"), ("pgbouncer", "PGBOUNCER")];
    let mut ways = Vec::new();
    for (name, variable) in named {
        let address = std::env::var(format!("TIDELOCK_HA_{variable}"))?;
        let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
        let store = PostgresStore::open(&address, options).await.map_err(|e| format!("{name}: {e}"))?;
        ways.push(EntryPoint { name, address, store });
    }
    Ok(ways)
}

/// Starts the clients, and a reader of the log on the quiet store.
fn start(ways: &[EntryPoint], ledger: &Arc<Ledger>, stopping: &Arc<AtomicBool>, seed: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (index, way) in (0_u64..).zip(ways) {
        let quiet = way.name == "quiet";
        let (clients, pace) = if quiet { (1, Pace::Quiet) } else { (CLIENTS, Pace::Busy) };
        for client in 0..clients {
            let (ledger, stopping) = (Arc::clone(ledger), Arc::clone(stopping));
            let client = Client::new(way.name, index * CLIENTS + client, way.store.clone(), ledger, seed);
            tasks.spawn(client.run(pace, stopping));
        }
        if quiet {
            let (store, ledger, stopping) = (way.store.clone(), Arc::clone(ledger), Arc::clone(stopping));
            tasks.spawn(async move { client::read(&store, &ledger, &stopping).await });
        }
    }
    tasks
}

async fn report(ledger: Arc<Ledger>) {
    loop {
        tokio::time::sleep(REPORT).await;
        println!("counts {}", ledger.counts());
    }
}

/// Follows commands until one of them, or the end of the input, ends the load. Returns whether a result is wanted.
async fn follow_commands(ledger: &Ledger) -> Result<bool> {
    let (sender, mut lines) = mpsc::unbounded_channel();
    // A thread of its own: it may wait for input when everything else has ended.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(|line| line.ok()) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("promoted", at) => ledger.promoted(at.parse()?),
            ("stop", _) => return Ok(true),
            (other, _) => println!("unknown command {other:?}"),
        }
    }
    Ok(false)
}

async fn remove(address: &str, schema: &str) -> Result<()> {
    let client = tidelock_postgres::connect(address).await?;
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    Ok(())
}

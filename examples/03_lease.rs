//! A lease on a resource, across processes (distributed lock). The holder is killed, another process takes over, and the store rejects
//! late writes of the first holder.
//!
//! `cargo run -p tidelock-examples --example 03_lease`
#![expect(clippy::print_stdout, reason = "a program talks to people")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tidelock::lease::{self, LeaseRequest};
use tidelock::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The program starts a second process of itself as another worker, on the same file.
    match std::env::args().nth(1) {
        Some(file) => hold_until_killed(&file).await,
        None => take_over().await,
    }
}

async fn open(file: &str) -> Result<SharedStore, Box<dyn Error>> {
    Ok(Arc::new(SqliteStore::open(file, SqliteOptions::default()).await?))
}

fn ask(store: &SharedStore, who: &str) -> Result<LeaseRequest, Box<dyn Error>> {
    let nightly = Key::new("report", ["nightly"])?;
    Ok(lease::request(store, &nightly).owner(who.parse()?).ttl(Duration::from_secs(1)))
}

/// Acquires the lease and holds it. The lease is renewed in the background while the process lives.
async fn hold_until_killed(file: &str) -> Result<(), Box<dyn Error>> {
    let held = ask(&open(file).await?, "worker-1")?.note("since midnight").try_acquire().await?;
    println!("{}", held.fence());
    Err(held.lost().await.to_string().into())
}

async fn take_over() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db").display().to_string();
    let store = open(&file).await?;
    let program = std::env::current_exe()?;
    let mut other = Command::new(program).arg(&file).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(other.stdout.take().ok_or("it talks")?).read_line(&mut said)?;
    let fence = Fence(said.trim().parse()?);

    // Another process holds the lease, so `now` fails immediately.
    if let Err(error) = ask(&store, "worker-2")?.try_acquire().await {
        println!("{error} ({})", error.code());
    }
    other.kill()?;
    other.wait()?;

    // `wait` joins the wait queue. A dead process does not renew its lease, so the lease expires.
    let held = ask(&store, "worker-2")?.acquire().await?;
    println!("{} took over with fence {}", held.owner(), held.fence());

    // The store rejects every batch of the first holder as a whole, even if the holder was only paused and has resumed.
    let page =
        |text: &str| Ok::<_, Box<dyn Error>>(Batch::new().put(held.key(), Expect::Any, Payload::of(text)?));
    let stale = Lease { key: held.lease().key.clone(), fence, owner: None };
    if let Err(refused) = store.apply(Batch::new().guard_lease(&stale).and(page("too late")?)).await {
        println!("{refused} ({})", refused.code());
    }
    store.apply(held.guard(page("page 1")?)?).await?;
    println!("written: {}", store.document(held.key()).await?.ok_or("it was written")?.value);
    held.release().await?;
    Ok(())
}

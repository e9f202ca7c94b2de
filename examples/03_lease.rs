//! A lease across processes (distributed lock). The holder is killed, another process takes over, and the fencing token
//! rejects late writes of the first holder.
//!
//! `cargo run -p tidelock-examples --example 03_lease`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidelock::prelude::*;
use tidelock::store::Lease;

const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The program starts itself again as a second process on the same file.
    if let Some(file) = std::env::args().nth(1) {
        let held = Tidelock::open(&file)
            .await?
            .lease("nightly")
            .ttl(TTL)
            .note("since midnight")
            .try_acquire()
            .await?;
        println!("{}", held.fence());
        return Err(held.lost().await.to_string().into()); // renewed in the background while the process lives
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db").display().to_string();
    let tide = Tidelock::open(&file).await?;
    let mut holder = Command::new(std::env::current_exe()?).arg(&file).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let old_fence = Fence(line.trim().parse()?);

    // try_acquire() fails while the other process holds the lease.
    let held =
        tide.lease("nightly").ttl(TTL).try_acquire().await.err().ok_or("two processes hold the lease")?;
    println!("{held}");
    holder.kill()?;
    holder.wait()?;

    // acquire() joins the wait queue. The dead process does not renew its lease, so it expires.
    let lease = tide.lease("nightly").ttl(TTL).acquire().await?;
    println!("taken over with fence {} after fence {old_fence}", lease.fence());
    assert!(lease.fence() > old_fence);

    // The store rejects every batch under the old fence, even from a holder that was only paused and never noticed.
    let report = "report".into_key()?;
    let write =
        |text: &str| Ok::<_, Box<dyn Error>>(Batch::new().put(&report, Expect::Any, Payload::of(text)?));
    let stale = Lease { key: lease.lease().key.clone(), fence: old_fence, owner: None };
    let late = tide.apply(Batch::new().guard_lease(&stale).and(write("too late")?)).await;
    println!("{}", late.err().ok_or("a stale holder wrote")?);
    tide.apply(lease.guard(write("page 1")?)?).await?;
    assert_eq!(
        tide.store().document(&report).await?.map(|found| found.value.to_string()).as_deref(),
        Some("\"page 1\"")
    );
    lease.release().await?;
    Ok(())
}

//! An in-process lock for each cart. Tasks acquire it in the order of arrival, and re-entrancy is an error instead of a hang.
//!
//! `cargo run -p tidelock-examples --example 01_lock`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidelock::lock::{LockError, LockKey};
use tidelock::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tide = Tidelock::open("memory:").await?;

    // Ten tasks read, wait and write. Without the lock, nine of the updates would be lost.
    let (total, mut tasks) = (Arc::new(AtomicU32::new(0)), tokio::task::JoinSet::new());
    for _ in 0..10 {
        let (tide, total) = (tide.clone(), Arc::clone(&total));
        tasks.spawn(async move {
            let _guard = tide.lock(("cart", "ann")).await?;
            let seen = total.load(Ordering::Relaxed);
            tokio::task::yield_now().await;
            total.store(seen + 1, Ordering::Relaxed);
            Ok::<_, tidelock::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!("ten updates, {} counted", total.load(Ordering::Relaxed));
    assert_eq!(total.load(Ordering::Relaxed), 10);

    // A task that requests a lock which it already holds gets an error at once, with both source locations.
    let guard = tide.lock(("cart", "ann")).await?;
    let twice = tide.lock(("cart", "ann")).await.err().ok_or("the lock was acquired twice")?;
    println!("{twice}");
    assert!(matches!(twice.downcast_ref(), Some(LockError::Reentrant { .. })));

    // Another task waits until its deadline, and is never granted the lock later.
    let cart = LockKey::from(("cart", "ann").into_key()?);
    let locks = tide.locks();
    let waiter = tokio::spawn(async move {
        let deadline = Instant::now() + Duration::from_millis(20);
        locks.lock_before(&cart, deadline).await.err().map(|error| error.to_string())
    });
    println!("{}", waiter.await?.ok_or("the lock was acquired twice")?);

    // The snapshot lists holders with their ages and source locations, and waiters. The inspector shows the same.
    print!("{}", locks.snapshot());
    drop(guard);
    assert!(tide.lock(("cart", "ann")).await.is_ok());
    Ok(())
}

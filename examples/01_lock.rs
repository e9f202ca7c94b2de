//! An in-process lock for each cart. Tasks acquire it in the order of arrival, and re-entrancy is an error instead of a deadlock.
//!
//! `cargo run -p tidelock-examples --example 01_lock`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::{Duration, Instant};

use tidelock::lock::{LockClass, LockError, Locks};

/// The functor of all cart locks, declared once in the process. A second functor with this name is an error that names both declarations.
static CART: LockClass = LockClass::new("cart");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new();
    let cart = CART.key(["user-17"])?;

    // Ten tasks read, wait and write. Without the lock, nine of the updates would be lost.
    let total = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let (locks, cart, total) = (locks.clone(), cart.clone(), total.clone());
        tasks.push(tokio::spawn(async move {
            let _guard = locks.lock(&cart).await?;
            let seen = total.load(std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
            total.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
            Ok::<_, LockError>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    println!("ten updates, {} counted", total.load(std::sync::atomic::Ordering::Relaxed));

    // A task that requests a lock that it already holds gets an error at once, with both source locations.
    let guard = locks.lock(&cart).await?;
    match locks.lock(&cart).await {
        Err(error @ LockError::Reentrant { .. }) => println!("{error}"),
        other => println!("unexpected: {other:?}"),
    }

    // Another task waits until its deadline, and is never granted the lock later.
    let impatient = {
        let (locks, cart) = (locks.clone(), cart.clone());
        tokio::spawn(async move {
            let deadline = Instant::now() + Duration::from_millis(20);
            locks.lock_before(&cart, deadline).await.err().map(|error| error.to_string())
        })
    };
    println!("{}", impatient.await?.unwrap_or_default());

    // The snapshot lists the holders with their ages and source locations, and the waiters.
    print!("{}", locks.snapshot());
    drop(guard);
    Ok(())
}

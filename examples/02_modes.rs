//! A lock with three modes, declared as data. Pulls run together, observers run together, and no waiter overtakes another.
//!
//! `cargo run -p tidelock-examples --example 02_modes`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use tidelock::prelude::*;
use tokio::sync::mpsc;

const REBUILD: Mode = Mode::new(0);
const PULL: Mode = Mode::new(1);
const OBSERVE: Mode = Mode::new(2);

/// The lock of a graph, with the pairs of modes that may hold it together. All other pairs exclude each other.
static GRAPH: LockClass = LockClass::new("graph")
    .modes(Modes::new(&["rebuild", "pull", "observe"], &[(PULL, PULL), (OBSERVE, OBSERVE)]));

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tide = Tidelock::open("memory:").await?;
    let (locks, graph) = (tide.locks(), GRAPH.key(["main"])?);

    // The waiters arrive in this order. The second pull joins the first; the others run in the order of arrival.
    let first = locks.lock(graph.mode(PULL)).await?;
    let (ran, mut order) = mpsc::unbounded_channel();
    let mut waiters = tokio::task::JoinSet::new();
    let arrivals = [("second pull", PULL), ("observer", OBSERVE), ("late pull", PULL), ("rebuild", REBUILD)];
    for (name, mode) in arrivals {
        let (graph, ran) = (graph.clone(), ran.clone());
        waiters.spawn(async move {
            let guard = locks.lock(graph.mode(mode)).await?;
            let sent = ran.send(name);
            drop(guard);
            sent.map_err(|_| "the example has ended".into())
        });
        tokio::task::yield_now().await;
    }
    print!("{}", locks.snapshot());
    drop(first);
    while let Some(ended) = waiters.join_next().await {
        ended?.map_err(|error: Box<dyn std::error::Error + Send + Sync>| error.to_string())?;
    }
    for (name, _) in arrivals {
        assert_eq!(order.recv().await, Some(name));
        println!("{name} ran");
    }

    // A writer that only reads from here on downgrades. Readers join, and no other writer gets in between.
    let mut guard = locks.lock(graph.mode(REBUILD)).await?;
    guard.downgrade(OBSERVE)?;
    let joined = tokio::spawn(async move { locks.try_lock(graph.mode(OBSERVE)).is_ok() }).await?;
    println!("another observer joins: {joined}");
    assert!(joined);
    Ok(())
}

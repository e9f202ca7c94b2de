//! A lock with three modes, declared as data. Pulls run together, observers run together, and no waiter overtakes another.
//!
//! `cargo run -p tidelock-examples --example 02_modes`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use tidelock::lock::{LockClass, LockError, Locks, Mode, Modes};

const REBUILD: Mode = Mode::new(0);
const PULL: Mode = Mode::new(1);
const OBSERVE: Mode = Mode::new(2);

/// The lock of the graph, with the pairs of modes that may hold it together. Modes without a listed pair exclude each other.
static GRAPH: LockClass = LockClass::new("graph")
    .modes(Modes::new(&["rebuild", "pull", "observe"], &[(PULL, PULL), (OBSERVE, OBSERVE)]));

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new();
    let graph = GRAPH.key(["main"])?;

    // The tasks request the lock in this order. The first two pulls run together, then the observer, then the last pull, then the rebuild.
    let first = locks.lock(graph.mode(PULL)).await?;
    let mut waiting = Vec::new();
    for (name, mode) in
        [("second pull", PULL), ("observer", OBSERVE), ("late pull", PULL), ("rebuild", REBUILD)]
    {
        let (its, its_graph) = (locks.clone(), graph.clone());
        waiting.push(tokio::spawn(async move {
            let _guard = its.lock(its_graph.mode(mode)).await?;
            println!("{name} runs");
            Ok::<_, LockError>(())
        }));
        tokio::task::yield_now().await;
    }
    println!("first pull runs, too");
    print!("{}", locks.snapshot());
    drop(first);
    for task in waiting {
        task.await??;
    }

    // A writer that only needs to read from here on downgrades. Readers can join, and no other writer gets in between.
    let mut guard = locks.lock(graph.mode(REBUILD)).await?;
    guard.downgrade(OBSERVE)?;
    let (its, its_graph) = (locks.clone(), graph.clone());
    let joined = tokio::spawn(async move { its.try_lock(its_graph.mode(OBSERVE)).is_ok() });
    println!("another observer joins: {}", joined.await?);
    Ok(())
}

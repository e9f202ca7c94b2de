//! One lock with three modes, as data: pulls run together, observers run together, and nobody overtakes.
//!
//! `cargo run -p tidelock-examples --example 02_modes`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use tidelock::lock::{Functor, LockError, Locks, Mode, Modes};

const REBUILD: Mode = Mode::new(0);
const PULL: Mode = Mode::new(1);
const OBSERVE: Mode = Mode::new(2);

/// Which modes may hold the graph together. What is not listed excludes.
static GRAPH: Functor = Functor::new("graph")
    .modes(Modes::new(&["rebuild", "pull", "observe"], &[(PULL, PULL), (OBSERVE, OBSERVE)]));

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locks = Locks::new();
    let graph = GRAPH.term(["main"])?;

    // Asked for in this order; the first two run together, then the observer, then the last pull, then the rebuild.
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

    // A writer that only reads on lets readers in, without letting anybody else write in between.
    let mut guard = locks.lock(graph.mode(REBUILD)).await?;
    guard.downgrade(OBSERVE)?;
    let (its, its_graph) = (locks.clone(), graph.clone());
    let joined = tokio::spawn(async move { its.try_lock(its_graph.mode(OBSERVE)).is_ok() });
    println!("another observer joins: {}", joined.await?);
    Ok(())
}

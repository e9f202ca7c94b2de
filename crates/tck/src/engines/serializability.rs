//! Serializability of recorded transactions over many keys (O5): all of them have one order that agrees with real time.

use crate::prelude::*;
use crate::run;
use crate::transactions::{Plan, Tally, play};

/// Number of clients of a case, half of them on each connection.
const CLIENTS: usize = 8;
/// Transactions per client. `TIDELOCK_OPERATIONS` overrides it.
const TRANSACTIONS: u64 = 120;
/// A store that takes longer than this per transaction of each client runs fewer of them, but at least half.
const EACH: Duration = Duration::from_millis(16);
/// Maximum number of histories to record until all relevant events have happened.
const ROUNDS: u64 = 4;

/// Records histories and checks them, until enough has happened.
async fn serializable(env: &Env, faults: bool, enough: fn(&Tally) -> bool) {
    let (first, name) = (run::seed(), env.backend.name());
    let steps = run::setting("TIDELOCK_OPERATIONS", TRANSACTIONS) as usize;
    let time = EACH * u32::try_from(steps).unwrap_or(u32::MAX);
    let mut tally = Tally::default();
    for seed in (0..ROUNDS).map(|n| first.wrapping_add(n)) {
        let database = Env::open(std::sync::Arc::clone(&env.backend)).await;
        let plan = Plan { seed, clients: CLIENTS, steps, time, faults };
        let played = play(name, [&database.store, &database.other], plan).await;
        run::say(&format!("tck: seed {seed} on {name}: serializable; {played}"));
        tally += played;
        if enough(&tally) {
            return;
        }
    }
    panic!("seed {first}: this proves nothing, too little happened: {tally}");
}

/// Transactions of two processes over documents and streams are strictly serializable: snapshots of several rows, batches that
/// expect what was read, and deltas.
pub async fn o5_transactions_over_many_keys_are_serializable(env: &Env) {
    let enough = |tally: &Tally| tally.failed > 0 && tally.dependencies > tally.committed;
    serializable(env, false, enough).await;
}

/// The same holds when replies are lost and writes arrive late. A resolved outcome is true.
pub async fn o5_transactions_with_lost_replies_are_serializable(env: &Env) {
    let enough = |tally: &Tally| tally.unknown > 0 && tally.had_happened > 0 && tally.had_not > 0;
    serializable(env, true, enough).await;
}

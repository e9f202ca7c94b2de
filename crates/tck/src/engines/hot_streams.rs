//! Fairness on a hot stream (E1): processes that write one stream take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::ledger::*;
use crate::prelude::*;

/// A process with one command at a time gets a share of a stream that another one writes without a pause.
pub async fn e1_a_lone_command_has_its_share_of_a_hot_stream(env: &Env) {
    let (busy, lone) = (here(env), there(env));
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let hammering: Vec<_> = (0..4)
        .map(|_| {
            let (busy, stop, written) = (busy.clone(), Arc::clone(&stop), Arc::clone(&written));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    busy.execute("hot", |_: &Ledger| Ok::<_, String>([Booked { n: 1 }])).await.unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let first = lone.execute("hot", |_: &Ledger| Ok::<_, String>([Booked { n: 1 }])).await;
    first.unwrap();
    let (before, mut own) = (written.load(Ordering::SeqCst), 0);
    while own < 40 {
        lone.execute("hot", |_: &Ledger| Ok::<_, String>([Booked { n: 1 }])).await.unwrap();
        own += 1;
    }
    let foreign = written.load(Ordering::SeqCst) - before;
    stop.store(true, Ordering::SeqCst);
    for task in hammering {
        task.await.unwrap();
    }
    // Without turns it gets less than one in a hundred. On a busy machine, turns are shorter than the scheduler's.
    assert!(foreign <= own * 80, "{own} commands beside {foreign}");
    let loaded = there(env).load::<Ledger>("hot").await.unwrap();
    assert_eq!(loaded.state.sum, i64::from(written.load(Ordering::SeqCst) + own + 1));
}

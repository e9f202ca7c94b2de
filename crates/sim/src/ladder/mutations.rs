//! State: concurrent mutations of one value. Each acknowledged one is present once, and no other one twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidelock::prelude::*;

use crate::scenario::{Sim, SimError};

/// The value: the mutations by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Tally {
    applied: BTreeMap<String, u64>,
}

type Acknowledged = Arc<Mutex<Vec<String>>>;

pub(super) fn drive(sim: &mut Sim, clients: u64) {
    let acknowledged = Acknowledged::default();
    for client in 0..clients {
        let (acknowledged, attempts) = (Arc::clone(&acknowledged), Arc::new(Mutex::new(0_u64)));
        let merges = sim.rng().one_in(2);
        sim.client(move |tide| {
            mutate(tide, client, merges, Arc::clone(&attempts), Arc::clone(&acknowledged))
        });
    }
    if clients > 0 {
        sim.check(async move |tide: Tidelock| check(&tide, &acknowledged).await);
    }
}

async fn mutate(
    tide: Tidelock,
    client: u64,
    merges: bool,
    attempts: Arc<Mutex<u64>>,
    acknowledged: Acknowledged,
) -> Result<(), SimError> {
    let tally = tide.state::<Tally>("tally");
    for round in 0..3 {
        // A name is used once: whether an attempt without an acknowledgement was applied is unknown.
        let attempt = {
            let mut attempts = attempts.lock();
            *attempts += 1;
            *attempts
        };
        let name = format!("m{client}-{attempt}");
        // A merge needs a record, which the first mutation creates.
        if merges && round > 0 {
            tally.inc(&format!("/applied/{name}"), 1).await?;
        } else {
            let name = name.clone();
            tally.mutate(move |tally| *tally.applied.entry(name.clone()).or_default() += 1).await?;
        }
        acknowledged.lock().push(name);
    }
    Ok(())
}

async fn check(tide: &Tidelock, acknowledged: &Acknowledged) -> Result<(), SimError> {
    let tally = tide.state::<Tally>("tally").get().await?;
    if let Some((name, times)) = tally.applied.iter().find(|(_, times)| **times != 1) {
        return Err(format!("mutation {name} was applied {times} times").into());
    }
    let missing = acknowledged.lock().iter().find(|name| !tally.applied.contains_key(*name)).cloned();
    missing.map_or(Ok(()), |name| Err(format!("acknowledged mutation {name} is missing").into()))
}

//! The workload that checks the ladder of guarantees, on every engine at once.
//!
//! Each seed draws a subset of the parts. Effects in the store are counters that must end at one; calls outside the store
//! are recorded by their keys; leaders write under their fence.

mod accounts;
mod firings;
mod leases;
mod mutations;
mod orders;
mod outside;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use tidelock::prelude::*;

use crate::scenario::{Sim, SimError};
pub use outside::Outside;

/// The parts of the workload that a seed has.
#[derive(Clone, Copy, Debug)]
struct Parts {
    orders: u64,
    accounts: u64,
    tally: u64,
    ticks: bool,
    leader: bool,
    leases: u64,
    requests: u64,
    ttl: Option<Duration>,
    poll: Duration,
}

impl Parts {
    fn draw(sim: &mut Sim) -> Self {
        let rng = sim.rng();
        let mut some = |most: u64| if rng.one_in(2) { 0 } else { 1 + rng.below(most) };
        let (orders, accounts, tally, leases, requests) = (some(4), some(6), some(4), some(3), some(3));
        let (ticks, leader) = (rng.one_in(3), rng.one_in(4));
        let ttl = [None, Some(1), Some(3), Some(10)].get(rng.index(4)).copied().flatten();
        let poll = [1, 5, 20].get(rng.index(3)).copied().unwrap_or(1);
        let poll = Duration::from_secs(poll);
        Self {
            poll,
            orders,
            accounts,
            tally,
            ticks,
            leader,
            leases,
            requests,
            ttl: ttl.map(Duration::from_secs),
        }
    }
}

/// Fills in the scenario of a seed.
pub fn scenario(sim: &mut Sim) {
    let faults = [4, 8, 20].get(sim.rng().index(3)).copied().unwrap_or(8);
    let parts = Parts::draw(sim.faults(faults));
    let outside = Outside::new(sim.rng().draw());
    let shared = Arc::clone(&outside);
    sim.service(move |tide| {
        let mut service = tide.service().poll_interval(parts.poll);
        if let Some(ttl) = parts.ttl {
            service = service.lease_ttl(ttl);
        }
        if parts.orders > 0 {
            service = orders::serve(service, &shared);
        }
        if parts.accounts > 0 {
            service = accounts::serve(service, &shared);
        }
        if parts.ticks {
            service = firings::serve(service, &shared);
        }
        if parts.leader {
            service = leases::lead(service, &tide);
        }
        service
    });
    orders::drive(sim, parts.orders, &outside);
    accounts::drive(sim, parts.accounts, &outside);
    mutations::drive(sim, parts.tally);
    leases::drive(sim, parts.leases);
    requests::drive(sim, parts.requests);
    if parts.ticks {
        let outside = Arc::clone(&outside);
        sim.check(async move |tide: Tidelock| firings::check(tide, outside).await);
    }
    if parts.leader {
        sim.check(leases::check_leaders);
    }
}

/// Adds one to a counter in the store. At the end, each must be one.
fn count_once(batch: Batch, kind: &str, name: &str) -> Result<Batch, Failure> {
    let key = Key::new(kind, [name])?;
    let empty = Payload::of(&serde_json::json!({}))?;
    Ok(batch.merge_or_create(&key, empty, [Delta::inc("/count", 1)]))
}

/// Reads a counter.
async fn counted(tide: &Tidelock, kind: &str, name: &str) -> Result<i64, SimError> {
    let Some(document) = tide.store().document(&Key::new(kind, [name])?).await? else { return Ok(0) };
    let value: serde_json::Value = document.value.parse()?;
    Ok(value.get("count").and_then(serde_json::Value::as_i64).unwrap_or(0))
}

/// Checks that an effect in the store was applied exactly once.
async fn check_once(tide: &Tidelock, kind: &str, name: &str) -> Result<(), SimError> {
    match counted(tide, kind, name).await? {
        1 => Ok(()),
        times => Err(format!("the effect {kind}({name}) was applied {times} times").into()),
    }
}

//! Leases and leader election: writes under a fence never go back to an older fence.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock::prelude::*;
use tidelock::{Leadership, Service};
use tokio::time::sleep;

use crate::scenario::{Sim, SimError};

/// The record of a fenced write.
#[derive(Debug, Serialize, Deserialize)]
struct Wrote {
    fence: u64,
}

fn record(stream: &Key, fence: u64) -> Result<Batch, Failure> {
    let event = NewEvent::new("wrote".parse()?, Payload::of(&Wrote { fence })?);
    Ok(Batch::new().append(stream, Expect::Any, [event]))
}

pub(super) fn lead(service: Service, tide: &Tidelock) -> Service {
    let tide = tide.clone();
    service.leader("scribe", move |leader: Leadership| {
        let tide = tide.clone();
        async move {
            let stream = Key::new("terms", ["scribe"])?;
            for _ in 0..5 {
                tide.apply(leader.guard(record(&stream, leader.fence().0)?)?).await?;
                sleep(Duration::from_millis(700)).await;
            }
            // The next term begins after a pause, in any process.
            sleep(Duration::from_secs(30)).await;
            Ok(())
        }
    })
}

pub(super) async fn check_leaders(tide: Tidelock) -> Result<(), SimError> {
    check_order(&tide, "scribe").await
}

pub(super) fn drive(sim: &mut Sim, clients: u64) {
    for client in 0..clients {
        let ttl = Duration::from_secs(1 + sim.rng().below(10));
        let hold = Duration::from_millis(sim.rng().below(4_000));
        let waits = sim.rng().one_in(2) || client == 0;
        sim.client(async move |tide: Tidelock| {
            let request = tide.lease("ledger").ttl(ttl);
            let guard = if waits { Some(request.acquire().await?) } else { request.try_acquire().await.ok() };
            let Some(guard) = guard else { return Err("the lease is held".into()) };
            let stream = Key::new("terms", ["ledger"])?;
            for _ in 0..3 {
                tide.apply(
                    guard.guard(record(&stream, guard.fence().0).map_err(|error| error.to_string())?)?,
                )
                .await?;
                sleep(hold).await;
            }
            guard.release().await?;
            Ok(())
        });
    }
    if clients > 0 {
        sim.check(async move |tide: Tidelock| check_order(&tide, "ledger").await);
    }
}

/// Checks that the fences of the writes of a stream never fall.
async fn check_order(tide: &Tidelock, name: &str) -> Result<(), SimError> {
    let mut last = 0;
    let page = tide.store().read_stream(StreamQuery::forward(&Key::new("terms", [name])?, 500)).await?;
    for event in page.events {
        let wrote: Wrote = event.payload.parse()?;
        if wrote.fence < last {
            return Err(format!("{name}: a write with fence {} follows one with {last}", wrote.fence).into());
        }
        last = wrote.fence;
    }
    Ok(())
}

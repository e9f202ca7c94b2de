//! Idempotent requests: duplicates of one key race, and the effect and the response are committed once.

use tidelock::idempotency::{Fingerprint, Idempotency, ReserveOutcome, StoredResponse};
use tidelock::prelude::*;

use super::{check_once, count_once};
use crate::scenario::{Sim, SimError};

pub(super) fn drive(sim: &mut Sim, duplicates: u64) {
    for client in 0..duplicates {
        sim.client(async move |tide: Tidelock| request(&tide, client).await);
    }
    if duplicates > 0 {
        sim.check(async move |tide: Tidelock| check_once(&tide, "requested", "pay-17").await);
    }
}

async fn request(tide: &Tidelock, client: u64) -> Result<(), SimError> {
    let once = Idempotency::new(tide.store());
    let payload = Fingerprint::of([b"pay".as_slice(), b"17"]);
    match once.reserve("shop", "pay-17", &payload).await? {
        ReserveOutcome::Run(reservation) => {
            let effect =
                count_once(Batch::new(), "requested", "pay-17").map_err(|failure| failure.to_string())?;
            reservation.commit(effect, StoredResponse::new(201).text("paid")).await?;
            Ok(())
        }
        ReserveOutcome::Stored(response) if response.status == 201 && response.body == b"paid" => Ok(()),
        other => Err(format!("client {client} got {other:?}").into()),
    }
}

//! Smoke.
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tidelock::prelude::*;
use tidelock_sim::{Sim, hash_of, simulate};

const PAY: Workflow<String, ()> = Workflow::new("pay");

fn scenario(sim: &mut Sim) {
    let bank = Arc::new(Mutex::new(BTreeSet::new()));
    let charged = Arc::clone(&bank);
    sim.service(move |tide| {
        let bank = Arc::clone(&bank);
        tide.service().workflow(PAY, async move |cx: &Ctx, _order: String| {
            cx.step("charge", async |step: Step| {
                bank.lock().unwrap().insert(step.key());
                Ok(())
            })
            .await?;
            cx.sleep(std::time::Duration::from_secs(3600)).await?;
            Ok(())
        })
    });
    sim.client(async |tide: Tidelock| {
        tide.start(PAY, &"order-17".to_owned()).id("order-17").await?.result().await?;
        Ok(())
    });
    sim.check(async move |_| {
        let charges = charged.lock().unwrap().len();
        if charges == 1 { Ok(()) } else { Err(format!("{charges} charges").into()) }
    });
}

#[test]
fn smoke() {
    simulate(50, scenario);
}

#[test]
fn same() {
    for seed in 0..50 {
        assert_eq!(hash_of(seed, scenario), hash_of(seed, scenario), "{seed}");
    }
}

//! Deterministic simulation testing of services built on Tidelock.
//!
//! [`simulate`] runs your workflows, reactions, schedules and outboxes in several simulated processes on one simulated store,
//! in one thread and in simulated time. It injects faults: crashes at every await, lost replies, delayed commits,
//! partitions, stopped processes, jumps of the clock and deployments. When the faults have ended and nothing is left to do, it
//! calls your check. A month of waiting takes milliseconds.
//!
//! Everything random comes from one seed. A failing seed replays exactly, and its faults are reduced to those that matter.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use tidelock::prelude::*;
//! use tidelock_sim::simulate;
//!
//! const PAY: Workflow<String, ()> = Workflow::new("pay");
//!
//! simulate(20, |sim| {
//!     // The outside world of this seed: a bank that recognises an idempotency key.
//!     let bank = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
//!     let charged = Arc::clone(&bank);
//!     sim.service(move |tide| {
//!         let bank = Arc::clone(&bank);
//!         tide.service().workflow(PAY, async move |cx: &Ctx, _order: String| {
//!             cx.step("charge", async |step: Step| {
//!                 bank.lock().unwrap().insert(step.key());
//!                 Ok(())
//!             })
//!             .await?;
//!             Ok(())
//!         })
//!     });
//!     sim.client(async |tide: Tidelock| {
//!         tide.start(PAY, &"order-17".to_owned()).id("order-17").await?.result().await?;
//!         Ok(())
//!     });
//!     sim.check(async move |_| {
//!         let charges = charged.lock().unwrap().len();
//!         if charges == 1 { Ok(()) } else { Err(format!("{charges} charges").into()) }
//!     });
//! });
//! ```

mod audit;
mod clock;
mod fault;
mod link;
mod rng;
mod run;
mod scenario;
mod seeds;
mod shrink;
mod world;

pub mod ladder;

pub use fault::Fault;
pub use rng::Rng;
pub use scenario::{Sim, SimError};
pub use seeds::{Failure, Seeds, Summary, hash_of, simulate, trace_of};

/// The page of the book, compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/simulation.md")]
struct SimulationPage;

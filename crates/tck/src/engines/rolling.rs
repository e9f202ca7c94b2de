//! Rolling-release test (R15). Two releases of one program run on one store, and instances restart in random order from
//! a seed.
//!
//! The second release adds, removes and renames an event type. It also moves a reaction to another queue, chooses other
//! keys, and has another version of a projection. `TIDELOCK_ROLLING_SECONDS` makes it longer, `TIDELOCK_SEED` repeats a
//! run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidelock_core::events::{Aggregate, EventSchema, decode};
use tidelock_core::projections::{Projection, ProjectionEngine, Projections, ReadModel};
use tidelock_core::reactions::{Quiescence, Reaction, ReactionEngine, Reactions};
use tidelock_core::worker::WorkerHandle;

use crate::prelude::*;
use crate::reacting::at_once;
use crate::rng::Rng;
use crate::run;

/// Default duration in seconds.
const SECONDS: u64 = 3;
/// Number of instances of the program.
const INSTANCES: usize = 3;
const STREAMS: usize = 6;
/// Lease TTL: the time until other instances take over from a killed one.
const LEASE: Duration = Duration::from_secs(1);

/// The two releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    First,
    Second,
}
use Release::{First, Second};

/// The events of the first release.
#[derive(Serialize, Deserialize)]
enum FirstEvent {
    Placed { n: i64 },
    Paid { n: i64 },
    Bought { n: i64 },
}

/// The events of the second release: `Bought` has become `Ordered`, `Paid` is removed, and `Cancelled` is new.
#[derive(Serialize, Deserialize)]
enum SecondEvent {
    Placed { n: i64 },
    Ordered { n: i64 },
    Cancelled { n: i64 },
}

#[derive(Clone, Default)]
struct FirstOrder;

impl Aggregate for FirstOrder {
    const KIND: &'static str = "order";
    type Event = FirstEvent;

    fn apply(&mut self, _: &FirstEvent) {}
}

#[derive(Clone, Default)]
struct SecondOrder;

impl Aggregate for SecondOrder {
    const KIND: &'static str = "order";
    type Event = SecondEvent;

    fn apply(&mut self, _: &SecondEvent) {}

    fn schema() -> EventSchema {
        EventSchema::new().renamed("Bought", "Ordered")
    }
}

/// Returns the number of an event that a release must know.
fn number_of(release: Release, event: &Event) -> Result<i64, InvalidInput> {
    let Event { event_type, payload, .. } = event;
    Ok(match release {
        First => match decode(event_type, payload)? {
            FirstEvent::Placed { n } | FirstEvent::Paid { n } | FirstEvent::Bought { n } => n,
        },
        Second => match decode(event_type, payload)? {
            SecondEvent::Placed { n } | SecondEvent::Ordered { n } | SecondEvent::Cancelled { n } => n,
        },
    })
}

/// Returns a reaction of a release that counts how often each event is handled. It panics on an event that the release
/// does not know.
fn counting(name: &'static str, release: Release) -> Reaction {
    let reaction = Reaction::new(name).streams(KeyPrefix::kind("order")).retry(at_once(u32::MAX));
    let reaction = match release {
        First => reaction.on(["Placed", "Paid", "Bought"]).upcast::<FirstOrder>(),
        Second => reaction.on(["Placed", "Ordered", "Cancelled"]).upcast::<SecondOrder>(),
    };
    reaction.each(async move |_, event| {
        let n = number_of(release, &event).expect("a release gets only events that it knows");
        Ok(Batch::new().merge_or_create(&handled(name, n), payload(json!(0)), [Delta::inc("", 1)]))
    })
}

/// Returns the key of the document that counts how often an event was handled.
fn handled(name: &str, n: i64) -> Key {
    Key::new("handled", [Arg::from(name), Arg::from(n)]).unwrap()
}

fn reactions(store: &SharedStore, release: Release) -> Reactions {
    let (queue, keys) = match release {
        First => ("rolling.first", 2),
        Second => ("rolling.second", 3),
    };
    let ship = counting("ship", release).queue(queue_name(queue));
    let bill = counting("bill", release).revision(release as u32 + 1).to(move |event| {
        let n = number_of(release, event).expect("a release routes only events that it knows");
        Some(Key::new("bill", [n % keys]).unwrap())
    });
    let worker = Reactions::new(Arc::clone(store)).poll_interval(Duration::from_millis(20)).lease_ttl(LEASE);
    worker.with(ship).with(bill)
}

/// Returns a projection of a release: the number of events of each stream.
fn projections(store: &SharedStore, release: Release) -> Projections {
    let count = Projection::new("rolling", release as u32 + 1, move |fact, rows| {
        rows.merge([fact.stream.to_string()], &json!(0), [Delta::inc("", 1)])?;
        Ok(())
    });
    let count = count.on(["Placed", "Bought"]).streams(KeyPrefix::kind("order"));
    Projections::new(Arc::clone(store)).poll_interval(Duration::from_millis(20)).lease_ttl(LEASE).with(count)
}

struct Instance {
    release: Release,
    reactions: WorkerHandle<ReactionEngine>,
    projections: WorkerHandle<ProjectionEngine>,
}

impl Instance {
    async fn start(conn: &Conn, release: Release) -> Self {
        let reactions = reactions(&conn.0, release).start().await.expect("reactions start");
        let projections = projections(&conn.0, release).start().await.expect("projections start");
        Self { release, reactions, projections }
    }

    /// Ends the instance, by a shutdown or by a kill.
    async fn end(self, killed: bool) {
        if killed {
            self.reactions.abort().await;
            self.projections.abort().await;
        } else {
            self.reactions.shutdown().await;
            self.projections.shutdown().await;
        }
    }
}

/// How often an event must be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Once,
    Never,
    AtMostOnce,
}

/// Every event is handled exactly once by a release that knows it, however instances of two releases restart.
pub async fn r15_two_releases_restart_in_any_order(env: &Env) {
    let seed = run::seed();
    run::say(&format!("tck: rolling releases on {} from TIDELOCK_SEED={seed}", env.backend.name()));
    let mut rng = Rng::new(seed);
    let until = Instant::now() + secs(run::setting("TIDELOCK_ROLLING_SECONDS", SECONDS));
    let clock = Arc::clone(&env.clock);
    let ticking = tokio::spawn(async move {
        loop {
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(5)).await;
            clock.advance(began.elapsed());
        }
    });
    let mut expected: BTreeMap<i64, Times> = BTreeMap::new();
    let mut instances = Vec::new();
    for i in 0..INSTANCES {
        instances.push(Instance::start(if i % 2 == 0 { &env.store } else { &env.other }, First).await);
    }
    let (mut released, mut n) = (false, 0);
    while Instant::now() < until || !released {
        for _ in 0..rng.below(8) {
            append(env, &mut rng, n, released, &mut expected).await;
            n += 1;
        }
        if rng.one_in(4) {
            let old = instances.swap_remove(rng.below(INSTANCES));
            old.end(rng.one_in(3)).await;
            // The first release restarts now and then, while not all instances run the second one.
            let release = if n > 20 && !rng.one_in(3) { Second } else { First };
            released |= release == Second;
            instances
                .push(Instance::start(if rng.one_in(2) { &env.store } else { &env.other }, release).await);
        }
        tokio::time::sleep(Duration::from_millis(rng.within(0..20))).await;
    }
    let last = Instance::start(&env.store, Second).await;
    assert_eq!(last.reactions.quiesce().await.unwrap(), Quiescence::default(), "seed {seed}");
    last.projections.quiesce().await.unwrap();
    check(env, seed, &expected).await;
    for instance in instances {
        let killed = instance.release == First;
        instance.end(killed).await;
    }
    last.end(false).await;
    ticking.abort();
}

async fn append(env: &Env, rng: &mut Rng, n: i64, released: bool, expected: &mut BTreeMap<i64, Times>) {
    let kind = rng.pick(&["Placed", "Paid", "Bought", "Ordered", "Cancelled"]);
    let times = match kind {
        "Placed" | "Bought" => Times::Once,
        // Types of the second release count from its first start. A type that it removed may still be handled before
        // that.
        "Paid" if !released => Times::AtMostOnce,
        "Ordered" | "Cancelled" if released => Times::Once,
        _ => Times::Never,
    };
    expected.insert(n, times);
    let stream = Key::new("order", [rng.below(STREAMS) as i64]).unwrap();
    let conn = if rng.one_in(2) { &env.store } else { &env.other };
    conn.done(Batch::new().append(&stream, Expect::Any, [event(kind, n)])).await;
}

async fn check(env: &Env, seed: u64, expected: &BTreeMap<i64, Times>) {
    for (n, times) in expected {
        for name in ["ship", "bill"] {
            let found = env.other.value(&handled(name, *n)).await.map_or(0, |value| value.as_i64().unwrap());
            let right = match times {
                Times::Once => found == 1,
                Times::Never => found == 0,
                Times::AtMostOnce => found <= 1,
            };
            assert!(right, "{name} has handled event {n} {found} times, and not {times:?}; seed {seed}");
        }
    }
    let model = ReadModel::new(Arc::clone(&env.other.0), "rolling");
    assert_eq!(model.version().await.unwrap(), 2, "seed {seed}");
    let rows = model.rows::<u64>(None, 100).await.unwrap().rows;
    let counted: u64 = rows.iter().map(|(_, count)| count).sum();
    let mut log = LogQuery::all(limits::PAGE_ROWS);
    log.filter.types = vec![event_type("Placed"), event_type("Bought")];
    let placed = env.store.read_log(log).await.unwrap().events;
    let placed = placed.iter().filter(|event| event.stream.kind() == "order").count();
    assert_eq!(counted, placed as u64, "seed {seed}");
}

//! Crashes at every point of reactions (R7, R12), leases (K3, K7) and state (S2): each effect exists once, and nothing is stuck.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tidelock_core::lease;
use tidelock_core::reactions::Quiescence;
use tidelock_core::state::StateRegistry;

use crate::crash_points::{Outside, Process, Scenario, every_crash_point};
use crate::dump::rows;
use crate::prelude::*;
use crate::reacting::{GATHER, LEASE, PROJECT, gather_key, n, noted, shop};

/// Events that are routed to two reactions, one of them by a chosen key.
struct RoutedEvents;

/// Number of events.
const EVENTS: i64 = 7;

fn stream(n: i64) -> Key {
    Key::new("shop", [n % 2]).unwrap()
}

#[async_trait(?Send)]
impl Scenario for RoutedEvents {
    async fn prepare(&self, env: &Env) {
        for n in 0..EVENTS {
            env.store.done(Batch::new().append(&stream(n), Expect::Any, [event("Happened", n)])).await;
        }
    }

    async fn live(&self, process: &Process) {
        let running = shop(&process.store, LEASE).start().await.unwrap();
        assert_eq!(running.quiesce().await.unwrap(), Quiescence::default());
        running.shutdown().await;
    }

    async fn end(&self, env: &Env, _: &Outside) -> Value {
        for n in 0..2 {
            let expected: Vec<i64> = (0..EVENTS).filter(|event| event % 2 == n).collect();
            assert_eq!(noted(&env.store, PROJECT, &stream(n)).await, expected);
        }
        let log = env.store.log().await;
        for event in log.iter().filter(|event| event.stream.kind() == "shop") {
            let handled = noted(&env.store, GATHER, &gather_key(event)).await;
            let expected: Vec<i64> = (0..EVENTS).filter(|other| other % 3 == n(event) % 3).collect();
            assert_eq!(handled, expected);
        }
        let inboxes = KeyPrefix::kind("tidelock.inbox");
        let inboxes = crate::dump::pages(async |page| env.store.streams(&inboxes, page).await).await;
        let routed: Vec<Value> =
            inboxes.iter().map(|inbox| json!([inbox.key.to_string(), inbox.head, inbox.first])).collect();
        json!({ "routed": routed, "rows": rows(&env.store).await })
    }
}

/// Two holders of one lease, one of which waits for the other. Each writes once under its fence, renews and releases.
struct LeaseHolders;

async fn hold_and_write(store: SharedStore, name: &str) {
    let lock = key("lock");
    let held = lease::request(&store, &lock).owner(owner(name)).ttl(LEASE).acquire().await.unwrap();
    let done = store.document(&key(name)).await.unwrap();
    if done.is_none() {
        let effect = Batch::new().put(&key(name), Expect::Any, number(1)).merge_or_create(
            &key("order"),
            payload(json!({ "names": [] })),
            [Delta::push("/names", name)],
        );
        store.apply(held.guard(effect).unwrap()).await.unwrap();
    }
    store.apply(Batch::new().renew(held.lease(), LEASE)).await.unwrap();
    held.release().await.unwrap();
}

#[async_trait(?Send)]
impl Scenario for LeaseHolders {
    async fn live(&self, process: &Process) {
        let holders = ["a", "b"].map(|name| {
            let store = Arc::clone(&process.store);
            tokio::spawn(async move { hold_and_write(store, name).await })
        });
        for holder in holders {
            holder.await.unwrap();
        }
    }

    async fn end(&self, env: &Env, _: &Outside) -> Value {
        let mut names = env.store.value(&key("order")).await.unwrap()["names"].as_array().unwrap().clone();
        names.sort_by_key(ToString::to_string);
        json!({ "names": names, "rows": rows(&env.store).await })
    }
}

/// A process that repeats its mutations after a crash, because a mutator sees whether an earlier one was applied.
struct Mutations;

#[async_trait(?Send)]
impl Scenario for Mutations {
    async fn live(&self, process: &Process) {
        let states = StateRegistry::new(Arc::clone(&process.store));
        let record = states.at::<Vec<i64>>(key("record"));
        for n in 0..4 {
            let add = move |all: &mut Vec<i64>| {
                if !all.contains(&n) {
                    all.push(n);
                }
            };
            record.mutate(add).await.unwrap();
        }
    }

    async fn end(&self, env: &Env, _: &Outside) -> Value {
        let record = env.store.doc(&key("record")).await.unwrap();
        let value: Value = record.value.parse().unwrap();
        json!({ "value": value, "version": record.version })
    }
}

/// A process crashes at every point of routing and handling. Each event is routed once and handled once, in order.
pub async fn r7_every_crash_point_of_reactions(env: &Env) {
    every_crash_point("reactions", env, RoutedEvents).await;
}

/// A process crashes at every point of acquiring, writing under, renewing and releasing a lease. The next one gets the lease,
/// and each write under it exists once.
pub async fn k3_every_crash_point_of_a_lease(env: &Env) {
    every_crash_point("a lease", env, LeaseHolders).await;
}

/// A process crashes at every point of a mutation. Each mutation is one write, applied or not.
pub async fn s2_every_crash_point_of_mutations(env: &Env) {
    every_crash_point("mutations", env, Mutations).await;
}

//! Reactions under stress: two projections of the stocks, run by worker processes that are repeatedly replaced.
//!
//! The first projection adds without a check. Only the lease prevents it from counting an event twice. The second one
//! gathers the events of all stocks under a few keys and depends on their order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidelock_core::events::Aggregate as _;
use tidelock_core::failure::Failure;
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::reactions::{Reaction, ReactionCtx, Reactions};
use tidelock_core::store::{Batch, Delta, Event, Expect, SharedStore, StoredDocument};

use super::stock::{Move, Stock};
use crate::builders::payload;
use crate::conn::Conn;
use crate::process::{listen, say};
use crate::reacting::at_once;

/// Lease TTL: the time until other workers take over from a dead one.
const TTL: Duration = Duration::from_secs(1);
const SUM: &str = "stress-sum";
const CHAIN: &str = "stress-chain";
/// Number of keys under which the events of all stocks are gathered.
const CHAINS: i64 = 5;
const MODULUS: u64 = 1_000_000_007;

/// The number of events of a stock and the sum of their positions. A duplicate event cannot mask a missing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    count: u64,
    positions: u64,
}

/// The number of events under a chosen key, and a digest that also depends on their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chain {
    count: u64,
    digest: u64,
}

/// All documents of both projections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Projected {
    pub(crate) sums: BTreeMap<Key, Sum>,
    pub(crate) chains: BTreeMap<Key, Chain>,
}

impl Projected {
    /// Folds one more event.
    pub(crate) fn fold(&mut self, event: &Event) {
        let sum = self.sums.entry(sum_of(&event.stream)).or_default();
        sum.count += 1;
        sum.positions += event.position.0;
        self.chains.entry(chain_of(event)).or_default().fold(event);
    }

    /// Reads the documents that the reactions have written.
    pub(crate) async fn read(conn: &Conn) -> Self {
        Self { sums: documents(conn, SUM).await, chains: documents(conn, CHAIN).await }
    }

    /// Returns the documents that differ, with the actual and the expected content.
    pub(crate) fn differ(&self, expected: &Self) -> Vec<String> {
        let mut all = differences(&self.sums, &expected.sums);
        all.extend(differences(&self.chains, &expected.chains));
        all
    }
}

impl Chain {
    fn fold(&mut self, event: &Event) {
        self.count += 1;
        self.digest = (self.digest * 31 + event.position.0) % MODULUS;
    }
}

async fn documents<T: serde::de::DeserializeOwned>(conn: &Conn, kind: &str) -> BTreeMap<Key, T> {
    let range = KeyPrefix::kind(kind);
    let found = crate::dump::pages(async |page| conn.documents(&range, page).await).await;
    found
        .into_iter()
        .map(|document| (document.key, document.value.parse().expect("it was written")))
        .collect()
}

fn differences<T: PartialEq + std::fmt::Debug>(
    found: &BTreeMap<Key, T>,
    expected: &BTreeMap<Key, T>,
) -> Vec<String> {
    let keys: BTreeSet<&Key> = found.keys().chain(expected.keys()).collect();
    let pairs = keys.into_iter().map(|key| (key, found.get(key), expected.get(key)));
    let differ = pairs.filter(|(_, found, expected)| found != expected);
    differ.map(|(key, found, expected)| format!("{key} is {found:?} instead of {expected:?}")).collect()
}

/// Returns the key of the document of a stream.
fn sum_of(stream: &Key) -> Key {
    Key::new(SUM, [stream.to_string()]).expect("a short key")
}

/// Returns the key that an event is gathered under, which is also the key of its document.
fn chain_of(event: &Event) -> Key {
    let moved: Move = event.payload.parse().expect("it was written");
    Key::new(CHAIN, [moved.count.rem_euclid(CHAINS)]).expect("a short key")
}

/// Returns how many events of a stock the projection has counted.
pub(crate) async fn counted(conn: &Conn, stock: i64) -> u64 {
    let document = conn.doc(&sum_of(&Stock::stream(stock).expect("a short key"))).await;
    document.map_or(0, |document| document.value.parse::<Sum>().expect("it was written").count)
}

/// Returns both reactions. They retry without limit.
pub(crate) fn reactions(store: &SharedStore) -> Reactions {
    let patient = |name| {
        let streams = KeyPrefix::kind(Stock::KIND);
        Reaction::new(name).lease_ttl(TTL).retry(at_once(u32::MAX)).streams(streams)
    };
    let sums = patient("sums").each(async |_, event| Ok(add(&event)));
    let chains = patient("chains").to(|event| Some(chain_of(event))).batch(link);
    Reactions::new(Arc::clone(store)).with(sums).with(chains)
}

fn add(event: &Event) -> Batch {
    let empty = payload(json!({ "count": 0, "positions": 0 }));
    let position = i64::try_from(event.position.0).expect("a small log");
    let deltas = [Delta::inc("/count", 1), Delta::inc("/positions", position)];
    Batch::new().merge_or_create(&sum_of(&event.stream), empty, deltas)
}

async fn link(turn: ReactionCtx, events: Vec<Event>) -> Result<Batch, Failure> {
    let found: Option<StoredDocument> = turn.store().document(turn.key()).await?;
    let expect = found.as_ref().map_or(Expect::Absent, |document| Expect::Exact(document.version));
    let mut chain: Chain = found.map(|document| document.value.parse()).transpose()?.unwrap_or_default();
    events.iter().for_each(|event| chain.fold(event));
    Ok(Batch::new().put(turn.key(), expect, Payload::of(&chain)?))
}

/// The role of a child process. It runs reactions until the parent kills it or requests a shutdown.
pub(crate) async fn react(conn: Conn) {
    let running = reactions(&conn.0).start().await.expect("reactions start");
    say(&"running");
    listen().await;
    let done = running.shutdown().await;
    say(&done.reactions.values().map(|done| done.handled).sum::<u64>());
}

/// Checks that every event was copied once for the gathering reaction, and that no copy is left.
pub(crate) async fn check_inboxes(conn: &Conn, total: u64) {
    let range = KeyPrefix::kind("tidelock.inbox");
    let inboxes = crate::dump::pages(async |page| conn.streams(&range, page).await).await;
    let copies: u64 = inboxes.iter().filter_map(|inbox| inbox.head).map(|head| head.0 + 1).sum();
    assert_eq!(copies, total, "no event is left out, and none is routed twice");
    assert!(inboxes.iter().all(|inbox| inbox.first.is_none()), "what was handled is not kept: {inboxes:?}");
}

//! A server killed amid writes: a change and its audit event are both present, or neither is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidelock::prelude::*;
use tidelock::store::{Event, Page};

use super::{Serving, store, tokens};

/// The number of kills, unless `TIDELOCK_ROUNDS` sets another.
const ROUNDS: u64 = 8;
/// The number of concurrent clients.
const CLIENTS: u64 = 4;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A pseudo-random generator with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The observations of the clients of one round.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    over: AtomicBool,
}

/// Runs one client, which writes until the server is gone.
fn write(serving: &Serving, token: &str, client: u64, round: u64, seen: &Seen) {
    let mut fence = None;
    for n in 0.. {
        if seen.over.load(Ordering::Relaxed) {
            return;
        }
        let lease = format!("/api/v1/leases/l-{client}");
        let (method, path, body) = match n % 4 {
            0 => {
                let body = json!({"expected": "any", "events": [{"type": "A", "payload": n}]});
                ("POST", format!("/api/v1/streams/s-{client}/events"), body)
            }
            1 => ("PUT", format!("/api/v1/state/d-{client}-{round}-{n}"), json!({"value": n})),
            2 => ("POST", lease, json!({"owner": format!("c-{client}"), "ttl_ms": 100})),
            _ => match fence.take() {
                Some(fence) => ("DELETE", format!("{lease}?fence={fence}"), Value::Null),
                None => continue,
            },
        };
        let Some((status, said)) = serving.try_ask(method, &path, token, &body.to_string()) else { return };
        // A lease expires on its own, and one of an earlier round may not have expired yet.
        assert!(status < 300 || status == 409, "{method} {path}: {status} {said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        fence = said["fence"].as_u64().filter(|_| n % 4 == 2);
        seen.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets clients write, and kills the server after a number of responses.
fn round(path: &str, number: u64, random: &mut Random) -> u64 {
    let serving = Serving::start(&["serve", "--store", path, "--allow-writes", "--rate", "0"]);
    let (_, token) = tokens(Path::new(&format!("{path}.tokens")));
    let (seen, enough) = (Seen::default(), 20 + random.below(150));
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (serving, token, seen) = (&serving, &token, &seen);
            threads.spawn(move || write(serving, token, client, number, seen));
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while seen.answered.load(Ordering::Relaxed) < enough {
            assert!(Instant::now() < deadline, "the writes do not get on");
            std::thread::yield_now();
        }
        serving.kill();
        seen.over.store(true, Ordering::Relaxed);
    });
    seen.answered.into_inner()
}

async fn events(store: &SqliteStore, stream: &Key) -> Vec<Event> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let query = StreamQuery { from, ..StreamQuery::forward(stream, 1_000) };
        let page = store.read_stream(query).await.unwrap();
        from = page.events.last().map(|event| event.version.next());
        all.extend(page.events);
        if page.end {
            return all;
        }
    }
}

/// Compares the changes with their audit events, in both directions.
async fn compare(path: &Path, seed: u64) -> u64 {
    let store = SqliteStore::open(path, SqliteOptions::default()).await.unwrap();
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    for event in events(&store, &Key::single("tidelock.audit").unwrap()).await {
        let said: Value = event.payload.parse().unwrap();
        let name = match said["did"].as_str().unwrap() {
            "append" => format!("append {}", said["details"]["first"].as_str().unwrap()),
            did @ ("acquire" | "release") => format!("{did} {} {}", said["on"], said["details"]["fence"]),
            did => format!("{did} {}", said["on"].as_str().unwrap()),
        };
        *told.entry(name).or_default() += 1;
    }
    let twice: Vec<_> = told.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "told twice, with seed {seed}: {twice:?}");
    // An acquired lease may lack its audit event: no client has received it, and it expires.
    let mut done = Vec::new();
    for client in 0..CLIENTS {
        let stream = Key::single(&format!("s-{client}")).unwrap();
        done.extend(events(&store, &stream).await.iter().map(|event| format!("append {}", event.id)));
    }
    let mut page = Page::first(1_000);
    loop {
        let found = store.documents(&KeyPrefix::all(), page).await.unwrap();
        let ours = found.rows.iter().filter(|row| row.key.kind().starts_with("d-"));
        done.extend(ours.map(|row| format!("put {}", row.key)));
        let Some(next) = found.next else { break };
        page = Page::after(&next, 1_000);
    }
    let mut rest = told;
    for change in &done {
        assert_eq!(
            rest.remove(change),
            Some(1),
            "no audit event records this change, with seed {seed}: {change}"
        );
    }
    let undone: Vec<_> =
        rest.keys().filter(|name| !name.starts_with("acquire") && !name.starts_with("release")).collect();
    assert!(undone.is_empty(), "told, and never done, with seed {seed}: {undone:?}");
    store.close().await;
    done.len() as u64
}

#[tokio::test]
async fn a_change_and_its_audit_are_both_there_or_neither_when_the_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let seed = setting("TIDELOCK_SEED", 1);
    let (mut random, mut answered, mut found) = (Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), 0, 0);
    for number in 0..setting("TIDELOCK_ROUNDS", ROUNDS) {
        answered += round(path.to_str().unwrap(), number, &mut random);
        let changes = compare(&path, seed).await;
        assert!(changes > found, "nothing was written in round {number}");
        found = changes;
    }
    assert!(answered > 0);
}

//! The comparison of the ledger with the store, when the cluster is healthy and no client writes.

use std::collections::{BTreeMap, HashMap};

use tidelock_core::id::{OpId, Position};
use tidelock_core::store::{Event, LogQuery, Resolution, Store as _};
use tidelock_postgres::{PostgresOptions, PostgresStore};

use crate::client::{COUNTERS, counter_key, field, read_on};
use crate::ledger::{Ledger, Number, Verdict};

/// The numbers of the result, by name.
pub(crate) type Found = BTreeMap<String, u64>;

/// Compares, with a store whose caches are empty.
pub(crate) async fn compare(address: &str, schema: &str, ledger: &Ledger) -> crate::Result<Found> {
    let options = PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::default() };
    let store = PostgresStore::open(address, options).await?;
    // The reader continues from where it has come to, as a reader does after a pause.
    let mut after = ledger.with(|inner| inner.read_to);
    while read_on(&store, ledger, &mut after).await? {}
    let resolved = resolve(&store, ledger).await?;
    let log = read_log(&store).await?;
    let mut found = Found::new();
    writes(&log, ledger, &resolved, &mut found);
    numbers(&log, ledger, &mut found);
    found.insert("counters_off".to_owned(), counters(&store, &log).await?);
    ledger.with(|inner| {
        found.extend(inner.first_write("hosts").map(|ms| ("first_write_ms".to_owned(), ms)));
        found.extend(inner.gaps().into_iter().map(|(way, ms)| (format!("gap_{way}_ms"), ms)));
    });
    Ok(found)
}

/// Resolves every write with an id whose outcome is unknown. Returns whether it was applied.
async fn resolve(store: &PostgresStore, ledger: &Ledger) -> crate::Result<HashMap<Number, bool>> {
    let open: Vec<(Number, OpId)> = ledger.with(|inner| {
        let with_id = inner.writes.iter().filter_map(|(number, entry)| match &entry.verdict {
            Verdict::Unknown(Some(id)) => Some((*number, *id)),
            _ => None,
        });
        with_id.collect()
    });
    let mut resolved = HashMap::new();
    for (number, id) in open {
        resolved.insert(number, matches!(store.resolve(id).await?, Resolution::Applied(_)));
    }
    Ok(resolved)
}

async fn read_log(store: &PostgresStore) -> crate::Result<Vec<Event>> {
    let (mut log, mut after) = (Vec::new(), None::<Position>);
    loop {
        let query = after.map_or_else(|| LogQuery::all(1_000), |position| LogQuery::after(position, 1_000));
        let page = store.read_log(query).await?;
        after = page.scanned_to.or(page.events.last().map(|event| event.position)).or(after);
        log.extend(page.events);
        if page.end {
            return Ok(log);
        }
    }
}

/// Each write is in the log once, or not at all if its client got that outcome.
fn writes(log: &[Event], ledger: &Ledger, resolved: &HashMap<Number, bool>, found: &mut Found) {
    let mut times: HashMap<Number, u64> = HashMap::new();
    for number in log.iter().filter_map(|event| field(&event.payload, "number")) {
        *times.entry(number).or_default() += 1;
    }
    let mut add = |name: &str, count: u64| *found.entry(name.to_owned()).or_default() += count;
    ledger.with(|inner| {
        for (number, entry) in &inner.writes {
            let count = times.get(number).copied().unwrap_or_default();
            add("doubled", count.saturating_sub(1));
            if count > 1 || (count == 1 && entry.verdict == Verdict::NotApplied) {
                println!("write {number} is {count} times in the log, {}", entry.describe());
            }
            match entry.verdict {
                Verdict::Acknowledged => {
                    add("acked", 1);
                    add("lost", u64::from(count == 0));
                }
                Verdict::NotApplied => {
                    add("not_applied", 1);
                    add("false_not_applied", count.min(1));
                }
                Verdict::Unknown(_) => add("unknown", 1),
            }
            if let Some(applied) = resolved.get(number) {
                add("resolved", 1);
                add("wrong_verdicts", u64::from(*applied != (count > 0)));
            }
        }
    });
}

/// Fences and positions are given out once, a later fence wins, and the reader has seen every event.
fn numbers(log: &[Event], ledger: &Ledger, found: &mut Found) {
    let mut highest: HashMap<u64, u64> = HashMap::new();
    let mut stale = 0;
    for payload in log.iter().map(|event| &event.payload) {
        let Some((lock, fence)) = field(payload, "lock").zip(field(payload, "fence")) else { continue };
        let before = highest.entry(lock).or_default();
        stale += u64::from(fence < *before);
        *before = fence.max(*before);
    }
    ledger.with(|inner| {
        let mut skipped = 0;
        for event in log {
            let Some(number) = field(&event.payload, "number") else { continue };
            skipped += u64::from(inner.read.get(&event.position.0) != Some(&number));
            inner.at(event.position.0, number);
        }
        let repeated = |counts: &mut dyn Iterator<Item = bool>| {
            u64::try_from(counts.filter(|repeated| *repeated).count()).unwrap_or(u64::MAX)
        };
        let fences = repeated(&mut inner.fences.values().map(|count| *count > 1));
        let positions = repeated(&mut inner.positions.values().map(|writes| writes.len() > 1));
        let grants = inner.fences.values().sum();
        let named = [("grants", grants), ("repeated_fences", fences), ("stale_fences", stale)];
        found.extend(named.map(|(name, number)| (name.to_owned(), number)));
        found.insert("repeated_positions".to_owned(), positions);
        found.insert("skipped".to_owned(), skipped);
    });
}

/// By how much the counters differ from the events that were committed with them.
async fn counters(store: &PostgresStore, log: &[Event]) -> crate::Result<u64> {
    let mut expected = HashMap::<u64, u64>::new();
    for counter in log.iter().filter_map(|event| field(&event.payload, "counter")) {
        *expected.entry(counter).or_default() += 1;
    }
    let mut off = 0;
    for counter in 0..COUNTERS {
        let document = store.document(&counter_key(counter)?).await?;
        let value: u64 = document.map(|document| document.value.parse()).transpose()?.unwrap_or_default();
        off += value.abs_diff(expected.get(&counter).copied().unwrap_or_default());
    }
    Ok(off)
}

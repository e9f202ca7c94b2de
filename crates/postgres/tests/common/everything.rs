//! Every operation of a store, once, for tests of the rights and settings that a store needs. It fails with the
//! operation that failed.

use std::time::Duration;

use tidelock_core::clock::{Due, Timestamp};
use tidelock_core::error::Explain;
use tidelock_core::id::{EventType, OpId, Owner, QueueName, StreamVersion};
use tidelock_core::key::{Key, KeyPrefix};
use tidelock_core::payload::Payload;
use tidelock_core::store::{
    Batch, Claim, Delta, Expect, LogQuery, NewEvent, NewWork, Operation, Page, Pattern, Selection,
    Store as _, StreamQuery, Sweep, WorkFilter,
};
use tidelock_postgres::PostgresStore;

const TTL: Duration = Duration::from_secs(60);

fn key(name: &str, run: &str) -> Key {
    Key::new(name, [run]).unwrap()
}

fn event() -> NewEvent {
    NewEvent::new(EventType::new("Happened").unwrap(), Payload::of(&1).unwrap())
}

fn said(error: impl Explain) -> String {
    format!("{}: {error}", error.code())
}

/// Runs every operation on its own rows. `run` distinguishes them from those of other runs.
pub(crate) async fn do_everything(store: &PostgresStore, run: &str) -> Result<(), String> {
    write(store, run).await?;
    work(store, run).await?;
    read(store, run).await?;
    truncate(store, run).await?;
    let now = store.now().await.map_err(said)?;
    let sweep =
        Sweep { tombstones_before: Some(now.after(TTL)), operations_before: Some(now.after(TTL)), limit: 99 };
    let swept = store.sweep(sweep).await.map_err(said)?;
    match (swept.expired, swept.tombstones, swept.operations) {
        (1.., 1.., 1..) => Ok(()),
        _ => Err(format!("{swept:?}")),
    }
}

async fn write(store: &PostgresStore, run: &str) -> Result<(), String> {
    let (stream, document) = (key("stream", run), key("document", run));
    let first = Batch::new()
        .append(&stream, Expect::Absent, [event()])
        .put(&document, Expect::Absent, Payload::of(&1).unwrap())
        .put_until(&key("gone", run), Expect::Any, Payload::null(), Due::At(Timestamp::EPOCH))
        .put(&key("deleted", run), Expect::Any, Payload::null())
        .guard_document(&key("none", run), Expect::Absent)
        .guard_stream(&key("none", run), Expect::Absent)
        .op_id(OpId::new());
    let receipt = store.apply(first.clone()).await.map_err(said)?;
    let again = store.apply(first).await.map_err(said)?;
    if !again.repeated || again.appended != receipt.appended {
        return Err(format!("{again:?} is not {receipt:?}"));
    }
    let second = Batch::new()
        .append(&stream, Expect::Any, [event(), event()])
        .merge(&document, [Delta::inc("", 1)])
        .delete(&key("deleted", run), Expect::Exists);
    store.apply(second).await.map_err(said)?;
    store.apply(Batch::new().close(&stream, Expect::Exists)).await.map_err(said)?;
    let closed = store.apply(Batch::new().append(&stream, Expect::Any, [event()])).await;
    match closed {
        Err(error) if error.code().as_str() == "TL0205" => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

async fn work(store: &PostgresStore, run: &str) -> Result<(), String> {
    let (owner, queue): (Owner, QueueName) =
        ("worker".parse().unwrap(), format!("lane-{run}").parse().unwrap());
    let mut jobs = Batch::new();
    for name in ["job", "other", "third"] {
        let follow = Some(key("stream", run));
        jobs = jobs.enqueue(NewWork { follow, ..NewWork::once(key(name, run), queue.clone()) });
    }
    store.apply(jobs).await.map_err(said)?;
    let claimed = store.claim(Claim::queues(&owner, [queue.clone()], 3, TTL).with_events(9)).await;
    let claimed = claimed.map_err(said)?;
    let [one, two, three] = claimed.grants.as_slice() else { return Err(format!("{claimed:?}")) };
    if one.events.len() != 3 {
        return Err(format!("{:?} are not the three events", one.events));
    }
    let position = one.events.last().unwrap().position;
    let end = Batch::new().advance(&one.lease(), position).renew(&one.lease(), TTL).ack(&one.lease());
    let end = end.fail(&two.lease(), "it broke", Due::After(TTL)).block(&three.lease(), "it cannot be");
    store.apply(end).await.map_err(said)?;
    let nothing = store.claim(Claim::queues(&owner, [queue.clone()], 3, TTL)).await.map_err(said)?;
    if !nothing.grants.is_empty() || nothing.next_at.is_none() {
        return Err(format!("{nothing:?}"));
    }
    store.claim(Claim::named(&owner, &key("lock", run), &queue, TTL)).await.map_err(said)?;
    let mine = WorkFilter { queue: Some(queue), ..WorkFilter::default() };
    if store.count_work(&mine).await.map_err(said)? != 3 {
        return Err("there are not three rows".to_owned());
    }
    let remove = Batch::new().operate(Selection::Filter(mine.clone()), Operation::Remove);
    store.apply(remove).await.map_err(said)?;
    let left = store.works(&mine, Page::first(9)).await.map_err(said)?;
    if left.rows.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
}

async fn truncate(store: &PostgresStore, run: &str) -> Result<(), String> {
    let stream = key("stream", run);
    store.apply(Batch::new().truncate(&stream, StreamVersion(2))).await.map_err(said)?;
    let left = store.read_stream(StreamQuery::forward(&stream, 9)).await.map_err(said)?.events.len();
    if left == 1 { Ok(()) } else { Err(format!("{left} events are left of three")) }
}

async fn read(store: &PostgresStore, run: &str) -> Result<(), String> {
    let (stream, document) = (key("stream", run), key("document", run));
    let value = store.document(&document).await.map_err(said)?.map(|document| document.value);
    let page = store.documents(&KeyPrefix::kind("document"), Page::first(9)).await.map_err(said)?;
    let events = store.read_stream(StreamQuery::backward(&stream, 9)).await.map_err(said)?.events.len();
    let log = store.read_log(LogQuery::all(9)).await.map_err(said)?.events.len();
    let info = store.stream(&stream).await.map_err(said)?;
    let streams = store.streams(&KeyPrefix::all(), Page::first(9)).await.map_err(said)?.rows.len();
    let blocked = WorkFilter { blocked: Some(true), ..WorkFilter::default() };
    let pattern = Some(Pattern::new("^nothing").unwrap());
    store.works(&WorkFilter { pattern, ..blocked }, Page::first(9)).await.map_err(said)?;
    store.work(&key("job", run)).await.map_err(said)?;
    store.operation(OpId::new()).await.map_err(said)?;
    store.stalls().await.map_err(said)?;
    store.info().await.map_err(said)?;
    let closed = info.is_some_and(|info| info.closed_at.is_some());
    let right = value == Some(Payload::of(&2).unwrap()) && !page.rows.is_empty() && events == 3 && closed;
    if right && log >= 3 && streams >= 1 { Ok(()) } else { Err("a read missed something".to_owned()) }
}

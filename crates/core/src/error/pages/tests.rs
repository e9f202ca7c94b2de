//! Tests of the error pages. Every code has a page with the same sections, and its example is the message that programs
//! print.

use super::{all, example, page};
use crate::clock::Timestamp;
use crate::error::{Explain, InvalidInput};
use crate::id::{DocVersion, Epoch, Fence, Owner, StreamVersion};
use crate::key::Key;
use crate::lease::{LeaseError, LeaseWaiter, LostReason};
use crate::model::batch::Expect;
use crate::model::pattern::Pattern;
use crate::model::refusal::{DocumentFound, Holder, Refusal, StreamFound};
use crate::model::rows::LeaseRow;
use crate::payload::Payload;
use crate::store::{StoreError, StoreErrorKind};

#[test]
fn each_page_begins_with_its_code_and_has_every_section() {
    for (code, text) in all() {
        assert!(text.starts_with(&format!("# {code}: ")), "{code} begins with another title");
        for section in ["## What happened", "## Why", "## What to do", "## Example message"] {
            assert_eq!(text.matches(section).count(), 1, "{code}: section {section:?}");
        }
    }
}

#[test]
fn codes_are_sorted_and_unique() {
    assert!(all().is_sorted_by(|(a, _), (b, _)| a < b));
}

#[test]
fn a_page_is_found_in_either_case_and_others_are_not() {
    assert_eq!(page("TL0202"), page("tl0202"));
    assert!(page("TL0202").is_some_and(|text| text.contains("a document is not as expected")));
    assert_eq!(page("TL9999"), None);
    assert_eq!(page(""), None);
}

#[test]
fn each_example_is_the_real_message() {
    let mut checked = Vec::new();
    let errors = invalid()
        .into_iter()
        .chain(refusals())
        .chain(failures())
        .chain(locks())
        .chain(leases())
        .chain(states())
        .chain(reactions())
        .chain(events())
        .chain(books())
        .chain(projections())
        .chain(crate::workflow::error_pages_tests::examples().unwrap())
        .chain(crate::schedule::error_pages_tests::examples())
        .chain(crate::idempotency::error_pages_tests::examples().unwrap())
        .chain(crate::outbox::error_pages_tests::examples());
    for error in errors {
        let code = error.code().as_str();
        let example = example(code).unwrap_or_else(|| panic!("{code} has no page with an example"));
        assert_eq!(without_places(example), without_places(&error.to_string()), "{code}");
        checked.push(code);
    }
    checked.sort_unstable();
    // The crates `tidelock-sealed`, `tidelock-http` and `tidelock-server` check their own pages.
    let elsewhere = |code: &str| ["TL09", "TL121", "TL13"].iter().any(|start| code.starts_with(start));
    let codes: Vec<&str> = all().iter().map(|(code, _)| *code).filter(|code| !elsewhere(code)).collect();
    assert_eq!(checked, codes);
}

/// Returns the text with every source location replaced by one word.
fn without_places(text: &str) -> String {
    let word = |word: &str| match word.split_once(".rs:") {
        Some((_, rest)) => {
            format!("PLACE{}", rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':'))
        }
        None => word.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Errors of all types, for comparison with their pages.
pub(crate) type Examples = Vec<Box<dyn Explain>>;

/// Boxes errors of one type.
pub(crate) fn boxed<E: Explain + 'static>(errors: impl IntoIterator<Item = E>) -> Examples {
    errors.into_iter().map(|error| Box::new(error) as Box<dyn Explain>).collect()
}

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn invalid() -> Examples {
    let limit = crate::model::limits::PAYLOAD_BYTES;
    let what = "the payload length in bytes";
    boxed([
        "cart(user-17)".parse::<Key>().unwrap_err(),
        Payload::from_json("{a: 1}").unwrap_err(),
        Owner::new("").unwrap_err(),
        Pattern::new("^mail(").unwrap_err(),
        InvalidInput::Limit { what, subject: key(r#"cart("user-17")"#).to_string(), found: limit + 1, limit },
        InvalidInput::Reserved { name: r#"base("account", "ann")"#.to_owned() },
    ])
}

fn refusals() -> Examples {
    let (order, cart, mail) = (key(r#"order("o-1")"#), key(r#"cart("user-17")"#), key(r#"mail("o-1")"#));
    let until = Timestamp::from_micros(1_000_000_060_000_000);
    let owner = Owner::new("worker-2").unwrap();
    let held = LeaseRow { owner, fence: Fence(9), since: until, until };
    let all = [
        Refusal::Stream {
            index: 0,
            stream: order.clone(),
            expected: Expect::Exact(StreamVersion(3)),
            found: StreamFound::At(StreamVersion(5)),
        },
        Refusal::Document {
            index: 0,
            key: cart.clone(),
            expected: Expect::Exact(DocVersion(3)),
            found: Box::new(DocumentFound::Gone(DocVersion(4))),
        },
        Refusal::Work { index: 2, key: mail.clone(), exists: true },
        Refusal::Fenced { index: 1, key: mail, fence: Fence(7), holder: Box::new(Holder::Held(held)) },
        Refusal::StreamClosed { index: 0, stream: order.clone(), head: Some(StreamVersion(4)) },
        Refusal::NotFound { index: 0, key: cart.clone() },
        Refusal::Delta {
            index: 0,
            key: cart,
            path: "/total".to_owned(),
            needed: "a number",
            found: "a text".to_owned(),
        },
        Refusal::EventIdReused {
            index: 0,
            id: "019a8f3e-7c1d-7000-8000-000000000001".parse().unwrap(),
            stream: order.clone(),
            version: StreamVersion(0),
            reason: "it has another type, payload or note",
        },
        Refusal::Epoch { observed: Epoch(1_700_000_000_000_000), current: Epoch(1_800_000_000_000_000) },
        Refusal::TruncateBeyond {
            index: 0,
            stream: order.clone(),
            before: StreamVersion(9),
            head: StreamVersion(4),
        },
        Refusal::TruncateTooMuch {
            index: 0,
            stream: order,
            before: StreamVersion(25_000),
            found: 25_000,
            step_to: StreamVersion(10_000),
        },
        Refusal::OperationVoid { id: "019a8f3e-7c1d-7000-8000-000000000002".parse().unwrap() },
    ];
    boxed(all)
}

fn failures() -> Examples {
    use StoreErrorKind as Kind;
    let all = [
        (Kind::Busy, "waiting to write the SQLite database", "another process held it for 30s"),
        (Kind::Full, "using the SQLite database", "database or disk is full (SQLite code 13)"),
        (Kind::ReadOnly, "opening the SQLite database shop.db", "the file may not be written by this user"),
        (Kind::Corrupt, "using the SQLite database", "database disk image is malformed (SQLite code 11)"),
        (Kind::Io, "committing to the SQLite database", "disk I/O error (SQLite code 1034)"),
        (Kind::Closed, "using the SQLite database shop.db", "the store was closed"),
        (Kind::Bug, "deciding a batch", "2 event ids were not loaded"),
        (Kind::Unreachable, "connecting to postgres://app@db.example.com:5432/shop", "connection refused"),
        (Kind::Unsupported, "appending events to order(\"o-1\")", "the files store keeps documents only"),
        (Kind::CannotOpen, "opening the SQLite database data/shop.db", "the directory data does not exist"),
        (
            Kind::PositionLost,
            "cannot read the log after position 100",
            "epoch 1800000000000000 lost the events after position 50 and continues at 1800000000000001",
        ),
        (Kind::PositionBeyond, "cannot read the log after position 1000", "the log ends at position 50"),
        (
            Kind::TransactionConflict,
            "applying a batch in a transaction",
            "another transaction changed a row since this one began (could not serialize access due to concurrent update (SQLSTATE 40001))",
        ),
        (
            Kind::ForeignTransaction,
            "cannot apply a batch in a transaction of rusqlite",
            "it is on the file /srv/other.db, and the store is the file /srv/shop.db",
        ),
        (
            Kind::UnsupportedEngine,
            "opening the PostgreSQL store",
            "the server takes advisory locks and does not show them in pg_locks, so that readers would skip events; it is not PostgreSQL, or its catalog was changed",
        ),
        (
            Kind::SchemaTooNew,
            "opening the SQLite database shop.db",
            "the schema has version 3, written by tidelock 0.4.0; this program knows versions up to 1",
        ),
        (
            Kind::ForeignDatabase,
            "opening the SQLite database app.db",
            r#"the file holds another application's tables, "users" among them, and none of Tidelock's; SqliteOptions::shared puts both into one file"#,
        ),
        (
            Kind::SettingNotInForce,
            "opening the SQLite database shop.db",
            "journal_mode was set to wal and reads back as delete",
        ),
        (
            Kind::Migration,
            "opening the SQLite database shop.db",
            "table tidelock_leases already exists (SQLite code 1)",
        ),
    ];
    boxed(all.map(|(kind, what, detail)| StoreError::new(kind, what, detail)))
}

fn locks() -> Examples {
    use crate::external_update::UpdateError;
    use crate::lock::{Busy, Cycle, CycleLink, LockClass, LockError, LockKey, LockKeyError, TaskId};
    static CART: LockClass = LockClass::new("cart").rank(10);
    static STOCK: LockClass = LockClass::new("stock").rank(20);
    static GRAPH: LockClass = LockClass::new("graph");
    let here = std::panic::Location::caller();
    let term = |functor: &'static LockClass, name: &str| -> LockKey { functor.key([name]).unwrap() };
    let (cart, stock) = (term(&CART, "user-17"), term(&STOCK, "apples"));
    let (one, other) = (TaskId::numbered(12), TaskId::numbered(15));
    let link = |task, term: &LockKey, holder| CycleLink {
        task,
        term: term.clone(),
        asked: here,
        holder,
        held: here,
    };
    let cycle = Cycle(vec![link(one, &stock, other), link(other, &cart, one)]);
    let state = |waiting| Busy { held: Some(here), holders: 1, waiting };
    let all = [
        LockError::Reentrant { term: cart.clone(), task: one, asked: here, held: here },
        LockError::Deadlock { cycle },
        LockError::OutOfOrder {
            term: cart.clone(),
            rank: 10,
            task: one,
            asked: here,
            above: stock,
            above_rank: 20,
            held: here,
        },
        LockError::TimedOut { term: cart.clone(), asked: here, state: state(3) },
        LockError::Busy { term: cart, asked: here, state: state(0) },
        LockError::Mode {
            term: term(&GRAPH, "main"),
            from: "observe",
            to: 0,
            names: &["rebuild", "pull", "observe"],
        },
    ];
    let twice = LockKeyError::Twice { name: "cart", first: here, second: here };
    static REPOSITORY: LockClass = LockClass::new("repository");
    let (term, reason) = (term(&REPOSITORY, "main"), "fetch first".to_owned());
    let rejected: UpdateError<std::io::Error> =
        UpdateError::Rejected { term, asked: here, attempts: 5, reason };
    let failed = UpdateError::Failed(std::io::Error::other("no route to host"));
    let mut examples = boxed(all);
    examples.extend(boxed([twice]));
    examples.extend(boxed([rejected, failed]));
    examples
}

fn leases() -> Examples {
    let key = key(r#"report("nightly")"#);
    let since = Timestamp::from_micros(1_000_000_000_000_000);
    let until = Timestamp::from_micros(1_000_000_060_000_000);
    let owner = Owner::new("worker-2/9f86d081884c-7").unwrap();
    let waiter = LeaseWaiter { owner: owner.clone(), since };
    let reason = LostReason::Taken { by: owner.clone(), fence: Fence(9) };
    let all = [
        LeaseError::Held { key: key.clone(), owner, since, until, fence: Fence(9) },
        LeaseError::TimedOut { key: key.clone(), waited: std::time::Duration::from_secs(5) },
        LeaseError::Lost { key: key.clone(), fence: Fence(7), reason },
        LeaseError::Reentrant {
            key: key.clone(),
            held_at: "src/report.rs:12:30".to_owned(),
            asked_at: "src/mail.rs:40:17".to_owned(),
        },
        LeaseError::Waited { key: key.clone(), waiters: vec![waiter.clone(), waiter.clone(), waiter] },
        LeaseError::Blocked { key, reason: "the ledger does not add up".to_owned() },
        LeaseError::NoKeeper { reason: "Resource temporarily unavailable (os error 11)".to_owned() },
    ];
    boxed(all)
}

fn states() -> Examples {
    use crate::state::{Stage, StateError};
    let name = || key(r#"session("s-1", "cart")"#).to_string();
    let limit = std::time::Duration::from_secs(30);
    let reason = "the payload does not fit: missing field `items` at line 1 column 2".to_owned();
    let lost = "the payload does not fit: missing field `change` at line 1 column 2".to_owned();
    let all = [
        StateError::TimedOut { key: name(), limit, stage: Stage::NotStarted },
        StateError::ConcurrentModification { key: name(), attempts: 3, current: Some(DocVersion(7)) },
        StateError::Reentrant { key: name() },
        StateError::Undecodable { key: name(), version: DocVersion(7), reason },
        StateError::Invalid { key: name(), reason: "below zero".to_owned() },
        StateError::NotFound { key: name() },
        StateError::NoRuntime {
            key: name(),
            reason: "Resource temporarily unavailable (os error 11)".to_owned(),
        },
        StateError::Panicked {
            key: name(),
            reason: "the clone of the value panicked: no clones today".to_owned(),
            stage: Stage::NotApplied,
        },
        StateError::NewerSchema { key: name(), version: DocVersion(7), found: 3, known: 2 },
        StateError::History { key: name(), event: StreamVersion(4), reason: lost },
    ];
    boxed(all)
}

fn events() -> Examples {
    use crate::events::EventsError;
    use crate::id::EventType;
    let stream = || key(r#"stock("apples")"#);
    let lost = "the payload does not fit: unknown variant `Lost`".to_owned();
    let nameless = InvalidInput::Payload { reason: "an event has no name".to_owned() };
    let all = [
        EventsError::Concurrency {
            stream: stream(),
            expected: Expect::Exact(StreamVersion(3)),
            actual: StreamFound::At(StreamVersion(5)),
            attempts: 1,
        },
        EventsError::Closed { stream: stream(), head: Some(StreamVersion(5)) },
        EventsError::Undecodable {
            stream: stream(),
            version: StreamVersion(4),
            event_type: EventType::new("Lost").unwrap(),
            reason: lost,
        },
        EventsError::Unwritable { stream: stream(), reason: nameless },
        EventsError::NotKept { stream: stream(), kind: "stock" },
        EventsError::Archived { stream: stream(), first: StreamVersion(500) },
        EventsError::Base {
            stream: key(r#"account("ann")"#),
            base: key(r#"base("account", "ann")"#),
            first: StreamVersion(9),
            reason: "is missing",
        },
        EventsError::Gap { stream: key(r#"account("ann")"#), from: StreamVersion(0), to: StreamVersion(3) },
        EventsError::Turn { stream: key(r#"account("ann")"#), waited: std::time::Duration::from_secs(30) },
    ];
    boxed(all)
}

fn books() -> Examples {
    use crate::archive::{ArchiveError, ArchiveMode, Removal};
    use crate::reactions::{Pending, PendingReason};
    let stream = || key(r#"stock("apples")"#);
    let pending = |reaction: &str, waits| Pending { reaction: reaction.to_owned(), key: stream(), waits };
    let full = std::io::Error::other("the disk is full");
    let all = [
        ArchiveError::Pending {
            stream: stream(),
            pending: vec![
                pending("reserve-stock", PendingReason::Worker),
                pending("send-mail", PendingReason::Unblocking),
            ],
        },
        ArchiveError::Archive {
            stream: stream(),
            first: StreamVersion(500),
            last: StreamVersion(999),
            error: std::sync::Arc::new(full),
        },
        ArchiveError::UnderWay { stream: stream(), was: ArchiveMode::Restart, asked: ArchiveMode::Tombstone },
        ArchiveError::Removal { stream: key(r#"account("ann")"#), begun: Removal::Discard },
    ];
    boxed(all)
}

fn reactions() -> Examples {
    use crate::reactions::ReactionsError;
    let name = || "reserve-stock".to_owned();
    let known = vec![name(), "send-mail".to_owned()];
    let all = [
        ReactionsError::Twice { name: name() },
        ReactionsError::Name { name: String::new(), reason: "it is empty".to_owned() },
        ReactionsError::NoHandler { name: name() },
        ReactionsError::NoRuntime,
        ReactionsError::Changed { name: name(), was: "the stream of each event", is: "a key of its own" },
        ReactionsError::Unknown { name: "reserve".to_owned(), known },
        ReactionsError::Running { name: name(), owner: Owner::new("worker-2").unwrap() },
        ReactionsError::UnknownEvent {
            name: name(),
            kind: "order",
            event: "Place".to_owned(),
            known: vec!["Placed", "Cancelled"],
        },
    ];
    boxed(all)
}

fn projections() -> Examples {
    use crate::projections::ProjectionsError;
    let (name, reason) = (|| "sold".to_owned(), "events wait to be routed");
    let all = [
        ProjectionsError::Unknown { name: name() },
        ProjectionsError::Behind { name: name(), version: 2, live: 1, reason },
    ];
    boxed(all)
}

//! Index documents are listed and counted past their tombstones. Only here: SQLite counts the steps of a query.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rusqlite::{Connection, StatementStatus};
use tidelock_core::key::{Arg, INDEX_KIND, KeyPrefix};
use tidelock_core::store::Page;

use super::visible;

/// Returns the number of SQLite VM steps for counting a range.
fn steps(db: &Connection, prefix: &KeyPrefix) -> i32 {
    let page = Page::first(1);
    let (condition, from, below) = visible(prefix, &page);
    let mut statement = db.prepare(&format!("SELECT count(*) FROM {condition}")).unwrap();
    let count: i64 = statement.query_row((from, below, 0), |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    statement.get_status(StatementStatus::VmStep)
}

#[test]
fn tombstones_of_index_documents_cost_lists_and_counts_nothing() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(include_str!("../../migrations/0001_foundation.sql")).unwrap();
    let put = |range: &KeyPrefix, n: i64, value: Option<&str>| {
        let key = format!("{}#{n:05}", range.from());
        let sql = "INSERT INTO tidelock_documents VALUES (?1, 1, ?2, 0, NULL)";
        db.execute(sql, (key, value)).unwrap();
    };
    let [clean, moved, other] = [(INDEX_KIND, "clean"), (INDEX_KIND, "moved"), ("other", "moved")]
        .map(|(kind, name)| KeyPrefix::under(kind, &[Arg::Str(name.to_owned())]));
    for range in [&clean, &moved, &other] {
        put(range, 0, Some("1"));
    }
    for n in 1..2_000 {
        put(&moved, n, None);
        put(&other, n, None);
    }
    let (moved, clean) = (steps(&db, &moved), steps(&db, &clean));
    assert!(moved <= clean + 5, "{moved} steps beside {clean}");
    assert!(steps(&db, &other) > 2_000, "the case measures what it means to");
}

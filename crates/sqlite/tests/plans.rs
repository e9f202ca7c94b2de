//! The cost of a claim does not grow with the number of rows: the plans use the indexes that were made for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidelock_sqlite::rusqlite::Connection;
use tidelock_sqlite::{Options, SqliteStore};

/// How SQLite would carry out a statement.
fn plan(db: &Connection, sql: &str) -> String {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn claims_heads_and_removals_seek_and_never_scan_or_sort() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let _store = SqliteStore::open(&path, Options::default()).await.unwrap();
    let db = Connection::open(&path).unwrap();
    let source = [
        include_str!("../src/claim.rs"),
        include_str!("../src/places.rs"),
        include_str!("../src/truncate.rs"),
    ]
    .concat();
    let source = source.replace("\\\n    ", "");
    for name in ["NEXT_LEVEL", "OLDEST", "FIRST_AT"] {
        let plan = plan(&db, statement(&source, name));
        assert!(plan.contains("SEARCH") && plan.contains("INDEX tidelock_"), "{name}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
    for name in ["HEAD", "VERSION_AT", "FORWARD", "BACKWARD", "REMOVE_INDEXED", "REMOVE_PLACES"] {
        let sql = statement(&source, name);
        let sql =
            if sql.starts_with("FROM") { format!("SELECT e.payload, s.key {sql}") } else { sql.to_owned() };
        let plan = plan(&db, &sql);
        assert!(plan.contains("USING PRIMARY KEY (stream=?"), "{name}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
}

/// The text of a constant.
fn statement<'a>(source: &'a str, name: &str) -> &'a str {
    let start = source.find(&format!("const {name}: &str = \"")).unwrap();
    source[start..].split('"').nth(1).unwrap()
}

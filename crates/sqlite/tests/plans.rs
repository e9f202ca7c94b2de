//! Query plans: the cost of a claim and of a sweep does not grow with the number of rows. The plans use the indexes
//! that were made for them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tidelock_sqlite::rusqlite::{Connection, StatementStatus};
use tidelock_sqlite::{SqliteOptions, SqliteStore};

/// Returns SQLite's query plan of a statement.
fn plan(db: &Connection, sql: &str) -> String {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn claims_heads_and_removals_seek_and_never_scan_or_sort() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let _store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let db = Connection::open(&path).unwrap();
    let source = [
        include_str!("../src/claim.rs"),
        include_str!("../src/event_locator.rs"),
        include_str!("../src/truncate.rs"),
    ]
    .concat();
    let source = source.replace("\\\n    ", "");
    for name in ["NEXT_LEVEL", "OLDEST", "FIRST_AFTER"] {
        let plan = plan(&db, statement(&source, name));
        assert!(plan.contains("SEARCH") && plan.contains("INDEX tidelock_"), "{name}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
    for name in ["HEAD", "POSITION_OF", "FORWARD", "BACKWARD", "REMOVE_INDEXED", "REMOVE_PLACES"] {
        let sql = statement(&source, name);
        let sql =
            if sql.starts_with("FROM") { format!("SELECT e.payload, s.key {sql}") } else { sql.to_owned() };
        let plan = plan(&db, &sql);
        assert!(plan.contains("USING PRIMARY KEY (stream=?"), "{name}: {plan}");
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
    }
}

/// Returns the text of a constant.
fn statement<'a>(source: &'a str, name: &str) -> &'a str {
    let start = source.find(&format!("const {name}: &str = \"")).unwrap();
    source[start..].split('"').nth(1).unwrap()
}

/// Returns the number of SQLite VM steps for a statement with two parameters.
fn steps(db: &Connection, sql: &str, parameters: (i64, i64)) -> i32 {
    let mut statement = db.prepare(sql).unwrap();
    let mut rows = statement.query(parameters).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(StatementStatus::VmStep)
}

#[tokio::test]
async fn d11_a_sweep_with_nothing_to_do_costs_the_same_beside_many_documents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let _store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
         INSERT INTO tidelock_documents (key, version, value, updated_at, expires_at)
         SELECT 'doc' || n, n, CASE WHEN n % 2 THEN '1' END, n, CASE WHEN n % 2 THEN 1000000 END FROM n",
    )
    .unwrap();
    let source = include_str!("../src/sweep.rs").replace("\\\n    ", "");
    for name in ["EXPIRE", "FORGOTTEN", "FORGET"] {
        let sql = statement(&source, name);
        let plan = plan(&db, sql);
        assert!(!plan.contains("SCAN tidelock") && !plan.contains("TEMP B-TREE"), "{name}: {plan}");
        let steps = steps(&db, sql, (1, 1_000));
        assert!(steps < 500, "{name} takes {steps} steps beside 100,000 documents");
    }
}

//! Only here: the cost of a filter, tested without a plan, because SQLite counts the steps of a scan.

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, StatementStatus};
use tidelock_core::id::QueueName;
use tidelock_core::key::Key;
use tidelock_core::store::{Pattern, WorkFilter};

use super::WorkCondition;

/// Creates 100,000 rows in one queue, and a few of each kind that filters select.
fn database() -> Connection {
    let db = Connection::open_in_memory().expect("a database in memory");
    db.execute_batch(include_str!("../../migrations/0001_foundation.sql")).expect("the schema");
    let matches = |context: &rusqlite::functions::Context<'_>| {
        let (pattern, text): (String, String) = (context.get(0)?, context.get(1)?);
        Ok(Pattern::new(&pattern).is_ok_and(|pattern| pattern.matches(&text)))
    };
    db.create_scalar_function("tidelock_matches", 2, FunctionFlags::SQLITE_UTF8, matches)
        .expect("a function");
    let rows = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
        INSERT INTO tidelock_work (key, queue, priority, recurring, ready_at, due_at, payload, attempts, takeovers,
            enqueued_at, blocked_reason, blocked_at, lease_owner)
        SELECT CASE n % 20000 WHEN 3 THEN 'special' ELSE 'job' END || n, CASE n % 20000 WHEN 0 THEN 'few' ELSE 'many' END,
            5, 0, n, n, 'null', 0, 0, 0, CASE n % 20000 WHEN 1 THEN 'no' END, CASE n % 20000 WHEN 1 THEN 1 END,
            CASE n % 20000 WHEN 2 THEN 'worker' END FROM n";
    db.execute_batch(rows).expect("rows");
    db
}

/// Returns the number of rows that a statement returns, and the SQLite VM steps that it takes.
fn run(db: &Connection, sql: &str, condition: &WorkCondition<'_>) -> (usize, i32) {
    let mut statement = db.prepare(sql).expect("a statement");
    let mut found = statement.query(condition.parameters()).expect("an answer");
    let mut count = 0;
    while found.next().expect("a row").is_some() {
        count += 1;
    }
    drop(found);
    (count, statement.get_status(StatementStatus::VmStep))
}

#[test]
fn d11_filtered_lists_and_counts_read_what_matches() {
    let db = database();
    let queue = |name: &str| Some(QueueName::new(name).expect("a queue"));
    let pattern = |text: &str| Some(Pattern::new(text).expect("a pattern"));
    let any = WorkFilter::default;
    let filters = [
        WorkFilter { queue: queue("few"), ..any() },
        WorkFilter { queue: queue("few"), blocked: Some(false), leased: Some(false), ..any() },
        WorkFilter { blocked: Some(true), ..any() },
        WorkFilter { blocked: Some(true), queue: queue("many"), ..any() },
        WorkFilter { leased: Some(true), ..any() },
        WorkFilter { leased: Some(true), queue: queue("many"), ..any() },
        WorkFilter { pattern: pattern("^special.*"), ..any() },
        WorkFilter { pattern: pattern("^special.*"), queue: queue("many"), ..any() },
    ];
    for filter in filters {
        let condition = WorkCondition::new(&filter, None);
        let (rows, steps) = run(&db, &format!("SELECT * FROM {} ORDER BY key", condition.sql()), &condition);
        assert_eq!(rows, 5, "{filter:?}");
        assert!(steps < 1_000, "a list of {filter:?} takes {steps} steps beside 100,000 rows");
        let (_, steps) = run(&db, &format!("SELECT count(*) FROM {}", condition.sql()), &condition);
        assert!(steps < 1_000, "a count of {filter:?} takes {steps} steps beside 100,000 rows");
    }
}

#[test]
fn a_page_far_down_costs_what_the_first_one_does() {
    let db = database();
    let (all, far) = (WorkFilter::default(), Key::trusted("job99990"));
    let filter =
        WorkFilter { queue: Some(QueueName::new("many").expect("a queue")), ..WorkFilter::default() };
    for filter in [all, filter] {
        let condition = WorkCondition::new(&filter, Some(&far));
        let sql = format!("SELECT * FROM {} ORDER BY key LIMIT 5", condition.sql());
        let (rows, steps) = run(&db, &sql, &condition);
        assert_eq!(rows, 5, "{filter:?}");
        assert!(steps < 1_000, "{filter:?}: {steps} steps");
    }
}

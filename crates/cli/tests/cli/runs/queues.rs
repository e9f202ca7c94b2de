//! `queues` and `limit`.

use serde_json::json;

use super::Site;
use crate::support::{stderr, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_listed_and_taken_away() {
    let site = Site::new().await;
    assert!(stderr(&site.run(&["queues"], 0)).contains("no queue has limits"));
    let set = stdout(&site.run(&["limit", "default", "--concurrency", "2", "--rate", "100/1min"], 0));
    assert!(set.contains("queue default: 2 at once, 100 in 60s"), "{set}");
    let again = stdout(&site.run(&["limit", "default", "--concurrency", "2", "--rate", "100/1min"], 0));
    assert!(again.contains("had these limits"), "{again}");
    site.waiting("o-1", json!({"amount": 20})).await;
    let table = stdout(&site.run(&["queues"], 0));
    assert!(table.contains("default") && table.contains("100 in 60s"), "{table}");
    let all = &site.json(&["queues"])["queues"];
    assert_eq!((&all[0]["queue"], &all[0]["concurrency"]), (&json!("default"), &json!(2)));
    assert!(all[0]["driven"].as_u64().is_some_and(|driven| driven <= 2), "{all}");
    let none = stdout(&site.run(&["limit", "default", "--unlimited"], 0));
    assert!(none.contains("queue default: no limits"), "{none}");
    assert_eq!(site.json(&["queues"])["queues"][0]["concurrency"], json!(null));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_make_no_sense_are_refused() {
    let site = Site::new().await;
    let refused = stderr(&site.run(&["limit", "mail", "--concurrency", "0"], 2));
    assert!(refused.contains("mail") && refused.contains("no run could ever be driven"), "{refused}");
    for wrong in
        [vec!["limit", "mail"], vec!["limit", "mail", "--rate", "fast"], vec!["limit", "--unlimited"]]
    {
        site.run(&wrong, 2);
    }
    assert!(stderr(&site.run(&["queues"], 0)).contains("no queue has limits"));
}

//! The budget of the tour: the visible lines of each task.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

/// The headings of the tasks, with the most visible lines of their samples.
const BUDGETS: [(&str, usize); 8] = [
    ("Lock a key in this process", 5),
    ("Share a counter", 5),
    ("An aggregate and a reaction", 26),
    ("A workflow with a sleep, a signal and a retry", 20),
    ("A cron schedule", 9),
    ("Leader election with a fencing token", 9),
    ("An idempotent POST", 14),
    ("Everything in one service", 30),
];

/// Returns the visible lines of the sample below a heading: neither hidden, nor blank, nor only a comment.
fn visible(page: &str, heading: &str) -> Vec<String> {
    let (_, task) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, sample) = task.split_once("```rust").unwrap();
    let (code, _) = sample.split_once("\n```").unwrap();
    let lines = code.lines().skip(1).map(str::trim);
    lines.filter(|line| is_visible(line)).map(str::to_owned).collect()
}

fn is_visible(line: &str) -> bool {
    !line.is_empty() && line != "#" && !line.starts_with("# ") && !line.starts_with("//")
}

#[test]
fn each_task_of_the_tour_stays_within_its_lines() {
    let page = include_str!("../../../docs/tour.md");
    for (heading, budget) in BUDGETS {
        let lines = visible(page, heading);
        assert!(!lines.is_empty(), "{heading}");
        assert!(lines.len() <= budget, "{heading}: {} of {budget} lines\n{}", lines.len(), lines.join("\n"));
    }
    assert_eq!(page.matches("\n## ").count(), BUDGETS.len(), "a task has no budget");
}

//! The command-line surface: help, versions, pages, exit codes, and the use of standard output and
//! standard error.

use crate::support::{stderr, stdout, tidelock};

#[test]
fn help_is_an_answer_with_examples() {
    let help = tidelock(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for verb in [
        "demo",
        "doctor",
        "state",
        "streams",
        "reactions",
        "runs",
        "idempotency",
        "top",
        "config",
        "man",
        "work",
        "leases",
        "locks",
        "outbox",
        "version",
        "schedules",
        "serve",
        "dev",
        "explain",
        "migrate",
        "bench",
        "completions",
    ] {
        assert!(stdout(&help).contains(verb), "{verb} is missing");
    }
    assert!(stdout(&help).contains("Examples:"));
    assert!(!stdout(&help).contains("demo-worker"), "hidden verbs stay hidden");
    assert!(stderr(&help).is_empty());
}

#[test]
fn the_version_is_the_package_version() {
    let version = tidelock(&["--version"]);
    assert_eq!(stdout(&version).trim(), concat!("tidelock ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2_and_prints_to_stderr() {
    let calls: [&[&str]; 29] = [
        &[],
        &["nonsense"],
        &["bench", "--seconds", "never"],
        &["bench", "--store", "mysql://localhost/db"],
        &["bench", "store"],
        &["demo", "--store", "postgres"],
        &["doctor", "--store", "mysql://localhost/db"],
        &["migrate"],
        &["migrate", "status"],
        &["migrate", "status", "--store", "app.db"],
        &["migrate", "sql", "--from", "newest"],
        &["state"],
        &["streams"],
        &["streams", "show", "order"],
        &["runs"],
        &["idempotency"],
        &["idempotency", "list", "--limit", "0", "--store", "app.db"],
        &["runs", "list", "--watch=1ms", "--store", "app.db"],
        &["state", "list", "-o", "xml", "--store", "app.db"],
        &["schedules"],
        &["schedules", "run", "report", "--after", "yesterday", "--store", "app.db"],
        &["schedules", "run", "report", "--dry-run", "--store", "app.db"],
        &["runs", "list", "--attribute", "customer", "--store", "app.db"],
        &["runs", "prune", "--older", "soon", "--store", "app.db"],
        &["state", "get", "settings"],
        &["serve", "--listen", "here", "--store", "app.db"],
        &["serve", "--store", "postgres://localhost/db"],
        &["demo", "--workers", "0"],
        &["demo", "--store", "app.db"],
    ];
    for call in calls {
        let output = tidelock(call);
        assert_eq!(output.status.code(), Some(2), "{call:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty(), "{call:?} printed data");
        assert!(!stderr(&output).is_empty(), "{call:?} said nothing");
    }
}

#[test]
fn explain_prints_a_page_without_escape_codes_to_a_pipe() {
    for code in ["TL0204", "tl0204", "204"] {
        let page = tidelock(&["explain", code]);
        assert_eq!(page.status.code(), Some(0));
        assert!(stdout(&page).starts_with("TL0204"), "{}", stdout(&page));
        assert!(!stdout(&page).contains('\u{1b}'));
    }
}

#[test]
fn explain_without_a_code_lists_all_of_them() {
    let list = tidelock(&["explain"]);
    assert_eq!(list.status.code(), Some(0));
    for code in ["TL0101", "TL0204", "TL0301", "TL0405"] {
        assert!(stdout(&list).contains(code), "{code} is missing");
    }
}

#[test]
fn explain_of_an_unknown_code_ends_with_3_and_names_near_ones() {
    let unknown = tidelock(&["explain", "TL0294"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(stdout(&unknown).is_empty());
    assert!(stderr(&unknown).contains("TL0204"), "{}", stderr(&unknown));
    let nonsense = tidelock(&["explain", "a\u{1b}[31m\u{202e}b"]);
    assert_eq!(nonsense.status.code(), Some(3));
    assert!(!stderr(&nonsense).contains(['\u{1b}', '\u{202e}']), "{:?}", stderr(&nonsense));
}

#[test]
fn there_is_a_page_of_the_manual_for_every_verb() {
    let page = stdout(&tidelock(&["man"]));
    assert!(page.contains("EXIT STATUS") && page.contains("something is blocked"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("man1");
    let output = tidelock(&["man", "--dir", made.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in ["tidelock.1", "tidelock-runs.1", "tidelock-runs-list.1", "tidelock-man.1"] {
        let page = std::fs::read_to_string(made.join(name)).unwrap();
        assert!(page.contains("EXIT STATUS") && page.contains(".TH"), "{name}: {page}");
    }
    let list = std::fs::read_to_string(made.join("tidelock-runs-list.1")).unwrap();
    assert!(list.contains("cursor") && list.contains("Examples:"), "{list}");
    assert!(!made.join("tidelock-demo-worker.1").exists(), "hidden verbs stay hidden");
    assert!(!made.join("tidelock-help.1").exists());
}

#[test]
fn completions_come_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = tidelock(&["completions", shell]);
        assert_eq!(script.status.code(), Some(0));
        assert!(stdout(&script).contains("tidelock"), "{shell}");
    }
}

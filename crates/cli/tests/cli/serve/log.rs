//! The log of the server: details that responses do not contain.

use serde_json::Value;

use super::{PUT, Serving, store, tokens};

/// Serves a store whose file is removed, and sends a write. Returns the code of the response, and standard error.
async fn broken(args: &[&str]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let serve = ["serve", "--allow-writes", "--store", path.to_str().unwrap()];
    let serving = Serving::start(&[&serve, args].concat());
    let (_, write) = tokens(&directory.path().join("a.db.tokens"));
    std::fs::remove_file(&path).unwrap();
    let (status, body) = serving.ask(PUT.0, PUT.1, &write, PUT.2);
    assert!(status >= 500, "{status} {body}");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert!(told["detail"].is_null(), "callers learn the code alone: {told}");
    (told["code"].as_str().unwrap().to_owned(), serving.end("-INT"))
}

#[tokio::test]
async fn a_store_failure_is_logged_by_the_server() {
    let (code, said) = broken(&[]).await;
    let line = said.lines().find(|line| line.contains(&format!("code={code}"))).expect(&said);
    assert!(line.contains(" ERROR tidelock::server: a request failed") && line.contains("SQLite"), "{line}");
    assert_eq!(said.matches("writes are allowed").count(), 1, "the message is logged once: {said}");
    let (code, said) = broken(&["--log", "off"]).await;
    assert!(!said.contains(&code), "{said}");
}

#[tokio::test]
async fn the_log_is_lines_of_json_if_that_is_asked_for() {
    let (code, said) = broken(&["--log-format", "json"]).await;
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let failed = lines.iter().find(|line| line["fields"]["code"] == code.as_str()).expect(&said);
    let message = &failed["fields"]["message"];
    assert_eq!((&failed["level"], message), (&"ERROR".into(), &"a request failed".into()));
}

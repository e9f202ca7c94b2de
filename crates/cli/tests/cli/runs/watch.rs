//! `watch`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{APPROVED, NAP, Site};
use crate::support::{stderr, stdout};

/// A child process that follows a run.
struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watching {
    fn start(site: &Site, run: &str) -> Self {
        let mut command = site.command(&["watch", run, "-o", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until it exits, and returns the exit code and standard error.
    fn ends(mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return (status.code(), said);
            }
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        panic!("the watch does not exit");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_run_is_printed_until_the_run_ends() {
    let site = Site::new().await;
    site.waiting("o-1", json!({})).await;
    let mut watching = Watching::start(&site, "o-1");
    let (first, second) = (watching.next(), watching.next());
    assert_eq!((&first["entry"], &second["entry"]), (&json!("started"), &json!("done")));
    assert_eq!((&second["payload"]["value"], &second["run"]), (&json!(7), &json!("o-1")));
    assert_eq!(watching.next()["entry"], "signal-wait");
    // All past entries were printed; the rest arrives as it is written.
    site.client.signal("o-1", APPROVED, &true).await.unwrap();
    let rest: Vec<Value> = (0..3).map(|_| watching.next()["entry"].clone()).collect();
    assert_eq!(rest, ["heard", "done", "ended"]);
    assert_eq!(watching.ends().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_or_is_cancelled_ends_it_with_6() {
    let site = Site::new().await;
    site.failed("o-1").await;
    let watched = site.run(&["watch", "o-1"], 6);
    let shown = stdout(&watched);
    assert!(
        shown.contains("gave-up        charge  step \"charge\" failed after 1 attempt: the bank is closed"),
        "{shown}"
    );
    assert!(shown.contains("ended          failed: "), "{shown}");
    assert!(stderr(&watched).contains("o-1 failed"), "{}", stderr(&watched));

    site.client.start(NAP, &()).id("n-1").await.unwrap();
    let mut watching = Watching::start(&site, "n-1");
    assert_eq!(
        (watching.next()["entry"].clone(), watching.next()["entry"].clone()),
        (json!("started"), json!("timer-set"))
    );
    site.client.cancel("n-1", "enough").await.unwrap();
    assert_eq!(watching.next()["payload"]["reason"], "enough");
    let (code, said) = watching.ends();
    assert_eq!((code, said.trim()), (Some(6), "n-1 was cancelled"));
    let shown = stdout(&site.run(&["watch", "n-1"], 6));
    assert!(shown.contains("started        null\n"), "{shown}");
    assert!(shown.contains("until 20") && shown.contains("cancelled: "), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_continues_as_new_is_followed() {
    let site = Site::new().await;
    // No worker drives it before it is watched.
    site.run(&["start", "countdown", "--input", "2", "--id", "c-1", "--queue", "later"], 0);
    let mut watching = Watching::start(&site, "c-1");
    assert_eq!(watching.next()["entry"], "started");
    site.driving.drive("c-1").await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&(2, json!("ended"))) {
        let line = watching.next();
        seen.push((line["generation"].as_u64().unwrap(), line["entry"].clone()));
        // Each generation enters the queue again; where it does not, a worker already drives it.
        let _ = site.driving.drive("c-1").await;
    }
    assert_eq!(seen.iter().filter(|(_, entry)| entry == "ended").count(), 3, "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{seen:?}");
    assert_eq!(watching.ends().0, Some(0));
    let shown = stdout(&site.run(&["watch", "c-1"], 0));
    assert!(shown.contains("completed: \"lift off\""), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_watch_has_not_seen_the_run_complete() {
    let site = Site::new().await;
    site.waiting("o-1", json!({})).await;
    let mut watching = Watching::start(&site, "o-1");
    watching.next();
    let pid = watching.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let (code, said) = watching.ends();
    assert_eq!((code, said.trim()), (Some(1), "interrupted; o-1 continues"));
}

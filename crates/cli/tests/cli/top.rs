//! `tidelock top`, in a real pseudo-terminal that `script` makes, and without any.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;

use crate::support::{self, stdout};

const PATIENCE: Duration = Duration::from_secs(60);
/// Gives the terminal back: shows the cursor, and leaves the other screen.
const SHOWN: &str = "\u{1b}[?25h";
const LEFT: &str = "\u{1b}[?1049l";

async fn store() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).await.unwrap();
    let job = NewWork::once(Key::new("job", ["a"]).unwrap(), "some-lane".parse().unwrap());
    let event = NewEvent::new("Placed".parse().unwrap(), Payload::null());
    let order = Key::single("order").unwrap();
    store.apply(Batch::new().append(&order, Expect::Absent, [event]).enqueue(job)).await.unwrap();
    store.close().await;
    (directory, path)
}

/// A terminal in which a verb runs.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    drawn: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// `None` where there is no `script`.
    #[expect(clippy::print_stderr, reason = "whoever runs the tests should know what was not tested")]
    fn run(verb: &str, directory: &TempDir) -> Option<Self> {
        let binary = env!("CARGO_BIN_EXE_tidelock");
        let pid = directory.path().join("pid");
        let line = format!("stty rows 24 cols 80; echo $$ > {}; exec {binary} {verb}", pid.display());
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
        command.env_remove("DATABASE_URL").stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            eprintln!("there is no `script` here: the terminal is not tested");
            return None;
        };
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (heard, drawn) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut buffer) {
                if heard.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self { child, keys, drawn, seen: String::new() })
    }

    /// Waits until this is drawn after all that was seen before.
    fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let drawn = self.drawn.recv_timeout(left);
            let drawn = drawn.unwrap_or_else(|_| panic!("{text:?} did not come: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&drawn));
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// It ends well, and the terminal is as it was.
    fn ends(mut self) {
        self.sees(SHOWN);
        self.sees(LEFT);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_change_the_view_and_end_it() {
    let (directory, path) = store().await;
    let verb = format!("top --every 100ms --store {}", path.display());
    let Some(mut terminal) = Terminal::run(&verb, &directory) else { return };
    terminal.sees("tidelock top  sqlite");
    terminal.sees("[lanes]");
    terminal.sees("some-lane");
    terminal.types("\t");
    terminal.sees("[stuck]");
    terminal.types("?");
    terminal.sees("pauses and goes on");
    terminal.types("p");
    terminal.sees("PAUSED");
    terminal.types("q");
    terminal.ends();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_gives_the_terminal_back() {
    let (directory, path) = store().await;
    for verb in ["top", "work list --watch"] {
        let Some(mut terminal) = Terminal::run(&format!("{verb} --store {}", path.display()), &directory)
        else {
            return;
        };
        terminal.sees("some-lane");
        let pid = std::fs::read_to_string(directory.path().join("pid")).unwrap();
        assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
        terminal.ends();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_looks_once() {
    let (_directory, path) = store().await;
    let path = path.to_str().unwrap();
    let text = support::tidelock(&["top", "--store", path]);
    assert_eq!(text.status.code(), Some(0));
    assert!(stdout(&text).contains("1 ready") && stdout(&text).contains("some-lane"), "{}", stdout(&text));
    assert!(!stdout(&text).contains('\u{1b}'));
    let json = support::tidelock(&["top", "--once", "-o", "json", "--store", path]);
    let seen: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&seen["position"], &seen["work"]["ready"]), (&1.into(), &1.into()));
}

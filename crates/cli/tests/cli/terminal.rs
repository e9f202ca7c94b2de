//! A real pseudo-terminal, created by `script`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// The sequences that restore the terminal: show the cursor, and leave the alternate screen.
const SHOWN: &str = "\u{1b}[?25h";
const LEFT: &str = "\u{1b}[?1049l";

/// A terminal in which a verb runs.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    drawn: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Runs a verb in a terminal; `None` where `script` is missing.
    pub(crate) fn run(verb: &str, directory: &Path) -> Option<Self> {
        Self::run_with("", verb, directory)
    }

    /// Does the same with environment variables, in shell syntax.
    #[expect(clippy::print_stderr, reason = "the test run reports which tests it skipped")]
    pub(crate) fn run_with(settings: &str, verb: &str, directory: &Path) -> Option<Self> {
        let binary = env!("CARGO_BIN_EXE_tidelock");
        let pid = directory.join("pid");
        let line =
            format!("stty rows 24 cols 80; echo $$ > {}; {settings} exec {binary} {verb}", pid.display());
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
        let set = std::env::vars_os().map(|(name, _)| name);
        for name in set.filter(|name| name.to_string_lossy().starts_with("TIDELOCK_")) {
            command.env_remove(name);
        }
        command
            .env_remove("DATABASE_URL")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
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

    /// Waits until this text is drawn after everything seen before.
    pub(crate) fn sees(&mut self, text: &str) {
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

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until it exits with success and has restored the terminal.
    pub(crate) fn ends(mut self) {
        self.sees(SHOWN);
        self.sees(LEFT);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits until it exits, and returns the exit code and everything drawn since the last text
    /// seen.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // The sender is dropped when everything was read.
        while let Ok(drawn) = self.drawn.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&drawn));
        }
        (code, self.seen)
    }
}

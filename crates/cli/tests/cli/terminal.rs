//! A real pseudo-terminal, which `script` makes.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Gives the terminal back: shows the cursor, and leaves the other screen.
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
    /// `None` where there is no `script`.
    pub(crate) fn run(verb: &str, directory: &Path) -> Option<Self> {
        Self::run_with("", verb, directory)
    }

    /// The same with settings of the environment, as a shell takes them.
    #[expect(clippy::print_stderr, reason = "whoever runs the tests should know what was not tested")]
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

    /// Waits until this is drawn after all that was seen before.
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

    /// It ends well, and the terminal is as it was.
    pub(crate) fn ends(mut self) {
        self.sees(SHOWN);
        self.sees(LEFT);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits for the end: how it ended, and all that was drawn since what was seen last.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // The other side of the channel is gone when everything was read.
        while let Ok(drawn) = self.drawn.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&drawn));
        }
        (code, self.seen)
    }
}

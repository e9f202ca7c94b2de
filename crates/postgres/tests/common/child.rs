//! Child processes of a test: the test program starts itself again, with a role in the environment.
//!
//! A child is a test that does nothing without a role. It prints one line per event, and ends when its standard input
//! does, so no child outlives its parent. Lines carry a mark, because the test harness prints to the same stream.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::poll::in_time;

const ROLE: &str = "TIDELOCK_TEST_ROLE";
const MARK: &str = "@child ";

/// A child as its parent sees it. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    hearing: JoinHandle<()>,
}

impl Process {
    /// Starts the test of that name with a role. Its reports go to `heard`.
    pub(crate) fn start(test: &str, role: &Value, heard: mpsc::UnboundedSender<Value>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let hearing = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // A line that was cut short by the kill does not count.
                let said = line.split_once(MARK).and_then(|(_, said)| serde_json::from_str(said).ok());
                if said.is_some_and(|said| heard.send(said).is_err()) {
                    return;
                }
            }
        });
        Self { child, input, hearing }
    }

    /// Kills the child with SIGKILL, and returns after its last report was received. It must have lived until now.
    pub(crate) async fn kill(mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "a child exited before the kill");
        self.child.kill().await.unwrap();
        self.hearing.await.unwrap();
    }

    /// Signals the child to stop.
    pub(crate) fn tell_to_end(&mut self) {
        drop(self.input.take());
    }

    /// Waits until the child has stopped, which must succeed.
    pub(crate) async fn end(mut self) {
        self.tell_to_end();
        let status = in_time("a child ends", self.child.wait()).await.unwrap();
        assert!(status.success(), "a child failed: {status}");
        self.hearing.await.unwrap();
    }
}

/// Returns the role of this process, if it is a child.
pub(crate) fn role() -> Option<Value> {
    std::env::var(ROLE).ok().map(|role| serde_json::from_str(&role).unwrap())
}

/// Reports to the parent. A parent that is gone is no error.
pub(crate) fn say(what: &Value) {
    let line = format!("\n{MARK}{what}\n");
    let mut out = std::io::stdout().lock();
    drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
}

/// Returns a flag that becomes true when the parent signals this child to stop.
pub(crate) fn ending() -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ending);
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        told.store(true, Ordering::SeqCst);
    });
    ending
}

/// Returns a number from the environment, or the default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

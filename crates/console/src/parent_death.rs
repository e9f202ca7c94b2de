//! Detection of a parent process's death, through the child's standard input.
//!
//! The parent keeps the pipe open until the child is done. When the parent dies, the system closes the pipe, and the
//! child exits.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// The lines that the parent writes.
#[derive(Debug)]
pub struct ParentPipe {
    lines: mpsc::UnboundedReceiver<String>,
}

impl ParentPipe {
    /// Starts the reading thread. It ends with its input or with the process, and is never joined.
    #[must_use]
    pub fn listen() -> Self {
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || line.is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// Returns the next line; `None` when the parent is dead.
    pub async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Waits until the parent is dead.
    pub async fn closed(&mut self) {
        while self.lines.recv().await.is_some() {}
    }
}

//! The tie between a child process and its parent: the child's standard input.
//!
//! The parent never closes it on purpose before the child is done. When the parent dies, however it dies, the system
//! closes it, and the child ends instead of working on for nobody.

use std::io::BufRead as _;

use tokio::sync::mpsc;

/// What the parent says.
#[derive(Debug)]
pub(crate) struct Lifeline {
    lines: mpsc::UnboundedReceiver<String>,
}

impl Lifeline {
    /// Starts to listen. The thread is never joined: it ends with its input or with the process.
    pub(crate) fn listen() -> Self {
        let (said, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                if line.is_err() || line.is_ok_and(|line| said.send(line).is_err()) {
                    return;
                }
            }
        });
        Self { lines }
    }

    /// The next line; `None` when the parent is gone.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Waits until the parent is gone.
    pub(crate) async fn cut(&mut self) {
        while self.lines.recv().await.is_some() {}
    }
}

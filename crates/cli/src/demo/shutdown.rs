//! Shutdown signals of the demo. The first signal starts the cleanup; a second one exits at once.

use std::process;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;

use super::notice;
use crate::exit::Exit;
use crate::terminal::Stop;

/// The time after the first signal during which further signals count as the same request. Some programs signal both the
/// process and its group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// A listener for shutdown signals, active from its creation until the process exits.
#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    asked: watch::Receiver<bool>,
    behind: Arc<OnceLock<String>>,
}

impl ShutdownSignals {
    /// Starts listening.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Stop::listen()?;
        let (ask, asked) = watch::channel(false);
        let behind = Arc::<OnceLock<String>>::default();
        tokio::spawn(hear(stop, ask, Arc::clone(&behind)));
        Ok(Self { asked, behind })
    }

    /// Sets the message about the leftovers of an immediate exit.
    pub(crate) fn leaves(&self, behind: Option<String>) {
        if let Some(behind) = behind {
            // The first value stays: a demo has one site.
            drop(self.behind.set(behind));
        }
    }

    /// Returns whether a shutdown was requested.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until a shutdown is requested.
    pub(crate) async fn asked(&self) {
        if self.asked.clone().wait_for(|asked| *asked).await.is_err() {
            // The listening task has ended.
            std::future::pending::<()>().await;
        }
    }
}

async fn hear(mut stop: Stop, ask: watch::Sender<bool>, behind: Arc<OnceLock<String>>) {
    stop.asked().await;
    let first = Instant::now();
    ask.send_replace(true);
    notice("stopped: tidying up; a second signal ends the demo at once");
    while first.elapsed() < SAME_WISH {
        stop.asked().await;
    }
    match behind.get() {
        Some(behind) => notice(format_args!("ended at once: {behind} may stay behind")),
        None => notice("ended at once"),
    }
    process::exit(Exit::Failed as i32);
}

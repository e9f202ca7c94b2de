//! The signals that ask the demo to end: after the first it tidies up, after a second it ends at once.

use std::process;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;

use super::tell;
use crate::exit::Exit;
use crate::screen::Stop;

/// Signals that come so soon after the first are the same wish: some programs send them to the process and to its group.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Listens from its making to the end of the process.
#[derive(Debug)]
pub(crate) struct Ending {
    asked: watch::Receiver<bool>,
    behind: Arc<OnceLock<String>>,
}

impl Ending {
    /// Begins to listen.
    pub(crate) fn listen() -> Result<Self> {
        let stop = Stop::listen()?;
        let (ask, asked) = watch::channel(false);
        let behind = Arc::<OnceLock<String>>::default();
        tokio::spawn(hear(stop, ask, Arc::clone(&behind)));
        Ok(Self { asked, behind })
    }

    /// Says what stays behind if the process ends at once.
    pub(crate) fn leaves(&self, behind: Option<String>) {
        if let Some(behind) = behind {
            // The first one stays: a demo has one site.
            drop(self.behind.set(behind));
        }
    }

    /// Whether somebody asked the demo to end.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until somebody does.
    pub(crate) async fn asked(&self) {
        if self.asked.clone().wait_for(|asked| *asked).await.is_err() {
            // Nobody listens any more.
            std::future::pending::<()>().await;
        }
    }
}

async fn hear(mut stop: Stop, ask: watch::Sender<bool>, behind: Arc<OnceLock<String>>) {
    stop.asked().await;
    let first = Instant::now();
    ask.send_replace(true);
    tell("stopped: tidying up; a second signal ends the demo at once");
    while first.elapsed() < SAME_WISH {
        stop.asked().await;
    }
    match behind.get() {
        Some(behind) => tell(format_args!("ended at once: {behind} may stay behind")),
        None => tell("ended at once"),
    }
    process::exit(Exit::Failed as i32);
}

//! `tidelock runs watch`: the journal entries of a run as they arrive. It stops when the run ends, on Ctrl-C, or
//! when the reader closes standard output.

use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::{Event, Watch};
use tidelock::workflow::{RunStatus, WorkflowClient, WorkflowError};

use super::entry::{Line, words};
use super::{keys, shown};
use crate::args::{Layout, RunsWatch};
use crate::exit::Exit;
use crate::{output, stdout_closed};

/// The number of entries read in one page.
const PAGE: usize = 500;
/// The minimum poll interval. Notifications are frequent under heavy writes and are not followed more closely
/// than this.
const HUSH: Duration = Duration::from_millis(50);
/// The maximum poll interval. Notifications may be lost, so the run is polled this often without one.
const LOOK: Duration = Duration::from_secs(1);

/// Follows a run until it ends.
pub(super) async fn run(options: &RunsWatch) -> Result<Exit> {
    let opened = options.place.open().await?;
    let mut follower = Follower::new(opened.shared(), &options.run);
    let ended = tokio::select! {
        // Listens before the first entry is printed: a reader of that entry may interrupt at once.
        biased;
        asked_to_stop = tokio::signal::ctrl_c() => {
            eprintln!("interrupted; {} continues", shown(&options.run));
            asked_to_stop.map(|()| Exit::Failed).map_err(Into::into)
        }
        () = stdout_closed::gone() => Ok(Exit::Well),
        ended = follow(&mut follower, options.place.output) => ended,
    };
    opened.close().await;
    ended
}

async fn follow(follower: &mut Follower, layout: Layout) -> Result<Exit> {
    let mut told = None;
    loop {
        match follower.poll().await {
            Ok(seen) => {
                told = None;
                for event in &seen.entries {
                    match layout {
                        Layout::Json | Layout::Jsonl => {
                            output::json_line(&Line::of(&follower.run, seen.generation, event))?
                        }
                        Layout::Table => output::say(words(event))?,
                    }
                }
                match seen.then {
                    Then::More => {}
                    Then::Wait => follower.wait().await,
                    Then::Over(RunStatus::Completed) => return Ok(Exit::Well),
                    Then::Over(status) => {
                        let was = if status == RunStatus::Cancelled { "was " } else { "" };
                        eprintln!("{} {was}{status}", shown(&follower.run));
                        return Ok(Exit::RunFailed);
                    }
                }
            }
            Err(error) => {
                // An unavailable server may come back. Its absence is reported once.
                let Retry::After(pause) = error.retry() else { return Err(error.into()) };
                let message = output::escaped(&format!("warning[{}]: {error}", error.code()));
                if told.as_ref() != Some(&message) {
                    eprintln!("{message}");
                    told = Some(message);
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The result of one poll.
struct Seen {
    generation: u32,
    entries: Vec<Event>,
    then: Then,
}

/// The next action of the follower.
enum Then {
    /// There may be more to read.
    More,
    /// All entries were read, and the run has not ended.
    Wait,
    /// All entries were read, and the run has ended.
    Over(RunStatus),
}

/// The read position in a run.
struct Follower {
    client: WorkflowClient,
    store: SharedStore,
    hints: Watch,
    run: String,
    /// The generation that is read; initially the current one.
    generation: Option<u32>,
    from: StreamVersion,
}

impl Follower {
    fn new(store: SharedStore, run: &str) -> Self {
        let (client, hints) = (WorkflowClient::new(SharedStore::clone(&store)), store.watch());
        Self { client, store, hints, run: run.to_owned(), generation: None, from: StreamVersion(0) }
    }

    /// Reads the new entries. The run is read first, so that everything it had written by then, including its
    /// end, is in the journal.
    async fn poll(&mut self) -> Result<Seen, WorkflowError> {
        let view = self.client.show(&self.run).await?;
        let generation = *self.generation.get_or_insert(view.generation);
        let query = StreamQuery::forward(&keys::journal(&self.run, generation)?, PAGE).from(self.from);
        let page = self.store.read_stream(query).await?;
        if let Some(last) = page.events.last() {
            self.from = last.version.next();
        }
        let then = if !page.end {
            Then::More
        } else if view.generation > generation {
            (self.generation, self.from) = (Some(generation + 1), StreamVersion(0));
            Then::More
        } else if view.status.is_over() {
            Then::Over(view.status)
        } else {
            Then::Wait
        };
        Ok(Seen { generation, entries: page.events, then })
    }

    /// Waits until the run may have changed.
    async fn wait(&mut self) {
        tokio::time::sleep(HUSH).await;
        let hints = &mut self.hints;
        let hinted = async {
            if !hints.changed().await {
                std::future::pending::<()>().await;
            }
        };
        // On a timeout the caller polls without a notification.
        drop(tokio::time::timeout(LOOK, hinted).await);
    }
}

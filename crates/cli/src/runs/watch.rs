//! `tidelock runs watch`: what a run does as it comes, until it ends, Ctrl-C, or until nobody reads it any more.

use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::store::{Event, Watch};
use tidelock::workflow::{Client, Status, WorkflowError};

use super::entry::{Line, words};
use super::{keys, shown};
use crate::args::{Layout, RunsWatch};
use crate::exit::Exit;
use crate::{output, reader};

/// How many entries are read at once.
const PAGE: usize = 500;
/// Hints are many where much is written, so they are not followed more closely than this.
const HUSH: Duration = Duration::from_millis(50);
/// Hints may be lost, so the run is looked at this often without one.
const LOOK: Duration = Duration::from_secs(1);

/// Follows a run until it is over.
pub(super) async fn run(options: &RunsWatch) -> Result<Exit> {
    let opened = options.place.open().await?;
    let mut follower = Follower::new(opened.shared(), &options.run);
    let ended = tokio::select! {
        // Listens before the first entry is printed: whoever sees it may interrupt at once.
        biased;
        asked_to_stop = tokio::signal::ctrl_c() => {
            eprintln!("interrupted; {} goes on", shown(&options.run));
            asked_to_stop.map(|()| Exit::Failed).map_err(Into::into)
        }
        () = reader::gone() => Ok(Exit::Well),
        ended = follow(&mut follower, options.place.output) => ended,
    };
    opened.close().await;
    ended
}

async fn follow(follower: &mut Follower, layout: Layout) -> Result<Exit> {
    let mut told = None;
    loop {
        match follower.look().await {
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
                    Then::Over(Status::Completed) => return Ok(Exit::Well),
                    Then::Over(status) => {
                        let was = if status == Status::Cancelled { "was " } else { "" };
                        eprintln!("{} {was}{status}", shown(&follower.run));
                        return Ok(Exit::RunFailed);
                    }
                }
            }
            Err(error) => {
                // A server that is away may come back. Its absence is told once.
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

/// What was seen at once.
struct Seen {
    generation: u32,
    entries: Vec<Event>,
    then: Then,
}

/// What is to be done next.
enum Then {
    /// There may be more to read.
    More,
    /// All was read, and the run goes on.
    Wait,
    /// All was read, and the run is over.
    Over(Status),
}

/// How far a run was read.
struct Follower {
    client: Client,
    store: SharedStore,
    hints: Watch,
    run: String,
    /// The generation that is read; at first the one that runs.
    generation: Option<u32>,
    from: StreamVersion,
}

impl Follower {
    fn new(store: SharedStore, run: &str) -> Self {
        let (client, hints) = (Client::new(SharedStore::clone(&store)), store.watch());
        Self { client, store, hints, run: run.to_owned(), generation: None, from: StreamVersion(0) }
    }

    /// Reads what is new. The run is looked at first: what it had written by then is in the journal, its end too.
    async fn look(&mut self) -> Result<Seen, WorkflowError> {
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

    /// Waits until something may have happened.
    async fn wait(&mut self) {
        tokio::time::sleep(HUSH).await;
        let hints = &mut self.hints;
        let hinted = async {
            if !hints.changed().await {
                std::future::pending::<()>().await;
            }
        };
        // Without a hint it is time to look all the same.
        drop(tokio::time::timeout(LOOK, hinted).await);
    }
}

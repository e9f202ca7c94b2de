//! `tidelock top`: a live overview of a store. It neither leases nor changes anything.

mod frame;
mod snapshot;

use std::pin::pin;

use anyhow::Result;
use tidelock::prelude::*;

use self::frame::{View, frame, text};
use self::snapshot::Snapshot;
use crate::args::{Layout, Top};
use crate::exit::{self, Exit};
use crate::output;
use crate::terminal::{Input, Screen};

/// Refreshes the view until the user leaves, or prints it once.
pub(crate) async fn run(options: &Top) -> Result<Exit> {
    let opened = options.place.open().await?;
    let store = opened.shared();
    let live = !options.once && options.place.output == Layout::Table && output::is_interactive();
    let ended = if live { Box::pin(watch(&store, options)).await } else { once(&store, options).await };
    opened.close().await;
    ended
}

async fn once(store: &SharedStore, options: &Top) -> Result<Exit> {
    let seen = Snapshot::take(store, None).await?;
    let text = text(&seen);
    output::print_report(options.place.output, &seen, text)
}

async fn watch(store: &SharedStore, options: &Top) -> Result<Exit> {
    let mut seen = Snapshot::take(store, None).await?;
    let (mut view, mut screen) = (View::default(), Screen::enter()?);
    loop {
        let next = {
            // Keys are handled while the next snapshot is in flight, and do not delay it.
            let mut next = pin!(async {
                tokio::time::sleep(options.every).await;
                Snapshot::take(store, Some(&seen)).await
            });
            loop {
                screen.draw(&frame(&seen, &view, screen.size()))?;
                tokio::select! {
                    biased;
                    input = screen.input() => match input {
                        Input::Quit => return Ok(Exit::Well),
                        input => apply(&mut view, input, screen.rows()),
                    },
                    next = &mut next, if !view.paused => break next,
                }
            }
        };
        match next {
            Ok(next) => (seen, view.trouble) = (next, None),
            Err(error) => view.trouble = Some(trouble(error)?),
        }
    }
}

/// Returns the message for a transient error. A permanent error ends the view.
fn trouble(error: anyhow::Error) -> Result<String> {
    match exit::explained(&error) {
        Some(cause) if matches!(cause.retry(), Retry::After(_)) => {
            Ok(output::flat(&format!("warning[{}]: {error:#}", cause.code())))
        }
        _ => Err(error),
    }
}

fn apply(view: &mut View, input: Input, rows: usize) {
    let by = |lines: usize, back: bool, scroll: usize| match back {
        true => scroll.saturating_sub(lines),
        false => scroll.saturating_add(lines).min(1_000),
    };
    match input {
        Input::Key('p') => view.paused = !view.paused,
        Input::Key('?') => view.help = !view.help,
        Input::Tab => view.turn(1),
        Input::BackTab => view.turn_back(),
        Input::Lines(lines) => view.scroll = by(1, lines < 0, view.scroll),
        Input::Pages(pages) => view.scroll = by(rows.saturating_sub(7).max(1), pages < 0, view.scroll),
        Input::Key(_) | Input::Resized | Input::Quit => {}
    }
}

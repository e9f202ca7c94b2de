//! The polling loop of `--watch`. On a terminal each view replaces the previous one. Elsewhere each change is printed as a
//! separate block. With `jsonl`, each new or changed row is printed as a line.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;

use super::frame::frame;
use super::{Render, data, print, spoken};
use crate::args::Layout;
use crate::exit::{self, Exit};
use crate::terminal::{Input, Screen, Stop};
use crate::{output, stdout_closed};

/// Polls until the user stops it, the reader of standard output closes it, or a permanent error occurs.
pub(super) async fn run<S: Render>(
    every: Duration,
    layout: Layout,
    fetch: impl AsyncFnMut() -> Result<S>,
) -> Result<Exit> {
    if layout == Layout::Table && output::is_interactive() {
        return on_terminal(every, fetch).await;
    }
    // Listens before the first row is printed: a reader of that row may interrupt at once.
    let mut stop = Stop::listen()?;
    tokio::select! {
        biased;
        () = stop.asked() => Ok(Exit::Well),
        () = stdout_closed::gone() => Ok(Exit::Well),
        ended = on_paper(every, layout, fetch) => ended,
    }
}

/// Returns the result, or the text of a transient error. A permanent error ends the watch. Any error of the very first fetch
/// ends it.
async fn seen<S>(fetched: Result<S>, first: bool) -> Result<Result<S, String>> {
    match fetched {
        Ok(seen) => Ok(Ok(seen)),
        Err(error) => match exit::explained(&error) {
            Some(cause) if !first && matches!(cause.retry(), Retry::After(_)) => {
                Ok(Err(output::escaped(&format!("warning[{}]: {error:#}", cause.code()))))
            }
            _ => Err(error),
        },
    }
}

async fn on_terminal<S: Render>(every: Duration, mut fetch: impl AsyncFnMut() -> Result<S>) -> Result<Exit> {
    let mut last = seen(fetch().await, true).await?.ok();
    // A missing item needs no alternate screen.
    if let Some(missing) = last.as_ref().filter(|last| last.exit() == Exit::NotFound) {
        return print(missing, Layout::Table);
    }
    let (mut trouble, mut screen) = (None, Screen::enter()?);
    loop {
        // Keys are handled while the next fetch is in flight, and do not delay it.
        let mut next = pin!(async {
            tokio::time::sleep(every).await;
            fetch().await
        });
        let fetched = loop {
            if let Some(last) = &last {
                draw(&mut screen, every, last, trouble.as_ref())?;
            }
            tokio::select! {
                biased;
                input = screen.input() => if let Input::Quit = input {
                    return Ok(Exit::Well);
                },
                fetched = &mut next => break fetched,
            }
        };
        trouble = match seen(fetched, false).await? {
            Ok(seen) => {
                last = Some(seen);
                None
            }
            Err(message) => Some(message),
        };
    }
}

fn draw(screen: &mut Screen, every: Duration, last: &impl Render, trouble: Option<&String>) -> Result<()> {
    let heading = output::styled(&format!("every {}, q ends it", output::span(every)), output::Tone::Bold);
    let notes: Vec<String> = last.notes().into_iter().chain(trouble.cloned()).collect();
    screen.draw(&frame(&heading, &last.text(), &notes, screen.rows()))
}

async fn on_paper<S: Render>(
    every: Duration,
    layout: Layout,
    mut fetch: impl AsyncFnMut() -> Result<S>,
) -> Result<Exit> {
    let (mut paper, mut told, mut first) = (Paper::default(), None, true);
    loop {
        match seen(fetch().await, first).await? {
            Ok(seen) if first && seen.exit() == Exit::NotFound => return print(&seen, layout),
            Ok(seen) => {
                told = None;
                paper.changed(&seen, layout)?.into_iter().try_for_each(output::say)?;
                paper.noted(&seen, layout).iter().for_each(|note| eprintln!("{note}"));
            }
            Err(message) if told.as_ref() == Some(&message) => {}
            Err(message) => {
                eprintln!("{message}");
                told = Some(message);
            }
        }
        first = false;
        tokio::time::sleep(every).await;
    }
}

/// The output printed so far.
#[derive(Debug, Default)]
struct Paper {
    block: String,
    /// Whether a block was printed before.
    begun: bool,
    rows: HashSet<String>,
    notes: Vec<String>,
}

impl Paper {
    /// Returns the lines to print for a new result.
    fn changed(&mut self, seen: &impl Render, layout: Layout) -> Result<Vec<String>> {
        let blocks = data(seen, layout)?;
        if layout == Layout::Jsonl {
            let new = blocks.iter().filter(|line| !self.rows.contains(*line)).cloned().collect();
            self.rows = blocks.into_iter().collect();
            return Ok(new);
        }
        let block = blocks.concat();
        if block == self.block {
            return Ok(Vec::new());
        }
        self.block.clone_from(&block);
        if block.is_empty() {
            return Ok(Vec::new());
        }
        // An empty line separates two blocks for human readers.
        let apart = self.begun && layout == Layout::Table;
        self.begun = true;
        Ok(apart.then(String::new).into_iter().chain([block]).collect())
    }

    /// Returns the notes to print for a new result, or none when they are unchanged.
    fn noted(&mut self, seen: &impl Render, layout: Layout) -> Vec<String> {
        let notes = spoken(seen, layout);
        if notes == self.notes {
            return Vec::new();
        }
        self.notes.clone_from(&notes);
        notes
    }
}

#[cfg(test)]
mod tests {
    use comfy_table::Table;

    use super::super::Listing;
    use super::*;

    fn rows(rows: &[u32]) -> Listing<u32> {
        let table = |rows: &[u32]| {
            let mut table = Table::new();
            table.load_style(comfy_table::TableStyle::new());
            table.add_rows(rows.iter().map(|row| [row.to_string()]));
            table
        };
        Listing::new("rows", rows.to_vec(), table).or("no rows")
    }

    #[test]
    fn lines_are_of_rows_that_are_new_or_changed() {
        let mut paper = Paper::default();
        for (seen, told) in
            [(vec![1, 2], vec!["1", "2"]), (vec![1, 3], vec!["3"]), (vec![1, 2, 3], vec!["2"])]
        {
            assert_eq!(paper.changed(&rows(&seen), Layout::Jsonl).unwrap(), told, "{seen:?}");
        }
    }

    #[test]
    fn a_block_comes_for_each_change() {
        let mut paper = Paper::default();
        let mut told = |seen: &[u32]| {
            let lines = paper.changed(&rows(seen), Layout::Table).unwrap();
            let lines = lines.iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
            (lines.join("|"), paper.noted(&rows(seen), Layout::Table).join("|"))
        };
        let is = |data: &str, notes: &str| (data.to_owned(), notes.to_owned());
        assert_eq!(told(&[]), is("", "no rows"), "what is no data is not printed as data");
        assert_eq!(told(&[]), is("", ""));
        assert_eq!(told(&[7]), is("7", ""));
        assert_eq!(told(&[7]), is("", ""));
        assert_eq!(told(&[]), is("", "no rows"));
        assert_eq!(told(&[7]), is("|7", ""), "a row that returns is printed again");
    }
}

//! Rendering of listings and single items for read-only commands, once or with `--watch`.
//!
//! A command fetches a [`Listing`] of rows or a [`Single`] item. Data goes to standard output and notes go to standard error.
//! Nothing in this module changes a store.

mod frame;
mod watch;

use anyhow::Result;
use comfy_table::Table;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use tidelock::prelude::*;
use tidelock::store::limits;

use crate::args::{Layout, Pages, WatchArgs};
use crate::exit::{self, Exit};
use crate::output;

/// The default number of rows in a page.
const ROWS: usize = 100;
/// The page size when all rows are requested.
const AT_ONCE: usize = if limits::PAGE_ROWS < 500 { limits::PAGE_ROWS } else { 500 };

/// A result that can be rendered.
pub(crate) trait Render {
    /// Returns the result as one JSON value, or `None` when it is empty.
    fn json(&self) -> Result<Option<String>>;
    /// Returns the rows as JSON, one per line.
    fn lines(&self) -> Result<Vec<String>>;
    /// Returns the human-readable text; empty when there are no data.
    fn text(&self) -> String;
    /// Returns the notes for standard error.
    fn notes(&self) -> Vec<String>;
    /// Returns the exit code of a program that has rendered this result.
    fn exit(&self) -> Exit;
}

/// One page of rows.
pub(crate) struct Listing<R> {
    /// The name of the rows, used as a member of the JSON object.
    pub(crate) name: &'static str,
    /// The rows.
    pub(crate) rows: Vec<R>,
    /// The cursor of the next page; `None` on the last page.
    pub(crate) next: Option<String>,
    /// Renders the rows as a table.
    pub(crate) table: fn(&[R]) -> Table,
    /// The message for an empty page.
    pub(crate) none: &'static str,
    /// Additional members of the JSON object.
    pub(crate) facts: Vec<(&'static str, Value)>,
    /// Notes printed below the table.
    pub(crate) notes: Vec<String>,
    /// The exit code of the program.
    pub(crate) exit: Exit,
}

impl<R> Listing<R> {
    /// Creates a listing of rows without notes or additional members.
    pub(crate) fn new(name: &'static str, rows: Vec<R>, table: fn(&[R]) -> Table) -> Self {
        let (next, facts, notes) = (None, Vec::new(), Vec::new());
        Self { name, rows, next, table, none: "none", facts, notes, exit: Exit::Well }
    }

    /// Sets the message for an empty page.
    pub(crate) fn or(mut self, none: &'static str) -> Self {
        self.none = none;
        self
    }

    /// Sets the cursor of the next page.
    pub(crate) fn next(mut self, next: Option<String>) -> Self {
        self.next = next;
        self
    }

    /// Adds a member to the JSON object.
    pub(crate) fn fact(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.facts.push((name, value.into()));
        self
    }

    /// Adds a note for human readers.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    fn hint(&self) -> Option<String> {
        let next = self.next.as_deref()?;
        let cursor = output::quoted(&output::harmless(next));
        Some(format!("hint: there may be more; continue with --cursor {cursor}"))
    }
}

impl<R: Serialize> Serialize for Listing<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.facts.len() + 2))?;
        for (name, value) in &self.facts {
            map.serialize_entry(name, value)?;
        }
        map.serialize_entry(self.name, &self.rows)?;
        map.serialize_entry("next", &self.next)?;
        map.end()
    }
}

impl<R: Serialize> Render for Listing<R> {
    fn json(&self) -> Result<Option<String>> {
        output::json_text(self).map(Some)
    }

    fn lines(&self) -> Result<Vec<String>> {
        self.rows.iter().map(output::json_line_text).collect()
    }

    fn text(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut table = (self.table)(&self.rows);
        output::fit(&mut table);
        table.to_string()
    }

    fn notes(&self) -> Vec<String> {
        let none = self.rows.is_empty().then(|| self.none.to_owned());
        none.into_iter().chain(self.notes.iter().cloned()).chain(self.hint()).collect()
    }

    fn exit(&self) -> Exit {
        self.exit
    }
}

/// A single item with all its details.
pub(crate) struct Single<T> {
    value: Option<T>,
    text: String,
    notes: Vec<String>,
    exit: Exit,
}

impl<T> Single<T> {
    /// Creates an item and its human-readable text.
    pub(crate) fn new(value: T, text: impl Into<String>) -> Self {
        Self { value: Some(value), text: text.into(), notes: Vec::new(), exit: Exit::Well }
    }

    /// Creates the result for an item that does not exist, with notes that report it.
    pub(crate) fn missing(notes: Vec<String>) -> Self {
        Self { value: None, text: String::new(), notes, exit: Exit::NotFound }
    }

    /// Sets the notes for human readers.
    pub(crate) fn notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }
}

impl<T: Serialize> Render for Single<T> {
    fn json(&self) -> Result<Option<String>> {
        self.value.as_ref().map(output::json_text).transpose()
    }

    fn lines(&self) -> Result<Vec<String>> {
        self.value.iter().map(output::json_line_text).collect()
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn exit(&self) -> Exit {
        self.exit
    }
}

/// A request for a page of rows.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// Only rows after this one.
    pub(crate) cursor: Option<String>,
    /// The maximum number of rows.
    pub(crate) limit: usize,
}

impl PageRequest {
    /// Returns the page of a store, where cursors are keys.
    pub(crate) fn page(&self) -> Result<Page> {
        let after = self.cursor.as_deref().map(str::parse).transpose()?;
        Ok(Page { after, limit: self.limit })
    }

    /// Returns one page of rows that are all in memory and sorted by name, and the cursor of the next page.
    pub(crate) fn of<R>(&self, rows: Vec<R>, name: impl Fn(&R) -> &str) -> (Vec<R>, Option<String>) {
        let after = |row: &R| self.cursor.as_deref().is_none_or(|cursor| name(row) > cursor);
        let mut rows: Vec<R> = rows.into_iter().filter(after).collect();
        let more = rows.len() > self.limit;
        rows.truncate(self.limit);
        let next = rows.last().filter(|_| more).map(|row| name(row).to_owned());
        (rows, next)
    }
}

/// Renders one item, or watches it.
pub(crate) async fn whole<T: Serialize>(
    look: &WatchArgs,
    mut fetch: impl AsyncFnMut(&SharedStore) -> Result<Single<T>>,
) -> Result<Exit> {
    let opened = look.place.open().await?;
    let store = opened.shared();
    let ended = match look.watch {
        Some(every) => watch::run(every, look.place.output, async || fetch(&store).await).await,
        None => match fetch(&store).await {
            Ok(seen) => print(&seen, look.place.output),
            Err(error) => Err(error),
        },
    };
    opened.close().await;
    ended
}

/// Shows a page of rows, streams all of them, or watches a page.
pub(crate) async fn listing<R: Serialize>(
    look: &WatchArgs,
    pages: &Pages,
    fetch: impl AsyncFnMut(&SharedStore, PageRequest) -> Result<Listing<R>>,
) -> Result<Exit> {
    listing_of(ROWS, look, pages, fetch).await
}

/// Does the same as `listing` with another default number of rows.
pub(crate) async fn listing_of<R: Serialize>(
    usual: usize,
    look: &WatchArgs,
    pages: &Pages,
    mut fetch: impl AsyncFnMut(&SharedStore, PageRequest) -> Result<Listing<R>>,
) -> Result<Exit> {
    let opened = look.place.open().await?;
    let (store, layout) = (opened.shared(), look.place.output);
    let ask = PageRequest { cursor: pages.cursor.clone(), limit: pages.limit.unwrap_or(usual) };
    let every_row = layout == Layout::Jsonl && pages.limit.is_none();
    let ended = match look.watch {
        Some(every) if every_row => {
            watch::run(every, layout, async || all(ask.clone(), async |ask| fetch(&store, ask).await).await)
                .await
        }
        Some(every) => watch::run(every, layout, async || fetch(&store, ask.clone()).await).await,
        None if every_row => stream(ask, async |ask| fetch(&store, ask).await).await,
        None => match fetch(&store, ask).await {
            Ok(seen) => print(&seen, layout),
            Err(error) => Err(error),
        },
    };
    opened.close().await;
    ended
}

/// Prints all rows, page by page as they are read.
async fn stream<R: Serialize>(
    mut ask: PageRequest,
    mut fetch: impl AsyncFnMut(PageRequest) -> Result<Listing<R>>,
) -> Result<Exit> {
    ask.limit = AT_ONCE;
    loop {
        let seen = fetch(ask.clone()).await?;
        let printed = seen.lines()?.into_iter().try_for_each(output::say);
        if printed.is_err() || seen.next.is_none() {
            return exit::after(printed, seen.exit);
        }
        ask.cursor = seen.next;
    }
}

/// Fetches all rows as if they were one page. A watch of the first page alone would never show changes on later pages.
async fn all<R>(
    mut ask: PageRequest,
    mut fetch: impl AsyncFnMut(PageRequest) -> Result<Listing<R>>,
) -> Result<Listing<R>> {
    ask.limit = AT_ONCE;
    let mut rows = Vec::new();
    loop {
        let mut seen = fetch(ask.clone()).await?;
        rows.append(&mut seen.rows);
        if seen.next.is_none() {
            return Ok(Listing { rows, ..seen });
        }
        ask.cursor = seen.next;
    }
}

fn print(seen: &impl Render, layout: Layout) -> Result<Exit> {
    let printed = data(seen, layout).and_then(|blocks| blocks.into_iter().try_for_each(output::say));
    spoken(seen, layout).iter().for_each(|note| eprintln!("{note}"));
    exit::after(printed, seen.exit())
}

/// Returns the lines printed as data.
fn data(seen: &impl Render, layout: Layout) -> Result<Vec<String>> {
    Ok(match layout {
        Layout::Json => seen.json()?.into_iter().collect(),
        Layout::Jsonl => seen.lines()?,
        Layout::Table => Some(seen.text()).into_iter().filter(|text| !text.is_empty()).collect(),
    })
}

/// Returns the notes for standard error. A missing item is reported in every layout. Notes about data are reported only where the
/// data have no member for them.
fn spoken(seen: &impl Render, layout: Layout) -> Vec<String> {
    if layout == Layout::Json && seen.exit() != Exit::NotFound {
        return Vec::new();
    }
    let is_said = |note: &String| layout == Layout::Table || is_needed(note);
    seen.notes().into_iter().filter(is_said).collect()
}

/// Returns whether a program that reads rows needs the note.
fn is_needed(note: &str) -> bool {
    note.starts_with("hint:") || note.starts_with("error")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cursor: Option<&str>, limit: usize) -> PageRequest {
        PageRequest { cursor: cursor.map(str::to_owned), limit }
    }

    #[test]
    fn rows_that_are_all_there_are_paged_by_their_names() {
        let names = || vec!["a", "b", "c"];
        let page = |cursor, limit| ask(cursor, limit).of(names(), |name| name);
        assert_eq!(page(None, 2), (vec!["a", "b"], Some("b".to_owned())));
        assert_eq!(page(Some("b"), 2), (vec!["c"], None));
        assert_eq!(
            page(Some("aa"), 1),
            (vec!["b"], Some("b".to_owned())),
            "a row that is gone is no obstacle"
        );
        assert_eq!(page(None, 3), (names(), None));
    }

    #[test]
    fn a_listing_is_an_object_with_its_rows_and_the_cursor() {
        let listing = Listing::new("keys", vec![1, 2], |_| Table::new()).fact("blocked", 7);
        let listing = listing.next(Some("b\u{202e}".to_owned()));
        let json = listing.json().unwrap().unwrap();
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read, serde_json::json!({"blocked": 7, "keys": [1, 2], "next": "b\u{202e}"}));
        assert!(!json.contains('\u{202e}'));
        assert_eq!(listing.notes(), [r"hint: there may be more; continue with --cursor 'b\u202e'"]);
        assert_eq!(listing.lines().unwrap(), ["1", "2"]);
    }
}

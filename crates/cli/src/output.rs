//! Output of the command line: rows, keys, times and sizes, on top of the shared table and JSON printers.

use std::fmt::Display;
use std::time::Duration;

use anyhow::Result;
use comfy_table::{ColumnConstraint, Table};
use serde::Serialize;
use tidelock::payload::text;
use tidelock::prelude::*;

pub(crate) use tidelock_console::output::*;

use crate::args::Layout;
use crate::exit::Exit;

/// Returns a key for human readers, in a form that can be typed.
pub(crate) fn key(key: &Key) -> String {
    harmless(&key.to_string())
}

/// Prints a value as JSON on one line of standard output.
pub(crate) fn json_line<T: Serialize>(value: &T) -> Result<()> {
    say(json_line_text(value)?)
}

/// Returns a value as JSON on one line.
pub(crate) fn json_line_text<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    Ok(harmless(&text::compact(&serde_json::to_string(value)?)))
}

/// Prints a report: a sentence for human readers, a value for programs.
pub(crate) fn print_report<T: Serialize>(layout: Layout, report: &T, sentence: impl Display) -> Result<Exit> {
    match layout {
        Layout::Json => json(report)?,
        Layout::Jsonl => json_line(report)?,
        Layout::Table => say(sentence)?,
    }
    Ok(Exit::Well)
}

/// Returns a value over several lines, with all its digits.
pub(crate) fn pretty(value: &Payload) -> String {
    harmless(&text::pretty(&text::compact(value.as_str()), 0))
}

/// Returns an instant to the second, in UTC.
pub(crate) fn instant(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.')
        .map_or_else(|| text.clone(), |(seconds, _)| format!("{}Z", seconds.replace('T', " ")))
}

/// Truncates a text that is too long.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.split_at(end).0),
        None => text.to_owned(),
    }
}

/// Returns a text on one line, for a column of a table.
pub(crate) fn flat(text: &str) -> String {
    escaped(&text.replace(['\n', '\r', '\t'], " "))
}

/// Returns a duration in its largest unit.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    match units.iter().find(|(unit, _)| seconds >= 2 * unit) {
        Some((unit, name)) => format!("{} {name}", number(seconds / unit)),
        None if seconds >= 10 => format!("{seconds} s"),
        None => format!("{}.{} s", seconds, span.subsec_millis() / 100),
    }
}

/// Quotes a text as one word for a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Limits the rows of a table to one line each. On a terminal, the last column gets the remaining width and is truncated.
pub(crate) fn one_line(table: &mut Table) {
    let last = table.column_count().saturating_sub(1);
    for column in table.column_iter_mut().take(last) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    if table.width().is_some() {
        table.row_iter_mut().for_each(|row| {
            row.max_height(1);
        });
    }
}

/// The width up to which a column is never wrapped: an instant has 20 characters.
const NARROW: usize = 20;
/// The minimum total width of the other columns.
const WIDE: usize = 24;

/// Fits a table to the terminal: removes empty columns and keeps narrow ones unwrapped.
pub(crate) fn fit(table: &mut Table) {
    let Some(columns) = table.width().map(usize::from) else { return };
    let mut widest = vec![0; table.column_count()];
    for row in table.row_iter() {
        for (cell, widest) in row.cell_iter().zip(&mut widest) {
            *widest = (*widest).max(cell.content().chars().count());
        }
    }
    let headers = table.header().map(|header| header.cell_iter().map(|cell| cell.content().chars().count()));
    let widths: Vec<usize> =
        headers.into_iter().flatten().zip(&widest).map(|(head, rows)| head.max(*rows)).collect();
    let narrow: usize = widths
        .iter()
        .zip(&widest)
        .filter(|(width, rows)| **rows > 0 && **width <= NARROW)
        .map(|(width, _)| width + 3)
        .sum();
    let roomy = narrow + WIDE <= columns;
    for ((column, width), rows) in table.column_iter_mut().zip(widths).zip(widest) {
        if rows == 0 {
            column.set_constraint(ColumnConstraint::Hidden);
        } else if roomy && width <= NARROW && column.constraint().is_none() {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Returns the number of columns of the terminal; `None` when standard output is not a terminal.
pub(crate) fn columns() -> Option<usize> {
    Table::new().width().filter(|columns| *columns >= NARROWEST).map(usize::from)
}

/// Returns a size in the most readable unit.
pub(crate) fn bytes(value: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let found = units.iter().find(|(shift, _)| value >> shift > 0);
    found.map_or_else(
        || format!("{value} B"),
        |(shift, unit)| {
            let tenths = (u128::from(value) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_play_tricks() {
        assert_eq!(escaped("a\u{1b}[31mb\u{202e}c\nd"), "a\\u{1b}[31mb\\u{202e}c\nd");
        assert_eq!(escaped("äöü 漢字"), "äöü 漢字");
    }

    #[test]
    fn harmless_json_means_the_same() {
        let text = "{\"a\u{202e}\":[\"\u{7f}\u{9b}é\"]}";
        let shown = harmless(text);
        assert!(!shown.contains(['\u{202e}', '\u{7f}', '\u{9b}']), "{shown}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&shown), read(text));
        let key = Key::new("k", ["a\u{202e}b"]).unwrap();
        assert_eq!(harmless(&key.to_string()).parse::<Key>().unwrap(), key);
    }

    #[test]
    fn words_for_the_shell_are_quoted_where_they_must() {
        for (text, word) in
            [("session", "session"), ("", "''"), ("a(\"b\")", "'a(\"b\")'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(quoted(text), word);
        }
    }

    #[test]
    fn long_texts_are_cut_and_instants_read_well() {
        assert_eq!((cut("größe", 3), cut("größe", 5)), ("grö…".to_owned(), "größe".to_owned()));
        assert_eq!(instant(Timestamp::from_micros(1_000_000_000_000_000)), "2001-09-09 01:46:40Z");
        assert_eq!(
            pretty(&Payload::from_json("{\"a\": 123456789012345678901}").unwrap()),
            "{\n  \"a\": 123456789012345678901\n}"
        );
    }

    #[test]
    fn on_a_terminal_empty_columns_go_and_narrow_ones_are_whole() {
        let mut table = table(&["key", "at", "closed"], &[]);
        let key = "x".repeat(60);
        table.add_row([key.as_str(), "2001-09-09 01:46:40Z", ""]);
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(60);
        fit(&mut table);
        let shown = table.to_string();
        assert!(shown.contains("2001-09-09 01:46:40Z") && !shown.contains("closed"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
    }

    #[test]
    fn numbers_and_sizes_read_well() {
        let spans =
            [(0, "0.0 s"), (9_950, "9.9 s"), (119_000, "119 s"), (120_000, "2 min"), (200_000_000, "2 d")];
        for (millis, text) in spans {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
        assert_eq!(number(0), "0");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}

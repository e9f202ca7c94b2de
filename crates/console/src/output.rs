//! Terminal output: tables, JSON, colours, and escaping of names.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use serde::Serialize;

/// The format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    #[default]
    Table,
    /// JSON for programs
    Json,
}

/// Returns text with control and direction characters escaped, so that a name cannot move the cursor, hide itself or
/// read backwards. Line breaks stay.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || turns_direction(c)) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns JSON or a key's text with the same characters as JSON escapes. The text keeps its meaning.
#[must_use]
pub fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || turns_direction(c)) {
            // These occur only inside quotes, and all of them are below U+10000.
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Characters that change the direction of text, or have no width.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Prints data on standard output.
///
/// # Errors
/// When standard output cannot be written, for example because its reader closed the pipe.
pub fn say(data: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{data}")?;
    out.flush()?;
    Ok(())
}

/// Prints a value as JSON on standard output.
///
/// # Errors
/// As [`say`], and when the value cannot be serialised.
pub fn json<T: Serialize>(value: &T) -> Result<()> {
    say(json_text(value)?)
}

/// Returns a value as JSON.
///
/// # Errors
/// When the value cannot be serialised.
pub fn json_text<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    Ok(harmless(&serde_json::to_string_pretty(value)?))
}

/// Narrower terminals get tables that do not fit, rather than columns of one letter.
pub const NARROWEST: u16 = 60;

/// A line under the header and no bars between rows.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// Returns an empty table that fits the terminal. The columns listed in `right` hold numbers.
#[must_use]
pub fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    if table.width().is_some_and(|columns| columns >= NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(header.iter().map(|name| cell(name, Tone::Bold)));
    for index in right {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The emphasis of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A heading.
    Bold,
    /// A good result.
    Good,
    /// A result that deserves attention.
    Caution,
    /// A bad result.
    Bad,
}

/// Returns a table cell with emphasis on a terminal.
#[must_use]
pub fn cell(text: &str, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    if !colour() {
        return cell;
    }
    match tone {
        Tone::Bold => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::Green),
        Tone::Caution => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// Returns text with emphasis on a terminal. Use [`cell`] in tables, which count characters.
#[must_use]
pub fn styled(text: &str, tone: Tone) -> String {
    let style = match tone {
        Tone::Bold => "1",
        Tone::Good => "32",
        Tone::Caution => "33",
        Tone::Bad => "31",
    };
    if colour() { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Returns whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Returns whether standard output is a terminal that understands escape sequences.
#[must_use]
pub fn is_interactive() -> bool {
    is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether `--no-color` was given.
static PLAIN: AtomicBool = AtomicBool::new(false);

/// Turns emphasis off for the rest of the process.
pub fn be_plain() {
    PLAIN.store(true, Ordering::Relaxed);
}

/// Whether standard output is a terminal whose user wants emphasis.
fn colour() -> bool {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    wanted && !PLAIN.load(Ordering::Relaxed) && is_interactive()
}

/// Returns a whole number with thousands separators.
#[must_use]
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::with_capacity(digits.len() * 2);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

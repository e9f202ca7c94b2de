//! Log lines of long-running commands: events of `tracing` on standard error, as text or JSON.
//!
//! An event is one line, whatever its fields hold. A closed standard error does not end the process.

use std::fmt::Debug;
use std::io::{self, Write};

use anyhow::{Context as _, Result};
use tracing::Subscriber;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::args::{LogFormat, LogLevel};
use crate::output;

/// The field of events about what a server allows. The commands print those themselves, regardless of the level.
const LOOSENED: &str = "loosened";

/// Starts the log of this process.
pub(crate) fn start(level: LogLevel, format: LogFormat) -> Result<()> {
    let lines = lines(format, io::stderr);
    let subscriber = tracing_subscriber::registry().with(filter(level)).with(lines);
    tracing::subscriber::set_global_default(subscriber).context("this process has a log already")
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns the layer that writes a line for each event.
fn lines<S, W>(
    format: LogFormat,
    writer: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).log_internal_errors(false);
    let layer = layer.with_writer(move || OneLine(writer()));
    let printed_elsewhere = filter_fn(|about| about.fields().field(LOOSENED).is_none());
    match format {
        LogFormat::Text => {
            layer.fmt_fields(debug_fn(field).delimited(" ")).with_filter(printed_elsewhere).boxed()
        }
        LogFormat::Json => layer.json().with_filter(printed_elsewhere).boxed(),
    }
}

/// Writes a field of a text line: a word, or a text in quotes, so that no value looks like another field.
fn field(line: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let value = format!("{value:?}");
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    let is_quoted = || serde_json::from_str::<String>(&value).is_ok();
    match field.name() {
        "message" => line.write_str(&value),
        name if !value.is_empty() && (value.chars().all(is_word) || is_quoted()) => {
            write!(line, "{name}={value}")
        }
        name => write!(line, "{name}={}", serde_json::Value::String(value)),
    }
}

/// A writer that receives each event as a whole. It escapes characters that would start another line or move the cursor.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = output::harmless(text.trim_end_matches('\n')).replace('\n', "\\n");
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const EVIL: &str = "a\r\n1970-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e} code=TL0001 \"";

    /// Returns the line of an event whose message and fields hold [`EVIL`].
    fn logged(format: LogFormat) -> String {
        let kept = CapturedLog::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::registry().with(lines(format, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "t", attempts = 3, code = %"TL0301", error = %EVIL, name = "b c", "{EVIL}");
            tracing::error!(loosened = true, "printed by the command");
        });
        let bytes = kept.0.lock().unwrap().clone();
        let line = String::from_utf8(bytes).unwrap().strip_suffix('\n').unwrap().to_owned();
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        line
    }

    #[test]
    fn a_line_of_text_has_quotes_around_values_that_are_no_words() {
        let line = logged(LogFormat::Text);
        assert!(line.contains("Z ERROR t: a"), "{line}");
        assert!(line.contains(" attempts=3 code=TL0301 error=\"a\\r\\n"), "{line}");
        assert!(line.ends_with(" name=\"b c\""), "{line}");
    }

    #[test]
    fn a_line_of_json_keeps_every_value() {
        let line: Value = serde_json::from_str(&logged(LogFormat::Json)).unwrap();
        assert_eq!((&line["level"], &line["target"]), (&json!("ERROR"), &json!("t")));
        let fields = json!({"message": EVIL, "attempts": 3, "code": "TL0301", "error": EVIL, "name": "b c"});
        assert_eq!(line["fields"], fields);
    }
}

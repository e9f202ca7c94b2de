//! The log of verbs that go on: what the library and the server tell `tracing`, as lines on standard error.
//!
//! An event is one line, whatever its fields hold. A log that nobody takes is no reason to end.

use std::fmt::{self, Debug};
use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use tidelock::clock::SystemClock;
use tidelock::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::args::{LogFormat, LogLevel};
use crate::output;

/// The field of events about what a server allows. The verbs tell it themselves, however little is logged.
const LOOSENED: &str = "loosened";

/// Logs from now on, until the process ends.
pub(crate) fn start(level: LogLevel, format: LogFormat) -> Result<()> {
    let subscriber = tracing_subscriber::registry().with(filter(level)).with(Lines { format });
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

/// Writes a line for each event.
struct Lines {
    format: LogFormat,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about = event.metadata();
        if about.fields().field(LOOSENED).is_some() {
            return;
        }
        let mut told = Told::default();
        event.record(&mut told);
        let at = SystemClock::default().now();
        let line = match self.format {
            LogFormat::Text => told.text(at, about),
            LogFormat::Json => told.json(at, about),
        };
        // Where should it be told that nothing can be told?
        drop(std::io::stderr().lock().write_all(line.as_bytes()));
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Told {
    message: String,
    fields: Map<String, Value>,
}

impl Told {
    fn text(&self, at: Timestamp, about: &Metadata<'_>) -> String {
        let mut line = format!("{at} {} {}: {}", about.level(), about.target(), one_line(&self.message));
        for (name, value) in &self.fields {
            line.push_str(&format!(" {name}={}", Shown(value)));
        }
        line.push('\n');
        line
    }

    fn json(&self, at: Timestamp, about: &Metadata<'_>) -> String {
        let level = about.level().as_str().to_ascii_lowercase();
        let Self { message, fields } = self;
        let line = json!({
            "at": at.to_string(), "level": level, "target": about.target(), "message": message, "fields": fields,
        });
        format!("{}\n", output::harmless(&line.to_string()))
    }

    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }
}

/// A value in a line of text: a word, or a text in quotes, so that no value looks like another field.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
        match self.0 {
            Value::String(text) if !text.is_empty() && text.chars().all(is_word) => f.write_str(text),
            value => f.write_str(&output::harmless(&value.to_string())),
        }
    }
}

fn one_line(text: &str) -> String {
    output::escaped(text).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What a subscriber of this test was told, as lines of both formats.
    #[derive(Default)]
    struct Kept(Mutex<Vec<[String; 2]>>);

    impl<S: Subscriber> Layer<S> for &'static Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut told = Told::default();
            event.record(&mut told);
            let (at, about) = (Timestamp::from_micros(0), event.metadata());
            self.0.lock().unwrap().push([told.text(at, about), told.json(at, about)]);
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_its_fields_hold() {
        let kept: &'static Kept = Box::leak(Box::default());
        let evil = "a\r\n1970-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e} code=TL0001 \"";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(kept), || {
            tracing::error!(target: "t", code = %"TL0301", attempts = 3, error = %evil, "{evil}");
        });
        let lines = kept.0.lock().unwrap();
        let [text, json] = lines.first().unwrap();
        for line in [text, json] {
            let line = line.strip_suffix('\n').unwrap();
            assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        }
        assert!(text.starts_with("1970-01-01T00:00:00.000000Z ERROR t: a"), "{text}");
        assert!(text.contains(" attempts=3 code=TL0301 error=\"a\\r\\n"), "{text}");
        let read: Value = serde_json::from_str(json).unwrap();
        assert_eq!((&read["level"], &read["message"]), (&json!("error"), &json!(evil)));
        assert_eq!(read["fields"], json!({"attempts": 3, "code": "TL0301", "error": evil}));
    }
}

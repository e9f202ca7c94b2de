//! `tidelock config show`: every setting with its value and its origin. Passwords are never printed.

use anyhow::Result;
use clap::ValueEnum as _;
use serde::Serialize;

use super::settings::{Kind, SETTINGS, Setting, named};
use super::{Config, Origin};
use crate::args::{ConfigShow, Layout};
use crate::exit::Exit;
use crate::output;
use crate::server_url::ServerUrl;

/// A setting as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    key: &'static str,
    value: Option<String>,
    origin: String,
    variable: &'static str,
    about: &'static str,
}

/// The printed report.
#[derive(Debug, Serialize)]
struct Report {
    /// The configuration file.
    file: Option<String>,
    settings: Vec<Line>,
}

/// Prints all settings.
pub(super) fn run(options: &ConfigShow, config: &Config, no_color: bool) -> Result<Exit> {
    let file = config.file.as_ref().map(|file| file.path.display().to_string());
    let settings =
        SETTINGS.iter().map(|setting| line(&flag(options, no_color, setting.key), config, setting)).collect();
    let report = Report { file, settings };
    let text = text(&report, options.origin);
    let layout = flag(options, no_color, "output").or_else(|| Some(config.value(named("output")?)?.0));
    let layout = layout.and_then(|word| Layout::from_str(&word, true).ok()).unwrap_or_default();
    output::print_report(layout, &report, text)?;
    if report.file.is_none() && layout == Layout::Table {
        eprintln!("no {} here or above", super::file::NAME);
    }
    Ok(Exit::Well)
}

/// Returns the value of a setting from the command line.
fn flag(options: &ConfigShow, no_color: bool, key: &str) -> Option<String> {
    match key {
        "store" => options.store.clone(),
        "schema" => options.schema.clone(),
        "output" => options.output?.to_possible_value().map(|word| word.get_name().to_owned()),
        "color" => no_color.then(|| "never".to_owned()),
        _ => None,
    }
}

fn line(flag: &Option<String>, config: &Config, setting: &'static Setting) -> Line {
    let found = flag.clone().map(|value| (value, Origin::Flag)).or_else(|| config.value(setting));
    let (value, origin) = match found {
        Some((value, origin)) => (Some(masked(setting.kind, &value)), origin),
        None => (None, Origin::Default),
    };
    Line { key: setting.key, value, origin: words(&origin), variable: setting.env, about: setting.about }
}

/// Returns the value without passwords.
fn masked(kind: Kind, value: &str) -> String {
    if kind != Kind::Store || !(value.contains("://") || is_no_path(value)) {
        return value.to_owned();
    }
    match ServerUrl::parse(value) {
        Ok(url) => url.to_string(),
        // An address that cannot be parsed may hold a password anywhere.
        Err(_) if value.starts_with("sqlite:") => value.to_owned(),
        Err(_) => "***".to_owned(),
    }
}

/// Returns whether this looks like a server address in an unsupported form, such as `postgres:me:secret@db` or `host=db
/// password=secret`.
fn is_no_path(value: &str) -> bool {
    value.starts_with("postgres") && value.contains('@') || value.to_ascii_lowercase().contains("password=")
}

fn words(origin: &Origin) -> String {
    match origin {
        Origin::Flag => "flag".to_owned(),
        Origin::Variable(name) => (*name).to_owned(),
        Origin::Line(file, line) => format!("{}:{line}", file.display()),
        Origin::Default => "default".to_owned(),
    }
}

fn text(report: &Report, origin: bool) -> String {
    let header = ["setting", "value", "from", "what it is"];
    let mut table = output::table(if origin { &header } else { &["setting", "value"] }, &[]);
    for line in &report.settings {
        let value = line.value.as_deref().map_or_else(|| "-".to_owned(), output::flat);
        let row = [line.key.to_owned(), value, output::flat(&line.origin), line.about.to_owned()];
        table.add_row(row.into_iter().take(if origin { 4 } else { 2 }));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_printed() {
        for (value, shown) in [
            ("app.db", "app.db"),
            ("sqlite:///var/app.db", "sqlite:///var/app.db"),
            ("mysql://me:secret@db/app", "***"),
            ("postgres:me:secret@db/app", "***"),
            ("/shop/host=db password=secret", "***"),
        ] {
            assert_eq!(masked(Kind::Store, value), shown);
        }
        let shown = masked(Kind::Store, "postgres://me:secret@db/app?sslmode=require");
        assert!(shown.contains("db/app") && !shown.contains("secret"), "{shown}");
    }
}

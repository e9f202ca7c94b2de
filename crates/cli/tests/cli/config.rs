//! Settings: their origins, their precedence, and the reports of mistakes.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tidelock::prelude::*;

use crate::support::{self, stderr, stdout};

/// A directory with a configuration file, and a directory below it.
struct Site(TempDir);

impl Site {
    fn new(settings: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir_all(site.below()).unwrap();
        std::fs::write(site.file(), settings).unwrap();
        site
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("tidelock.toml")
    }

    fn below(&self) -> std::path::PathBuf {
        self.0.path().join("src/deep")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = support::command(args);
        command.current_dir(self.below());
        command
    }

    fn run(&self, args: &[&str], settings: &[(&str, &str)], code: i32) -> Output {
        let output = self.command(args).envs(settings.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {} {}", stdout(&output), stderr(&output));
        output
    }

    /// Returns a setting as `config show` prints it: its value and its origin.
    fn shown(&self, args: &[&str], settings: &[(&str, &str)], key: &str) -> (String, String) {
        let output = self.run(&[&["config", "show", "-o", "json"], args].concat(), settings, 0);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let line = report["settings"].as_array().unwrap().iter().find(|line| line["key"] == key).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        (text("value"), text("origin"))
    }
}

async fn store(path: &Path) {
    let store = SqliteStore::open(path, SqliteOptions::default()).await.unwrap();
    let key = Key::single("greeting").unwrap();
    store.apply(Batch::new().put(&key, Expect::Absent, Payload::of("hello").unwrap())).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn the_nearest_file_names_the_store_and_the_layout() {
    let site = Site::new("store = \"app.db\"\noutput = \"jsonl\"\n");
    store(&site.0.path().join("app.db")).await;
    let output = site.run(&["state", "get", "greeting"], &[], 0);
    assert!(stdout(&output).starts_with('{') && stdout(&output).lines().count() == 1, "{}", stdout(&output));
    // A verb without such a layout keeps its own, and an explicit flag takes precedence.
    assert!(stdout(&site.run(&["doctor"], &[], 0)).contains("durability"));
    assert_eq!(stdout(&site.run(&["state", "get", "greeting", "-o", "table"], &[], 0)), "\"hello\"\n");
}

#[tokio::test]
async fn a_database_url_is_a_store() {
    let site = Site::new("");
    let path = site.0.path().join("other.db");
    store(&path).await;
    let url = format!("sqlite://{}", path.display());
    let output = site.run(&["state", "get", "greeting"], &[("DATABASE_URL", &url)], 0);
    assert_eq!(stdout(&output), "\"hello\"\n");
    let refused = site.run(&["state", "list"], &[("DATABASE_URL", "mysql://me:secret@db/app")], 2);
    assert!(
        stderr(&refused).contains("mysql") && !stderr(&refused).contains("secret"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn each_value_is_shown_with_its_origin() {
    let site = Site::new("# ours\n\nschema = \"shop\"\n[serve]\nlisten = \"127.0.0.1:9\"\n");
    let line = |number: usize| {
        let file = site.file().canonicalize().unwrap();
        format!("{}:{number}", file.display())
    };
    assert_eq!(site.shown(&[], &[], "schema"), ("shop".to_owned(), line(3)));
    assert_eq!(site.shown(&[], &[], "serve.listen").1, line(5));
    let variable = [("TIDELOCK_SCHEMA", "env")];
    assert_eq!(site.shown(&[], &variable, "schema"), ("env".to_owned(), "TIDELOCK_SCHEMA".to_owned()));
    let flag = site.shown(&["--schema", "typed"], &variable, "schema");
    assert_eq!(flag, ("typed".to_owned(), "flag".to_owned()));
    assert_eq!(site.shown(&[], &[], "color"), ("auto".to_owned(), "default".to_owned()));
    assert_eq!(site.shown(&[], &[("NO_COLOR", "1")], "color"), ("never".to_owned(), "NO_COLOR".to_owned()));
    let secret = site.shown(&[], &[("DATABASE_URL", "postgres://me:secret@db/app")], "store");
    assert!(secret.0.contains("db/app") && !secret.0.contains("secret"), "{secret:?}");
    assert_eq!(secret.1, "DATABASE_URL");
    let table = stdout(&site.run(&["config", "show", "--origin"], &[], 0));
    assert!(table.contains("tidelock.toml:3") && table.contains("default"), "{table}");
}

#[test]
fn another_file_can_be_named() {
    let site = Site::new("schema = \"near\"\n");
    let other = site.0.path().join("other.toml");
    std::fs::write(&other, "schema = \"far\"\n").unwrap();
    let other = other.to_str().unwrap();
    assert_eq!(site.shown(&["--config", other], &[], "schema").0, "far");
    assert_eq!(site.shown(&[], &[("TIDELOCK_CONFIG", other)], "schema").0, "far");
    let missing = site.run(&["config", "show", "--config", "nowhere.toml"], &[], 2);
    assert!(stderr(&missing).contains("nowhere.toml cannot be read"), "{}", stderr(&missing));
}

#[test]
fn a_mistake_exits_with_2_and_names_its_line() {
    let site = Site::new("store = \"app.db\"\nshcema = \"shop\"\n");
    for verb in [&["runs", "list"][..], &["config", "show"], &["nonsense"]] {
        let output = site.run(verb, &[], 2);
        let told = "tidelock.toml:2: there is no setting \"shcema\"; did you mean schema?";
        assert!(stderr(&output).contains(told), "{verb:?}: {}", stderr(&output));
        assert!(stdout(&output).is_empty());
    }
    // Verbs that explain the mistake still work.
    for verb in [&["--help"][..], &["config", "schema"], &["explain", "TL0204"], &["version"]] {
        site.run(verb, &[], 0);
    }
    let wrong = Site::new("").run(&["runs", "list"], &[("TIDELOCK_OUTPUT", "xml")], 2);
    assert!(
        stderr(&wrong).contains("TIDELOCK_OUTPUT must be one of table, json, jsonl"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn the_schema_names_every_setting() {
    let site = Site::new("");
    let schema: Value = serde_json::from_slice(&site.run(&["config", "schema"], &[], 0).stdout).unwrap();
    for key in ["store", "schema", "output", "color", "serve"] {
        assert!(schema["properties"].get(key).is_some(), "{key} is missing");
    }
}

#[test]
fn the_migrations_are_printed_for_the_schema_of_the_settings() {
    let site = Site::new("store = \"postgres://localhost:1/db\"\nschema = \"from_file\"\n");
    let schema = |settings: &[(&str, &str)]| {
        let text = stdout(&site.run(&["migrate", "sql"], settings, 0));
        text.lines().find_map(|line| line.trim().strip_prefix("CREATE SCHEMA ").map(str::to_owned)).unwrap()
    };
    assert!(schema(&[]).contains("from_file"));
    assert!(schema(&[("TIDELOCK_SCHEMA", "from_variable")]).contains("from_variable"));
    let site = Site::new("");
    let schema = |name: &str| {
        let settings = [(name, "postgres://localhost:1/db?schema=from_address")];
        stdout(&site.run(&["migrate", "sql"], &settings, 0)).contains("from_address")
    };
    assert!(schema("TIDELOCK_STORE") && schema("DATABASE_URL"));
}

#[tokio::test]
async fn a_variable_that_is_set_to_nothing_is_not_set() {
    let site = Site::new("store = \"app.db\"\n");
    store(&site.0.path().join("app.db")).await;
    let names = [
        "TIDELOCK_STORE",
        "TIDELOCK_SCHEMA",
        "TIDELOCK_CONFIG",
        "TIDELOCK_OUTPUT",
        "TIDELOCK_DURABILITY",
        "TIDELOCK_LOG",
        "DATABASE_URL",
        "NO_COLOR",
    ];
    let nothing: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
    site.run(&["state", "get", "greeting"], &nothing, 0);
    site.run(&["doctor", "--health"], &nothing, 0);
    let refused = site.run(&["demo", "--store", "postgres"], &nothing, 2);
    assert!(stderr(&refused).contains("DATABASE_URL is not set"), "{}", stderr(&refused));
    // A variable that is not empty still counts.
    site.run(&["state", "get", "greeting"], &[("TIDELOCK_STORE", "none.db")], 3);
}

#[test]
fn a_memory_store_is_inside_its_program() {
    let site = Site::new("");
    let refused = stderr(&site.run(&["work", "list"], &[("DATABASE_URL", "mem:")], 2));
    assert!(refused.contains("a memory store is inside its program"), "{refused}");
}

//! A demo that is stopped, or whose reader has closed its output: it leaves nothing behind and does not report success.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use tempfile::TempDir;
use tidelock::prelude::*;

use super::wait_until_shipped;
use crate::support::command;

/// The start of the link that the demo prints when its server is ready.
const LINK: &str = "http://";

/// A demo that runs for a long time. Its files are in a temporary directory.
struct Playing {
    demo: Child,
    says: BufReader<ChildStderr>,
    directory: TempDir,
}

impl Playing {
    fn start(args: &[&str]) -> Self {
        Self::start_for("600", args)
    }

    fn start_for(seconds: &str, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut demo = command(&[&["demo", "--seconds", seconds], args].concat())
            .env("TMPDIR", directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(demo.stderr.take().unwrap());
        Self { demo, says, directory }
    }

    /// Reads until a line starts with the given text, and returns the rest of the line.
    fn read_until(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it ended without {beginning:?}");
            if let Some(rest) = line.trim_end().strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.demo.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until it exits. Returns the exit code, standard output, standard error, and the files left in its directory. The workers
    /// share its standard error, which is closed when the last of them has exited.
    fn end(mut self) -> (Option<i32>, String, String, Vec<String>) {
        let (mut printed, mut said) = (String::new(), String::new());
        if let Some(mut out) = self.demo.stdout.take() {
            out.read_to_string(&mut printed).unwrap();
        }
        let ended = self.demo.wait().unwrap();
        self.says.read_to_string(&mut said).unwrap();
        let left = std::fs::read_dir(self.directory.path()).unwrap();
        let left = left.map(|entry| entry.unwrap().path().display().to_string()).collect();
        (ended.code(), printed, said, left)
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        // It has exited, unless the test failed.
        drop(self.demo.kill());
        drop(self.demo.wait());
    }
}

/// Returns the processes that have this text in their arguments.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let commands = all.filter_map(|process| std::fs::read(process.ok()?.path().join("cmdline")).ok());
    let commands = commands.map(|command| String::from_utf8_lossy(&command).replace('\0', " "));
    commands.filter(|command| command.contains(text)).collect()
}

/// Returns the file of a demo that created one in this directory.
fn file_in(directory: &Path) -> std::path::PathBuf {
    let made = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap();
    made.path().join("demo.db")
}

#[tokio::test]
async fn whatever_stops_it_the_numbers_so_far_are_printed_and_nothing_stays() {
    for signal in ["-TERM", "-HUP", "-INT"] {
        let mut playing = Playing::start(&[]);
        playing.read_until(LINK);
        let file = file_in(playing.directory.path());
        let store = SqliteStore::open(&file, SqliteOptions::default()).await.unwrap();
        wait_until_shipped(&store).await;
        store.close().await;
        let directory = playing.directory.path().display().to_string();
        assert!(!processes_with(&directory).is_empty() || !cfg!(target_os = "linux"));
        playing.signal(signal);
        let (code, printed, said, left) = playing.end();
        assert_eq!(code, Some(1), "{signal}: {said}");
        assert!(printed.contains("so far"), "{signal}: {printed} {said}");
        assert_eq!((left, processes_with(&directory)), (vec![], vec![]), "{signal}");
    }
}

#[tokio::test]
async fn stopped_on_a_server_it_drops_its_schema() {
    let mut playing = Playing::start(&["--store", &crate::postgres::url()]);
    let schema = schema_of(&mut playing);
    playing.read_until(LINK);
    let store = crate::postgres::open(&schema).await;
    wait_until_shipped(&store).await;
    store.close().await;
    playing.signal("-TERM");
    let (code, printed, said, _) = playing.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(printed.contains("so far"), "{printed} {said}");
    assert!(!is_there(&crate::postgres::client().await, &schema).await, "{said}");
    assert_eq!(processes_with(&schema), Vec::<String>::new());
}

/// Another session locks a table, so that the schema cannot be dropped yet.
#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_it_says_what_stays() {
    let mut playing = Playing::start(&["--store", &crate::postgres::url()]);
    let schema = schema_of(&mut playing);
    playing.read_until(LINK);
    let client = crate::postgres::client().await;
    let hold = format!("BEGIN; LOCK TABLE {schema}.streams IN ACCESS SHARE MODE");
    client.batch_execute(&hold).await.unwrap();
    playing.signal("-TERM");
    playing.read_until("stopped: tidying up");
    while playing.demo.try_wait().unwrap().is_none() {
        playing.signal("-TERM");
        tokio::task::yield_now().await;
    }
    let (code, _, said, _) = playing.end();
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("the schema {schema}")), "{said}");
    client.batch_execute("COMMIT").await.unwrap();
    // The server may still execute a statement that the demo sent before it exited.
    while is_there(&client, &schema).await {
        drop(client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await);
    }
}

#[test]
fn a_failed_proof_fails_even_without_a_reader() {
    let mut playing = Playing::start(&[]);
    playing.read_until(LINK);
    drop(playing.demo.stdout.take());
    playing.signal("-TERM");
    let (code, _, said, left) = playing.end();
    assert_eq!((code, left), (Some(1), vec![]), "{said}");
}

fn schema_of(playing: &mut Playing) -> String {
    let place = playing.read_until("the demo plays in the schema ");
    place.split(' ').next().unwrap().to_owned()
}

async fn is_there(client: &tokio_postgres::Client, schema: &str) -> bool {
    let found = client.query("SELECT FROM pg_namespace WHERE nspname = $1", &[&schema]).await.unwrap();
    !found.is_empty()
}

//! `tidelock serve` and `tidelock dev`: the address, the tokens, the permissions, and the shutdown.

mod killed;
mod log;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidelock::prelude::*;

use crate::support::{command, stderr, stdout, tidelock};

/// A running server.
struct Serving {
    child: Child,
    address: String,
    report: Value,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut command = command(&[args, &["--listen", "127.0.0.1:0", "-o", "json"]].concat());
        Self::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn of(mut child: Child) -> Self {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let report: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{error}: {line:?} {said}")
        });
        let (_, address) = report["url"].as_str().unwrap().split_once("://").unwrap();
        let address = address.to_owned();
        Self { child, address, report }
    }

    /// Returns the status and the body of a response.
    fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, token, body).expect("an answer")
    }

    /// Does the same; `None` when no complete response arrives.
    fn try_ask(&self, method: &str, path: &str, token: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let (host, length) = (&self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nif-none-match: *\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let whole = length.is_none_or(|length| length.parse() == Ok(body.len()));
        whole.then(|| (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
    }

    /// Kills it with `SIGKILL`.
    fn kill(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    }

    /// Stops it with a signal, and returns its standard error.
    fn end(mut self, signal: &str) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::yield_now();
        };
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(0), "{said}");
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has exited, unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the read and the write token of a file.
fn tokens(path: &Path) -> (String, String) {
    let text = std::fs::read_to_string(path).unwrap();
    let token = |role: &str| text.lines().find_map(|line| line.strip_prefix(role)).unwrap().to_owned();
    (token("read "), token("write "))
}

async fn store(directory: &Path) -> PathBuf {
    let path = directory.join("a.db");
    SqliteStore::open(&path, SqliteOptions::default()).await.unwrap().close().await;
    path
}

const PUT: (&str, &str, &str) = ("PUT", "/api/v1/state/k", r#"{"value": 1}"#);

#[tokio::test]
async fn a_store_is_shown_and_changed_only_if_that_was_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let file = directory.path().join("a.db.tokens");
    let store = path.to_str().unwrap();

    let serving = Serving::start(&["serve", "--store", store]);
    assert_eq!(
        (&serving.report["writes"], serving.report["tokens"].as_str()),
        (&Value::Bool(false), file.to_str())
    );
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let (read, write) = tokens(&file);
    assert_eq!(serving.ask("GET", "/healthz", "", "").0, 200);
    assert_eq!(serving.ask("GET", "/readyz", "", "").0, 401);
    assert_eq!(serving.ask("GET", "/readyz", &read, "").0, 200);
    assert_eq!(serving.ask(PUT.0, PUT.1, &write, PUT.2).0, 403);
    let said = serving.end("-INT");
    assert!(said.contains(&read) && said.contains(&write), "new tokens are shown: {said}");

    let serving = Serving::start(&["serve", "--store", store, "--allow-writes"]);
    assert_eq!(tokens(&file), (read.clone(), write.clone()), "they are the same");
    assert_eq!(serving.ask(PUT.0, PUT.1, &read, PUT.2).0, 403);
    assert_eq!(serving.ask(PUT.0, PUT.1, &write, PUT.2).0, 200);
    let said = serving.end("-TERM");
    assert!(!said.contains(&read) && !said.contains(&write), "they are shown once: {said}");
    let read = tidelock(&["state", "get", "k", "--store", store]);
    assert_eq!(stdout(&read).trim(), "1");
}

#[test]
fn dev_makes_a_store_that_can_be_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let serving = Serving::start(&["dev", "--store", path.to_str().unwrap()]);
    let (_, write) = tokens(&directory.path().join("new.db.tokens"));
    assert_eq!(serving.ask(PUT.0, PUT.1, &write, PUT.2).0, 200);
    let (status, metrics) = serving.ask("GET", "/metrics", &write, "");
    assert_eq!(status, 200);
    for told in [
        "tidelock_commits_total{result=\"applied\"} 1",
        "tidelock_commit_duration_seconds_bucket",
        "tidelock_work_blocked 0",
    ] {
        assert!(metrics.contains(told), "{told}: {metrics}");
    }
    let said = serving.end("-INT");
    assert!(said.contains(&format!("/ui/#token={write}")), "the link that logs in: {said}");
}

#[tokio::test]
async fn other_machines_are_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let refused = tidelock(&["serve", "--store", path.to_str().unwrap(), "--listen", address]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("error[TL1316]"), "{}", stderr(&refused));
        assert!(stdout(&refused).is_empty());
    }
    assert!(!directory.path().join("a.db.tokens").exists(), "no tokens were made");
}

/// Returns the warnings printed at the start.
fn warnings(said: &str) -> Vec<&str> {
    said.lines().filter_map(|line| line.strip_prefix("warning: ")).collect()
}

#[tokio::test]
async fn each_weakened_default_is_reported_at_every_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let path = path.to_str().unwrap();
    let said = Serving::start(&["serve", "--store", path]).end("-INT");
    assert_eq!(warnings(&said), [""; 0]);
    let loose =
        ["--allow-writes", "--host", "a.example", "--host", "b.example", "--rate", "501", "--no-back-off"];
    for _ in 0..2 {
        let said = Serving::start(&[&["serve", "--store", path], &loose[..]].concat()).end("-INT");
        let told = warnings(&said);
        assert_eq!(told.len(), 5, "{said}");
        for part in
            ["writes are allowed", "host a.example", "host b.example", "501 instead of 500", "wrong tokens"]
        {
            assert_eq!(told.iter().filter(|line| line.contains(part)).count(), 1, "{part}: {said}");
        }
    }
    let said = Serving::start(&["serve", "--store", path, "--rate", "0"]).end("-INT");
    assert!(warnings(&said).iter().all(|line| line.contains("as many requests as it likes")), "{said}");
    let said = Serving::start(&["dev", "--store", path]).end("-INT");
    assert_eq!(warnings(&said), ["writes are allowed"]);
}

/// Creates the files of a certificate for this machine, and a client that trusts it.
fn certificate(directory: &Path) -> (String, String, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let client = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    (cert.to_str().unwrap().to_owned(), key.to_str().unwrap().to_owned(), Arc::new(client))
}

#[tokio::test]
async fn with_a_certificate_other_machines_are_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let (cert, key, client) = certificate(directory.path());
    let serve = ["serve", "--store", path.to_str().unwrap(), "--tls-cert", &cert, "--tls-key", &key];
    let mut command = command(&[&serve[..], &["--listen", "0.0.0.0:0", "-o", "json"]].concat());
    let serving = Serving::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let url = serving.report["url"].as_str().unwrap();
    assert!(url.starts_with("https://localhost:"), "a name that it takes requests for: {url}");
    let (_, port) = url.rsplit_once(':').unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let session = rustls::ClientConnection::new(client, name).unwrap();
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let mut stream = rustls::StreamOwned::new(session, stream);
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("strict-transport-security"), "{answer}");
    assert_eq!(warnings(&serving.end("-TERM")), ["other machines can reach the server"]);

    let missing = tidelock(&["serve", "--store", path.to_str().unwrap(), "--tls-cert", &cert]);
    assert_eq!(missing.status.code(), Some(2), "{}", stderr(&missing));
    let store = path.to_str().unwrap();
    let other = tidelock(&[
        "serve",
        "--store",
        store,
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        &key,
        "--tls-key",
        &key,
        "--token-file",
        directory.path().join("others").to_str().unwrap(),
    ]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(stderr(&other).starts_with("error[TL1317]"), "{}", stderr(&other));
    assert_eq!(stdout(&other), "", "the second server prints an address");
    assert!(!directory.path().join("others").exists(), "the second server creates a tokens file");
}

#[tokio::test]
async fn the_printed_address_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let path = path.to_str().unwrap();
    let start = |args: &[&str]| {
        let mut command = command(&[&["serve", "--store", path, "-o", "json"], args].concat());
        Serving::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let (cert, key, _) = certificate(directory.path());
    let named = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--host",
        "store.example.com",
        "--host",
        "other.example.com",
    ];
    let serving = start(&[&["--listen", "0.0.0.0:0"], &named[..]].concat());
    assert!(serving.address.starts_with("store.example.com:"), "{}", serving.address);
    let (url, (read, _)) = (serving.report["url"].clone(), tokens(&directory.path().join("a.db.tokens")));
    let said = serving.end("-TERM");
    assert!(said.contains(&format!("{}/ui/#token={read}", url.as_str().unwrap())), "{said}");

    // Another address of this machine, without a name.
    if cfg!(target_os = "linux") {
        let serving = start(&["--listen", "127.0.0.2:0"]);
        assert!(serving.address.starts_with("127.0.0.2:"), "{}", serving.address);
        assert_eq!(serving.ask("GET", "/readyz", &read, "").0, 200);
        assert_eq!(warnings(&serving.end("-TERM")), ["requests for the host 127.0.0.2 are taken"]);
    }
}

#[test]
fn the_password_of_a_store_is_not_printed() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let store = "postgres://me:canary-4f9d1c77@127.0.0.1:1/x";
    let serve =
        ["serve", "--store", store, "--token-file", tokens.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let failed = tidelock(&serve);
    assert!(!failed.status.success());
    let said = format!("{}{}", stdout(&failed), stderr(&failed));
    assert!(said.contains("127.0.0.1") && !said.contains("canary"), "{said}");
}

#[tokio::test]
async fn a_file_of_tokens_that_others_may_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = store(directory.path()).await;
    let file = directory.path().join("tokens");
    let refused = |part: &str| {
        let (store, tokens) = (path.to_str().unwrap(), file.to_str().unwrap());
        let refused =
            tidelock(&["serve", "--store", store, "--token-file", tokens, "--listen", "127.0.0.1:0"]);
        assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(part), "{}", stderr(&refused));
    };
    let text = format!("read {}\nwrite {}\n", "r".repeat(43), "w".repeat(43));
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused("others may read it");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, text.lines().next().unwrap()).unwrap();
    refused("no line \"write TOKEN\"");
    std::fs::remove_file(&file).unwrap();
    symlink(directory.path().join("elsewhere"), &file).unwrap();
    refused("it is no file");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.db");
    let missing = tidelock(&["serve", "--store", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(missing.status.code(), Some(3), "{}", stderr(&missing));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

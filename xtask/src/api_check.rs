//! `cargo xtask api-check`: runs schemathesis against a server with a fresh store. schemathesis sends requests that match the server's
//! OpenAPI description, and requests that violate it. No response may be a server error or differ from the description.
//!
//! schemathesis is a Python program. It is taken from `PATH`, or installed into a directory that is removed afterwards. Where that is
//! impossible, the check is skipped with a message, unless it is required.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::{Missing, python, run};

/// The version of schemathesis to install.
const VERSION: &str = "4.32.5";
/// The number of generated requests for each operation and phase.
const EXAMPLES: &str = "30";
/// The timeout of the whole check.
const LONGEST: Duration = Duration::from_secs(240);
/// The path of the log tail, which is excluded because its response never ends.
const ENDLESS: &str = "/api/v1/events/tail";
/// The excluded check. A JSON schema cannot describe every rule for keys, patterns and conditions, so the server may reject requests
/// that the schema allows.
const EXCLUDED: &str = "positive_data_acceptance";

/// Runs the check, or reports why it cannot run.
pub(crate) fn run(missing: Missing) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let tool = match tool(directory.path()) {
        Ok(tool) => tool,
        Err(reason) => return missing.because(&format!("the API was not checked: {reason:#}")),
    };
    let server = Served::start(directory)?;
    server.fill()?;
    finished(server.checked_by(&tool).spawn()?)?;
    server.ask("GET", "/readyz", "").context("the server does not answer after the check")
}

/// Waits for the check, up to its timeout. The error does not show the arguments, because they contain a token.
fn finished(mut check: Child) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        match check.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => bail!("schemathesis has reported failures; see its output above"),
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    check.kill()?;
    bail!("schemathesis was not done within {}", run::seconds(LONGEST))
}

/// Returns the program from `PATH`, or installs it into the directory.
fn tool(directory: &Path) -> Result<PathBuf> {
    if let Some(found) = run::on_path("schemathesis").or_else(|| run::on_path("st")) {
        return Ok(found);
    }
    let environment = directory.join("venv");
    python::environment(&environment, None)?;
    println!("schemathesis is not installed: installing {VERSION} into a temporary directory");
    let mut install = Command::new(environment.join("bin").join("pip"));
    install
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .arg(format!("schemathesis=={VERSION}"));
    run::capture(&mut install).context("pip does not install schemathesis")?;
    Ok(environment.join("bin").join("schemathesis"))
}

/// A server process that ends when this value is dropped.
struct Served {
    child: Child,
    address: String,
    token: String,
    directory: TempDir,
}

impl Served {
    fn start(directory: TempDir) -> Result<Self> {
        let store = directory.path().join("api.db");
        let mut command = Command::new(run::built(&["--bin", "tidelock"])?);
        command.args(["dev", "--listen", "127.0.0.1:0", "--rate", "0", "--output", "json", "--store"]);
        let mut child = command.arg(&store).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('"').next());
        let address = address.with_context(|| format!("the server printed no address: {line:?}"))?.to_owned();
        let tokens = fs::read_to_string(directory.path().join("api.db.tokens"))?;
        let token = tokens.lines().find_map(|line| line.strip_prefix("write "));
        let token = token.context("the server has made no token")?.to_owned();
        Ok(Self { child, address, token, directory })
    }

    /// Creates the objects that the examples of the description name.
    fn fill(&self) -> Result<()> {
        let key = "order%28%22o-1%22%2C%207%29";
        let event = r#"{"expected": "any", "events": [{"type": "Placed", "payload": {"n": 1}}]}"#;
        self.ask("POST", &format!("/api/v1/streams/{key}/events"), event)?;
        self.ask("PUT", &format!("/api/v1/state/{key}"), r#"{"value": {"n": 1}}"#)?;
        self.ask("POST", &format!("/api/v1/leases/{key}"), r#"{"owner": "me", "ttl_ms": 600000}"#)
    }

    /// Sends a request, and fails unless the response is a success.
    fn ask(&self, method: &str, path: &str, body: &str) -> Result<()> {
        let Self { address, token, .. } = self;
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nif-none-match: *\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if !answer.starts_with("HTTP/1.1 2") {
            bail!("{method} {path} was answered: {answer}");
        }
        Ok(())
    }

    fn checked_by(&self, tool: &Path) -> Command {
        let mut check = Command::new(tool);
        let description = format!("http://{}/api/v1/openapi.json", self.address);
        check.args(["run", &description, "--header", &format!("Authorization: Bearer {}", self.token)]);
        check.args(["--exclude-path", ENDLESS, "--exclude-checks", EXCLUDED, "--max-examples", EXAMPLES]);
        check.args(["--request-timeout", "40", "--warnings", "off", "--no-color"]);
        // schemathesis writes its findings into the current directory.
        check.current_dir(self.directory.path());
        check
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

//! `tidelock locks`: the in-process locks of a program. No store holds them, so the command queries the program's server on
//! this machine.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use comfy_table::Table;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;

use crate::args::{Layout, Locks, LocksList};
use crate::exit::{self, Exit, UsageError};
use crate::input::unreadable;
use crate::output;

/// The maximum size of a response.
const MOST_BYTES: usize = 16 << 20;
/// The request timeout.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a verb of `locks`.
pub(crate) async fn run(verb: Locks) -> Result<Exit> {
    match verb {
        Locks::List(options) => list(&options).await,
    }
}

/// The part of the response that human readers are shown. Programs get all of it.
#[derive(Debug, Deserialize)]
struct Seen {
    shown: bool,
    held: u64,
    waiting: u64,
    terms: Vec<Value>,
    cycles: Vec<Vec<String>>,
}

/// A lock key that is held or waited for.
#[derive(Debug, Deserialize)]
struct LockView {
    term: String,
    holders: Vec<LockOwner>,
    waiters: Vec<LockOwner>,
    waiting: u64,
}

/// A holder or a waiter.
#[derive(Debug, Deserialize)]
struct LockOwner {
    task: Option<String>,
    mode: String,
    age_ms: u64,
    place: String,
}

impl LockOwner {
    fn shown(&self) -> String {
        let task = self.task.as_deref().unwrap_or("a task without a name");
        format!("{} at {}", output::flat(task), output::flat(&self.place))
    }
}

async fn list(options: &LocksList) -> Result<Exit> {
    let (url, token) = (place(&options.server)?, token(&options.token_file)?);
    let asked = tokio::time::timeout(PATIENCE, ask(&url, &token)).await;
    let told = asked.with_context(|| format!("{url} did not answer within {}", output::span(PATIENCE)))??;
    let seen: Seen = read(&url, told.clone())?;
    if !seen.shown {
        eprintln!("error: the program at {} does not show its locks", output::escaped(&options.server));
        eprintln!("hint: it shows them with `Server::locks`; `tidelock serve` has none of its own");
        return Ok(Exit::NotFound);
    }
    let printed = match options.output {
        Layout::Json => output::json(&told),
        Layout::Jsonl => seen.terms.iter().try_for_each(output::json_line),
        Layout::Table if seen.terms.is_empty() => Ok(()),
        Layout::Table => {
            let terms =
                seen.terms.iter().map(|term| read(&url, term.clone())).collect::<Result<Vec<LockView>>>()?;
            output::say(table(&terms))
        }
    };
    if options.output == Layout::Table {
        remarks(&seen).iter().for_each(|line| eprintln!("{line}"));
    }
    exit::after(printed, Exit::Well)
}

fn read<T: serde::de::DeserializeOwned>(url: &Uri, told: Value) -> Result<T> {
    serde_json::from_value(told).with_context(|| format!("{url} returned locks in an unexpected format"))
}

/// Returns the URL of the lock listing. The token is sent in clear text, so only this machine is accepted.
fn place(server: &str) -> Result<Uri> {
    let refused = |reason: &str| UsageError(format!("{}: {reason}", output::escaped(server)));
    let asked = format!("{}/api/v1/locks", server.trim_end_matches('/'));
    let url: Uri = asked.parse().map_err(|_| refused("this is no URL; write http://127.0.0.1:PORT"))?;
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    if url.scheme_str() != Some("http") || !here {
        let reason = "only http:// on this machine is asked, because the token is not encrypted; run this where the program runs, \
                      or look at the inspector";
        return Err(refused(reason).into());
    }
    Ok(url)
}

/// Returns the token in a file: after the word `read` or `write`, or alone.
fn token(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(&path.display().to_string(), &e))?;
    let of = |role: &str| text.lines().find_map(|line| line.strip_prefix(role)?.strip_prefix(' '));
    let token = of("read").or_else(|| of("write")).or_else(|| text.lines().next()).unwrap_or_default().trim();
    if token.is_empty() {
        return Err(UsageError(format!("{} holds no token", path.display())).into());
    }
    Ok(token.to_owned())
}

async fn ask(url: &Uri, token: &str) -> Result<Value> {
    let request = Request::get(url).header(AUTHORIZATION, format!("Bearer {token}"));
    let request = request.header(ACCEPT, "application/json").body(Empty::<Bytes>::new())?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request).await.with_context(|| format!("{url} cannot be asked"))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body =
        body.map_err(|error| anyhow::anyhow!("the answer of {url} cannot be read: {error}"))?.to_bytes();
    match status {
        StatusCode::OK => Ok(serde_json::from_slice(&body)
            .with_context(|| format!("the answer of {url} is not that of a Tidelock server"))?),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            bail!(
                "{url} does not take this token ({status}); name the file of that program with --token-file"
            )
        }
        status => bail!("{url} answered {status}; it is no Tidelock server, or one of another version"),
    }
}

fn table(terms: &[LockView]) -> Table {
    let mut table = output::table(&["term", "held by", "mode", "for", "waiting", "first in line"], &[4]);
    for LockView { term, holders, waiters, waiting } in terms {
        let more = holders.len().saturating_sub(1);
        let and = if more > 0 { format!(" and {more} more") } else { String::new() };
        let holder = holders.first();
        let age = holder.map(|holder| output::span(Duration::from_millis(holder.age_ms)));
        table.add_row([
            output::flat(term),
            format!("{}{and}", holder.map(LockOwner::shown).unwrap_or_default()),
            holder.map(|holder| output::flat(&holder.mode)).unwrap_or_default(),
            age.unwrap_or_default(),
            waiting.to_string(),
            waiters.first().map(LockOwner::shown).unwrap_or_default(),
        ]);
    }
    table
}

/// Returns the notes for standard error.
fn remarks(seen: &Seen) -> Vec<String> {
    let held = format!("{} held, {} waiting", output::number(seen.held), output::number(seen.waiting));
    let cycles = seen.cycles.iter().map(|cycle| output::flat(&cycle.join(", ")));
    let told = cycles.map(|tasks| format!("warning: these wait for each other: {tasks}"));
    std::iter::once(held).chain(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_asked() {
        for server in ["http://127.0.0.1:4400", "http://localhost:1/", "http://[::1]:4400"] {
            assert!(place(server).unwrap().to_string().ends_with("/api/v1/locks"), "{server}");
        }
        for server in ["https://127.0.0.1", "http://db.example", "http://192.0.2.1:80", "here", ""] {
            assert!(place(server).unwrap_err().is::<UsageError>(), "{server}");
        }
    }
}

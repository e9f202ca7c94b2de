//! Metrics as Prometheus reads them. No label holds a key, a run or anything else that has no bound.

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use tidelock::lock::Locks;

use crate::api::overview::{self, Overview, Reaction, Runs};
use crate::problem::Problem;
use crate::shared::{App, Shared};

/// How many reactions have a line of their own.
const REACTIONS: usize = 100;

/// The text that is scraped.
pub(crate) async fn text(State(app): State<App>) -> Result<Response, Problem> {
    let mut text = String::new();
    let seen = overview::seen(&app).await?;
    store(&seen, &mut text);
    runs(&seen.runs, &mut text);
    server(&app, &mut text);
    if let Some(locks) = app.inspected.locks.get() {
        held(locks, &mut text);
    }
    if let Some(render) = app.inspected.metrics.get() {
        text.push_str(&render());
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// The head of a metric.
fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn gauge(text: &mut String, name: &str, help: &str, value: u64) {
    head(text, name, "gauge", help);
    let _ = writeln!(text, "{name} {value}");
}

fn store(seen: &Overview, text: &mut String) {
    let Overview { info, work, .. } = seen;
    head(text, "tidelock_store_info", "gauge", "What the store is.");
    let _ =
        writeln!(text, "tidelock_store_info{{backend=\"{}\",schema=\"{}\"}} 1", info.backend, info.schema);
    let position = seen.position.map_or(0, |position| position.0);
    gauge(text, "tidelock_log_position", "The position of the last event.", position);
    gauge(text, "tidelock_work_rows", "Rows of work, whatever they wait for.", work.rows);
    gauge(text, "tidelock_blocked", "Rows of work that wait for an operator.", work.blocked);
    gauge(text, "tidelock_leased", "Rows of work that somebody holds.", work.leased);
    gauge(
        text,
        "tidelock_overdue",
        "Rows of work that are due and that nobody has taken for 5 s.",
        work.overdue,
    );
    let all = "Whether tidelock_overdue counts all rows; otherwise it is at least so many.";
    gauge(text, "tidelock_overdue_counted_all", all, work.whole.into());
    head(text, "tidelock_overdue_oldest_seconds", "gauge", "How long the oldest of them has been due.");
    let _ = writeln!(text, "tidelock_overdue_oldest_seconds {}", Seconds(work.oldest_ms));
    lag(&seen.reactions, text);
}

fn lag(reactions: &[Reaction], text: &mut String) {
    let help = "How long the oldest event has waited that was found, by reaction: to be routed, or at a key that is blocked or overdue.";
    head(text, "tidelock_lag_seconds", "gauge", help);
    for reaction in reactions.iter().take(REACTIONS) {
        let name = reaction.name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(text, "tidelock_lag_seconds{{reaction=\"{name}\"}} {}", Seconds(reaction.lag_ms));
    }
}

/// Milliseconds as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

fn runs(runs: &Runs, text: &mut String) {
    head(
        text,
        "tidelock_runs",
        "gauge",
        "Runs by how they stand; at least so many, unless all were counted.",
    );
    for (status, count) in &runs.by_status {
        let _ = writeln!(text, "tidelock_runs{{status=\"{status}\"}} {count}");
    }
    gauge(text, "tidelock_runs_counted_all", "Whether tidelock_runs counts all runs.", runs.whole.into());
}

/// Locks of the program that the server is mounted in.
fn held(locks: &Locks, text: &mut String) {
    let terms = locks.snapshot().terms;
    let waiting = terms.iter().map(|term| term.waiters.len() as u64).sum();
    gauge(text, "tidelock_locks_held", "Terms of locks that are held.", terms.len() as u64);
    gauge(text, "tidelock_locks_waiting", "Tasks that wait for a lock.", waiting);
}

fn server(app: &Shared, text: &mut String) {
    let connections = app.counts.connections.load(Ordering::Relaxed) as u64;
    gauge(text, "tidelock_http_connections", "Connections that are open.", connections);
    let free = app.followers.available_permits();
    let followers = app.options.followers.saturating_sub(free) as u64;
    gauge(text, "tidelock_http_followers", "Clients that follow the log.", followers);
    head(text, "tidelock_http_strays_total", "counter", "Requests that came to no route.");
    let _ = writeln!(text, "tidelock_http_strays_total {}", app.counts.strays.load(Ordering::Relaxed));
    head(text, "tidelock_http_requests_total", "counter", "Requests by route and class of status.");
    for ((method, path, class), count) in app.counts.by_route() {
        let _ = writeln!(
            text,
            "tidelock_http_requests_total{{method=\"{method}\",route=\"{path}\",status=\"{class}xx\"}} {count}"
        );
    }
}

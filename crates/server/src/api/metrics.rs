//! Metrics of the store and the server in the Prometheus text format, followed by those of the program. No label contains a key, a run or
//! any other unbounded value.

use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use tidelock_core::lock::Locks;

use crate::api::overview::{self, Overview, Reaction, Runs};
use crate::app_state::{App, AppState};
use crate::problem::Problem;

/// The maximum number of reactions with a separate time series.
const REACTIONS: usize = 100;

/// Returns the text for the scraper: current values from a temporary recorder, and the output of the program's recorder.
pub(crate) async fn text(State(app): State<App>) -> Result<Response, Problem> {
    let seen = overview::seen(&app).await?;
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        store(&seen);
        runs(&seen.runs);
        server(&app);
        if let Some(locks) = app.inspected.locks.get() {
            held(locks);
        }
    });
    let mut text = recorder.handle().render();
    if let Some(render) = app.inspected.metrics.get() {
        text.push_str(&render());
    }
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

fn set(name: &'static str, help: &'static str, value: u64) {
    describe_gauge!(name, help);
    gauge!(name).set(value as f64);
}

fn store(seen: &Overview) {
    let Overview { info, work, .. } = seen;
    describe_gauge!("tidelock_store_info", "Backend and engine of the store.");
    let (backend, schema) = (info.backend.clone(), info.schema.to_string());
    gauge!("tidelock_store_info", "backend" => backend, "schema" => schema).set(1);
    let position = seen.position.map_or(0, |position| position.0);
    set("tidelock_log_position", "The position of the last event.", position);
    set("tidelock_work_rows", "Rows of work.", work.rows);
    set("tidelock_work_blocked", "Blocked rows of work.", work.blocked);
    set("tidelock_work_leased", "Leased rows of work.", work.leased);
    set("tidelock_work_overdue", "Rows of work that have been due for 5 s and are not leased.", work.overdue);
    let all = "Whether tidelock_work_overdue covers all rows; otherwise it is a lower bound.";
    set("tidelock_work_overdue_complete", all, work.whole.into());
    describe_gauge!(
        "tidelock_work_overdue_oldest_seconds",
        "Time for which the oldest overdue row has been due."
    );
    gauge!("tidelock_work_overdue_oldest_seconds").set(seconds(work.oldest_ms));
    lag(&seen.reactions);
}

fn lag(reactions: &[Reaction]) {
    let help = "Age of the oldest pending event that was found, by reaction: not yet routed, or at a key that is blocked or overdue.";
    describe_gauge!("tidelock_reaction_lag_seconds", help);
    for reaction in reactions.iter().take(REACTIONS) {
        gauge!("tidelock_reaction_lag_seconds", "reaction" => reaction.name.clone())
            .set(seconds(reaction.lag_ms));
    }
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

fn runs(runs: &Runs) {
    describe_gauge!("tidelock_runs", "Runs by status.");
    for (status, count) in &runs.by_status {
        gauge!("tidelock_runs", "status" => status.to_string()).set(*count as f64);
    }
}

/// Sets the gauges of the in-process locks of the host program.
fn held(locks: &Locks) {
    let terms = locks.snapshot().terms;
    let waiting = terms.iter().map(|term| term.waiters.len() as u64).sum();
    set("tidelock_locks_held", "Locks that are held.", terms.len() as u64);
    set("tidelock_locks_waiting", "Tasks that wait for a lock.", waiting);
}

fn server(app: &AppState) {
    let connections = app.counts.connections.load(Ordering::Relaxed) as u64;
    set("tidelock_http_connections", "Open connections.", connections);
    let free = app.followers.available_permits();
    let followers = app.options.followers.saturating_sub(free) as u64;
    set("tidelock_http_followers", "Clients that follow the log or change notifications.", followers);
    describe_counter!("tidelock_http_unmatched_total", "Requests that match no route.");
    counter!("tidelock_http_unmatched_total").absolute(app.counts.strays.load(Ordering::Relaxed));
    describe_counter!("tidelock_http_requests_total", "Requests, by route and status class.");
    for ((method, route, class), count) in app.counts.by_route() {
        let status = format!("{class}xx");
        counter!("tidelock_http_requests_total", "method" => method, "route" => route, "status" => status)
            .absolute(count);
    }
}

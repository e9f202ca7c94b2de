//! Metrics as Prometheus reads them. No label holds a key, a run or anything else that has no bound.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use tidelock::store::WorkFilter;

use crate::api::health;
use crate::api::overview::{self, Runs};
use crate::problem::Problem;
use crate::shared::{App, Shared};

/// The text that is scraped.
pub(crate) async fn text(State(app): State<App>) -> Result<Response, Problem> {
    let mut text = String::new();
    store(&app, &mut text).await?;
    runs(&app, &mut text).await?;
    server(&app, &mut text);
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

async fn store(app: &Shared, text: &mut String) -> Result<(), Problem> {
    let info = app.store().info().await?;
    head(text, "tidelock_store_info", "gauge", "What the store is.");
    let _ =
        writeln!(text, "tidelock_store_info{{backend=\"{}\",schema=\"{}\"}} 1", info.backend, info.schema);
    let position = health::head(app).await?.map_or(0, |position| position.0);
    gauge(text, "tidelock_log_position", "The position of the last event.", position);
    let count = async |filter: WorkFilter| app.store().count_work(&filter).await;
    let rows = count(WorkFilter::default()).await?;
    gauge(text, "tidelock_work_rows", "Rows of work, whatever they wait for.", rows);
    let blocked = count(WorkFilter { blocked: Some(true), ..WorkFilter::default() }).await?;
    gauge(text, "tidelock_blocked", "Rows of work that wait for an operator.", blocked);
    let leased = count(WorkFilter { leased: Some(true), ..WorkFilter::default() }).await?;
    gauge(text, "tidelock_leased", "Rows of work that somebody holds.", leased);
    Ok(())
}

async fn runs(app: &Shared, text: &mut String) -> Result<(), Problem> {
    let Runs { by_status, whole } = overview::runs(app).await?;
    head(text, "tidelock_runs", "gauge", "Runs by how they stand, of the first 10000.");
    for (status, count) in by_status {
        let _ = writeln!(text, "tidelock_runs{{status=\"{status}\"}} {count}");
    }
    gauge(text, "tidelock_runs_counted_all", "Whether tidelock_runs counts all runs.", whole.into());
    Ok(())
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

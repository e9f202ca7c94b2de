//! Server information, caller permissions, and change notifications for the inspector.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use http::HeaderMap;
use http::header::HeaderName;
use schemars::JsonSchema;
use serde::Serialize;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::Position;
use tidelock_core::store::{Durability, Watch};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::api::health;
use crate::error::ServerError;
use crate::openapi::shape;
use crate::problem::Problem;
use crate::request::{Answered, header_text, ok, unreadable};
use crate::shared::App;
use crate::token::{Caller, Role};

/// The minimum time between two pulses.
const APART: Duration = Duration::from_millis(500);
/// The maximum time between two pulses. It bounds the delay of changes without an event, such as those of a lease.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Serialize, JsonSchema)]
pub(crate) struct About {
    version: &'static str,
    /// The name of the caller in the audit stream.
    caller: String,
    #[schemars(extend("enum" = ["open", "read", "write"]))]
    role: &'static str,
    /// Whether the caller may write. That depends on its role and on the options of the server.
    writes: bool,
    backend: String,
    engine: String,
    schema: u32,
    #[schemars(with = "String")]
    durability: Durability,
    /// Whether the program shows its locks here.
    locks: bool,
    /// Whether the program shows its state conflicts here.
    conflicts: bool,
    #[schemars(with = "shape::Timestamp")]
    now: Timestamp,
}

/// Returns information about the server and the permissions of the caller.
pub(crate) async fn about(State(app): State<App>, Extension(caller): Extension<Caller>) -> Answered {
    let info = app.store().info().await?;
    ok(&About {
        version: env!("CARGO_PKG_VERSION"),
        role: caller.role.word(),
        writes: app.options.writes && caller.role == Role::Write,
        caller: caller.name,
        backend: info.backend,
        engine: info.engine,
        schema: info.schema,
        durability: info.durability,
        locks: app.inspected.locks.get().is_some(),
        conflicts: app.inspected.conflicts.get().is_some(),
        now: app.store().now().await?,
    })
}

#[derive(Serialize)]
struct Pulse {
    position: Option<Position>,
    now: Timestamp,
}

/// Streams a pulse whenever something may have changed, at most twice a second, and every five seconds otherwise. A pulse contains only
/// the last position and the time, so its cost does not depend on the number of writes.
pub(crate) async fn pulse(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    // The header is only validated. A client does not resume from it, because the next pulse is complete.
    let last = header_text(&headers, HeaderName::from_static("last-event-id"), "Last-Event-ID")?;
    if last.is_some_and(|last| last.parse::<u64>().is_err()) {
        return Err(unreadable("Last-Event-ID", "it is no position").into());
    }
    let seat = app.followers.clone().try_acquire_owned();
    let seat = seat.map_err(|_| ServerError::TooMany { limit: app.options.followers })?;
    let (watch, ending) = (app.store().watch(), app.ending.subscribe());
    let told = pulses(Pulsing { app, watch, ending, sent: None, _seat: seat });
    Ok(Sse::new(told).keep_alive(KeepAlive::new().interval(QUIET * 2)).into_response())
}

struct Pulsing {
    app: App,
    watch: Watch,
    ending: watch::Receiver<bool>,
    /// The time of the last pulse.
    sent: Option<Instant>,
    _seat: OwnedSemaphorePermit,
}

fn pulses(pulsing: Pulsing) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    unfold(pulsing, |mut pulsing| async move {
        let event = pulsing.next().await?;
        Some((Ok(event), pulsing))
    })
}

impl Pulsing {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(sent) = self.sent {
                tokio::select! {
                    // This branch also completes when the sender has been dropped.
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                    () = news(&mut self.watch, sent) => {}
                }
            }
            self.sent = Some(Instant::now());
            // A store that is unreachable may recover, so errors are retried.
            let position = health::head(&self.app).await;
            if let (Ok(position), Ok(now)) = (position, self.app.store().now().await) {
                let line = serde_json::to_string(&Pulse { position, now }).unwrap_or_default();
                let id = position.map_or(0, |position| position.0).to_string();
                return Some(Event::default().id(id).event("pulse").data(line));
            }
        }
    }
}

/// Waits until something may have changed and the minimum time since the last pulse has passed.
async fn news(watch: &mut Watch, sent: Instant) {
    tokio::select! {
        _ = watch.changed() => {}
        () = tokio::time::sleep_until(sent + QUIET) => {}
    }
    tokio::time::sleep_until(sent + APART).await;
}

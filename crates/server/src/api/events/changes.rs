//! Change notifications, as server-sent events. The inspector reloads its data with each notification.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use http::HeaderMap;
use http::header::HeaderName;
use serde::Serialize;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::Position;
use tidelock_core::store::Watch;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use crate::api::health;
use crate::app_state::App;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{header_text, unreadable};

/// The minimum time between two notifications.
const APART: Duration = Duration::from_millis(500);
/// The maximum time between two notifications. It bounds the delay of changes without an event, such as those of a lease.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Change {
    position: Option<Position>,
    now: Timestamp,
}

/// Sends a notification when something may have changed, at most twice a second, and every five seconds otherwise. It contains only the
/// last position and the time, so its cost does not depend on the number of writes.
pub(crate) async fn changes(State(app): State<App>, headers: HeaderMap) -> Result<Response, Problem> {
    // The header is only validated. A client does not resume from it, because the next notification is complete.
    let last = header_text(&headers, HeaderName::from_static("last-event-id"), "Last-Event-ID")?;
    if last.is_some_and(|last| last.parse::<u64>().is_err()) {
        return Err(unreadable("Last-Event-ID", "it is no position").into());
    }
    let seat = app.followers.clone().try_acquire_owned();
    let seat = seat.map_err(|_| ServerError::TooMany { limit: app.options.followers })?;
    let (watch, ending) = (app.store().watch(), app.ending.subscribe());
    let changes = notifications(Notifying { app, watch, ending, sent: None, _seat: seat });
    Ok(Sse::new(changes).keep_alive(KeepAlive::new().interval(QUIET * 2)).into_response())
}

struct Notifying {
    app: App,
    watch: Watch,
    ending: watch::Receiver<bool>,
    /// The time of the last notification.
    sent: Option<Instant>,
    _seat: OwnedSemaphorePermit,
}

fn notifications(notifying: Notifying) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    unfold(notifying, |mut notifying| async move {
        let event = notifying.next().await?;
        Some((Ok(event), notifying))
    })
}

impl Notifying {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(sent) = self.sent {
                tokio::select! {
                    // This branch also completes when the sender has been dropped.
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                    () = changed(&mut self.watch, sent) => {}
                }
            }
            self.sent = Some(Instant::now());
            // A store that is unreachable may recover, so errors are retried.
            let position = health::head(&self.app).await;
            if let (Ok(position), Ok(now)) = (position, self.app.store().now().await) {
                let line = serde_json::to_string(&Change { position, now }).unwrap_or_default();
                let id = position.map_or(0, |position| position.0).to_string();
                return Some(Event::default().id(id).event("change").data(line));
            }
        }
    }
}

/// Waits until something may have changed and the minimum time since the last notification has passed.
async fn changed(watch: &mut Watch, sent: Instant) {
    tokio::select! {
        _ = watch.changed() => {}
        () = tokio::time::sleep_until(sent + QUIET) => {}
    }
    tokio::time::sleep_until(sent + APART).await;
}

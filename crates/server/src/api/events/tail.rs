//! Event log tail, as server-sent events. The id of each is its position, so that a client that reconnects resumes after the last one.
//! The first frame has an id and no data. A client that is disconnected before the first event resumes from that id.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use http::HeaderMap;
use http::header::HeaderName;
use serde::Deserialize;
use tidelock_core::error::{Explain as _, Retry};
use tidelock_core::events::{EventJson, Events, EventsError, StartFrom, Subscription, SubscriptionFilter};
use tidelock_core::id::{EventType, Position};
use tidelock_core::store::SharedStore;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::app_state::App;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{QueryParams, header_text, unreadable};

/// The interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TailQuery {
    /// `beginning`, `now`, or the position after which the tail starts. A `Last-Event-ID` header takes precedence.
    from: Option<String>,
    stream: Option<String>,
    prefix: Option<String>,
    /// Event types, separated by commas.
    types: Option<String>,
    #[serde(default)]
    internal: bool,
}

/// Follows the log until the client disconnects or the server shuts down.
pub(crate) async fn tail(
    State(app): State<App>,
    headers: HeaderMap,
    QueryParams(asked): QueryParams<TailQuery>,
) -> Result<Response, Problem> {
    let last = header_text(&headers, HeaderName::from_static("last-event-id"), "Last-Event-ID")?;
    let start = start(last.as_deref().or(asked.from.as_deref()))?;
    let what = what(&asked)?;
    let seat = app.followers.clone().try_acquire_owned();
    let seat = seat.map_err(|_| ServerError::TooMany { limit: app.options.followers })?;
    let subscription = Events::new(SharedStore::clone(&app.store)).subscribe(what, start).await?;
    let ending = app.ending.subscribe();
    // Positions start at 1.
    let began = subscription.position().unwrap_or(Position(0));
    let first = Event::default().id(began.to_string());
    let audit_entry =
        follow(Following { first: Some(first), subscription, ending, over: false, _seat: seat });
    Ok(Sse::new(audit_entry).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

fn start(from: Option<&str>) -> Result<StartFrom, ServerError> {
    match from {
        None | Some("now") => Ok(StartFrom::Now),
        Some("beginning") => Ok(StartFrom::Beginning),
        Some(position) => match position.parse() {
            Ok(position) => Ok(StartFrom::After(Position(position))),
            Err(_) => {
                Err(unreadable("from", &format!("{position:?} is no position, and not beginning or now")))
            }
        },
    }
}

fn what(asked: &TailQuery) -> Result<SubscriptionFilter, Problem> {
    let what = match (&asked.stream, &asked.prefix) {
        (Some(_), Some(_)) => return Err(unreadable("the query", "stream and prefix are both given").into()),
        (Some(key), None) => SubscriptionFilter::stream(&key.parse()?),
        (None, Some(prefix)) => SubscriptionFilter::streams(prefix.parse()?),
        (None, None) => SubscriptionFilter::all(),
    };
    let types = asked.types.as_deref().unwrap_or_default();
    let types = types.split(',').filter(|name| !name.is_empty()).map(str::parse);
    let what = what.types(types.collect::<Result<Vec<EventType>, _>>()?);
    Ok(if asked.internal { what.with_internal() } else { what })
}

struct Following {
    /// The frame with the start position.
    first: Option<Event>,
    subscription: Subscription,
    ending: watch::Receiver<bool>,
    over: bool,
    _seat: OwnedSemaphorePermit,
}

fn follow(following: Following) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok(event), following))
    })
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while !self.over {
            let found = tokio::select! {
                // This branch also completes when the sender has been dropped.
                _ = self.ending.wait_for(|ending| *ending) => return None,
                found = self.subscription.next() => found,
            };
            match found {
                Ok(event) => {
                    let line = serde_json::to_string(&EventJson::of(&event)).unwrap_or_default();
                    return Some(Event::default().id(event.position.to_string()).data(line));
                }
                Err(EventsError::Gap { from, to, .. }) => {
                    return Some(Event::default().event("gap").data(format!("{from}-{to}")));
                }
                Err(error) => match error.retry() {
                    // A store that is unreachable may recover.
                    Retry::After(pause) => tokio::time::sleep(pause).await,
                    Retry::Now => {}
                    Retry::Never => {
                        self.over = true;
                        return Some(Event::default().event("error").data(error.code().as_str()));
                    }
                },
            }
        }
        None
    }
}

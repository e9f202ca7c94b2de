//! The log as it grows, as server-sent events. The id of each is its position, so that a client that comes back goes on where it
//! was. The first frame has an id and says nothing: a client that is cut off before anything happened goes on there as well.

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
use tidelock::error::{Explain as _, Retry};
use tidelock::events::{EventLine, Events, EventsError, Start, Subscription, What};
use tidelock::id::{EventType, Position};
use tidelock::store::SharedStore;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::error::ServerError;
use crate::problem::Problem;
use crate::request::{Asked, header_text, unreadable};
use crate::shared::App;

/// How often a client hears that the server is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TailQuery {
    /// `beginning`, `now` or a position, after which it begins. A `Last-Event-ID` comes before it.
    from: Option<String>,
    stream: Option<String>,
    prefix: Option<String>,
    /// With commas between them.
    types: Option<String>,
    #[serde(default)]
    internal: bool,
}

/// Follows the log until the client goes away or the server ends.
pub(crate) async fn tail(
    State(app): State<App>,
    headers: HeaderMap,
    Asked(asked): Asked<TailQuery>,
) -> Result<Response, Problem> {
    let last = header_text(&headers, HeaderName::from_static("last-event-id"), "Last-Event-ID")?;
    let start = start(last.as_deref().or(asked.from.as_deref()))?;
    let what = what(&asked)?;
    let seat = app.followers.clone().try_acquire_owned();
    let seat = seat.map_err(|_| ServerError::TooMany { limit: app.options.followers })?;
    let subscription = Events::new(SharedStore::clone(&app.store)).subscribe(what, start).await?;
    let ending = app.ending.subscribe();
    // Positions begin with 1.
    let began = subscription.position().unwrap_or(Position(0));
    let first = Event::default().id(began.to_string());
    let told = follow(Following { first: Some(first), subscription, ending, over: false, _seat: seat });
    Ok(Sse::new(told).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)).into_response())
}

fn start(from: Option<&str>) -> Result<Start, ServerError> {
    match from {
        None | Some("now") => Ok(Start::Now),
        Some("beginning") => Ok(Start::Beginning),
        Some(position) => match position.parse() {
            Ok(position) => Ok(Start::After(Position(position))),
            Err(_) => {
                Err(unreadable("from", &format!("{position:?} is no position, and not beginning or now")))
            }
        },
    }
}

fn what(asked: &TailQuery) -> Result<What, Problem> {
    let what = match (&asked.stream, &asked.prefix) {
        (Some(_), Some(_)) => return Err(unreadable("the query", "stream and prefix are both given").into()),
        (Some(key), None) => What::stream(&key.parse()?),
        (None, Some(prefix)) => What::streams(prefix.parse()?),
        (None, None) => What::all(),
    };
    let types = asked.types.as_deref().unwrap_or_default();
    let types = types.split(',').filter(|name| !name.is_empty()).map(str::parse);
    let what = what.types(types.collect::<Result<Vec<EventType>, _>>()?);
    Ok(if asked.internal { what.with_internal() } else { what })
}

struct Following {
    /// The frame that says where it began.
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
                // Also when nobody is left who could say that the server ends.
                _ = self.ending.wait_for(|ending| *ending) => return None,
                found = self.subscription.next() => found,
            };
            match found {
                Ok(event) => {
                    let line = serde_json::to_string(&EventLine::of(&event)).unwrap_or_default();
                    return Some(Event::default().id(event.position.to_string()).data(line));
                }
                Err(EventsError::Gap { from, to, .. }) => {
                    return Some(Event::default().event("gap").data(format!("{from}-{to}")));
                }
                Err(error) => match error.retry() {
                    // A server that is away may come back.
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

//! Middleware of each route: checks the role of the caller and the content type of the body, and enforces the timeout.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;

use crate::app_state::App;
use crate::concurrency_limit;
use crate::error::ServerError;
use crate::problem::Problem;
use crate::request_id;
use crate::routes::{Deadline, Route, Verb};
use crate::sanitize::short;
use crate::token::{Caller, Role};

/// The maximum time for which a caller may wait for the end of a run.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Runs a request behind the policy of its route.
pub(crate) async fn guard(
    State((app, route)): State<(App, &'static Route)>,
    request: Request,
    next: Next,
) -> Response {
    let path = short(request.uri().path());
    let caller = request.extensions().get::<Caller>().map(|caller| short(&caller.name)).unwrap_or_default();
    let response = match allowed(&app, route, &request) {
        Ok(()) => run(&app, route, request, next).await,
        Err(error) => Problem::from(error).into_response(),
    };
    let status = response.status().as_u16();
    app.counts.answered(route.verb.word(), route.path, status);
    if route.role == Role::Write {
        let (method, request) = (route.verb.word(), request_id::shown());
        tracing::info!(target: "tidelock::server", method, %path, %caller, %request, status, "a write was answered");
    }
    response
}

fn allowed(app: &App, route: &'static Route, request: &Request) -> Result<(), ServerError> {
    let refused =
        |reason| Err(ServerError::NotAllowed { method: route.verb.word(), path: route.path, reason });
    if route.role != Role::Open {
        let Some(caller) = request.extensions().get::<Caller>() else { return Err(ServerError::NoToken) };
        if caller.role < route.role {
            return refused("the token is for reading; show one that is for writing");
        }
    }
    if route.role == Role::Write && !app.options.writes {
        return refused("the server was started for reading; start it with writes allowed");
    }
    match route.verb {
        Verb::Post | Verb::Put => json(request),
        Verb::Get | Verb::Delete => Ok(()),
    }
}

/// Checks that the body is JSON. An HTML form cannot have this content type, so a browser sends a CORS preflight for requests of other
/// sites.
fn json(request: &Request) -> Result<(), ServerError> {
    let found = request.headers().get(CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or("?"));
    let kind = found.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ServerError::ContentType { found: found.chars().take(100).collect() })
}

async fn run(app: &App, route: &'static Route, request: Request, next: Next) -> Response {
    let limit = match route.lasts {
        Deadline::Short => app.options.request_time,
        Deadline::Waits => app.options.request_time + LONGEST_WAIT,
    };
    let deadline = Instant::now() + limit;
    let seat = match route {
        // Requests that only wait, or cost almost nothing, need no permit.
        Route { lasts: Deadline::Waits, .. } | Route { role: Role::Open, .. } => None,
        _ => match concurrency_limit::take(app, deadline).await {
            Ok(seat) => Some(seat),
            Err(error) => return Problem::from(error).into_response(),
        },
    };
    let running = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout_at(deadline, running).await {
        Ok(Ok(response)) => concurrency_limit::until_sent(response, seat),
        Ok(Err(_)) => {
            let (method, path, request) = (route.verb.word(), route.path, request_id::shown());
            tracing::error!(target: "tidelock::server", method, path, %request, "a handler panicked");
            Problem::from(ServerError::Panicked).into_response()
        }
        Err(_) => Problem::from(ServerError::TooLong { limit }).into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tidelock_core::store::MemoryStore;
    use tower::ServiceExt as _;

    use super::*;
    use crate::app_state::AppState;
    use crate::options::ServerOptions;
    use crate::routes::ROUTES;
    use crate::token::Tokens;

    async fn broken() -> &'static str {
        panic!("this is a test")
    }

    #[tokio::test]
    async fn a_handler_that_panics_or_hangs_is_answered_for() {
        let options = ServerOptions::new(Tokens::none()).request_time(Duration::from_millis(20));
        let app = AppState::new(Arc::new(MemoryStore::new()), options);
        let open = ROUTES.iter().find(|route| route.role == Role::Open).unwrap();
        let router: Router = Router::new()
            .route("/broken", get(broken))
            .route("/hangs", get(std::future::pending::<&'static str>))
            .layer(from_fn_with_state((app, open), guard));
        for (path, status) in [("/broken", 500), ("/hangs", 504)] {
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(router.clone().oneshot(request).await.unwrap().status(), status, "{path}");
        }
    }
}

//! Route table. The router, the OpenAPI description and the access policy test are derived from it, so every route has a policy.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use http::Method;
use schemars::JsonSchema;

use crate::api::{events, health, info, leases, locks, metrics, overview};
use crate::api::{reactions, runs, schedules, state, streams, work};
use crate::app_state::App;
use crate::openapi::{Describe, shape};
use crate::token::Role;
use crate::{access_control, openapi, route_policy, ui};

/// The HTTP method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The time limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// The request time of the options.
    Short,
    /// The request time of the options, plus the longest wait that a caller may ask for.
    Waits,
}

/// A route with its policy and its description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    pub(crate) lasts: Deadline,
    /// The summary in the OpenAPI description.
    pub(crate) summary: &'static str,
    /// The query parameters. Names that end in `!` are required.
    pub(crate) query: &'static [&'static str],
    /// The schema of the request body.
    pub(crate) body: Option<Describe>,
    /// The status of a successful response, and the schema of its body.
    pub(crate) answer: (u16, Describe),
    /// The media type of the response.
    pub(crate) media: &'static str,
    handler: fn() -> MethodRouter<App>,
}

impl Route {
    const fn read(path: &'static str, summary: &'static str, handler: fn() -> MethodRouter<App>) -> Self {
        Self {
            verb: Verb::Get,
            path,
            role: Role::Read,
            lasts: Deadline::Short,
            summary,
            query: &[],
            body: None,
            answer: (200, openapi::describe::<serde_json::Value>),
            media: "application/json",
            handler,
        }
    }

    const fn write(
        verb: Verb,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<App>,
    ) -> Self {
        Self { verb, role: Role::Write, ..Self::read(path, summary, handler) }
    }

    const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(openapi::describe::<T>), ..self }
    }

    const fn answers<T: JsonSchema>(self, status: u16) -> Self {
        Self { answer: (status, openapi::describe::<T>), ..self }
    }

    const fn sends<T: JsonSchema>(self, media: &'static str) -> Self {
        Self { media, ..self.answers::<T>(200) }
    }
}

const PAGE: &[&str] = &["prefix", "cursor", "limit"];
/// The query parameters that name the lease of a write and its fencing token.
const LEASE: &[&str] = &["lease", "fence"];

/// All routes except the pages of the inspector.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    Route { role: Role::Open, ..Route::read("/healthz", "Liveness of the process", || get(health::lives)) }.sends::<String>("text/plain"),
    Route::read("/readyz", "Readiness of the store", || get(health::ready)).answers::<health::Ready>(200),
    Route::read("/metrics", "Metrics in the Prometheus text format", || get(metrics::text)).sends::<String>("text/plain"),
    Route::read("/api/v1/openapi.json", "The OpenAPI description", || get(openapi::document)),

    Route::read("/api/v1/info", "Server information and the permissions of the caller", || get(info::info)).answers::<info::Info>(200),
    Route::read("/api/v1/overview", "Key numbers of the store", || get(overview::overview)).answers::<overview::Overview>(200),

    Route::read("/api/v1/events/tail", "Follow the log (text/event-stream); resumes after Last-Event-ID", || get(events::tail))
        .query(&["from", "stream", "prefix", "types", "internal"]).sends::<shape::ServerSentEvent>("text/event-stream"),
    Route::read("/api/v1/events/changes", "Follow change notifications (text/event-stream)", || get(events::changes)).sends::<shape::ServerSentEvent>("text/event-stream"),

    Route::read("/api/v1/streams", "Streams in the order of their keys", || get(streams::list)).query(PAGE).answers::<streams::Listing>(200),
    Route::read("/api/v1/streams/{key}", "A stream", || get(streams::show)).answers::<shape::Stream>(200),
    Route::read("/api/v1/streams/{key}/events", "Events of a stream, starting at a version", || get(streams::events))
        .query(&["from", "limit"]).answers::<streams::Events<'static>>(200),
    Route::write(Verb::Post, "/api/v1/streams/{key}/events", "Append events", || post(streams::append)).body::<streams::Append>().answers::<streams::Receipt<'static>>(201),

    Route::read("/api/v1/state", "Documents in the order of their keys, without their values", || get(state::list)).query(PAGE).answers::<state::Listing>(200),
    Route::read("/api/v1/state/conflicts", "Conflicts of state mutations, by kind of record", || get(state::conflicts)).answers::<state::Conflicts>(200),
    Route::read("/api/v1/state/{key}", "A document, with its version as ETag", || get(state::show)).answers::<shape::Record>(200),
    Route::write(Verb::Put, "/api/v1/state/{key}", "Write a document; requires If-Match, or If-None-Match: *", || put(state::write))
        .query(LEASE).body::<state::Value>().answers::<state::Written>(200),
    Route::write(Verb::Delete, "/api/v1/state/{key}", "Delete a document; requires If-Match", || delete(state::remove))
        .query(LEASE).answers::<state::Written>(200),
    Route::read("/api/v1/state/{key}/history", "Writes to a document, newest first", || get(state::history)).query(&["cursor", "limit"]).answers::<state::History>(200),
    Route::read("/api/v1/state/{key}/history/{number}", "A document as of a write", || get(state::at)).answers::<state::At>(200),

    Route::read("/api/v1/leases", "Leases in the order of their keys", || get(leases::list)).query(&["cursor", "limit"]).answers::<leases::Listing>(200),
    Route::read("/api/v1/leases/{key}", "A lease with its waiters", || get(leases::show)).answers::<shape::Lease>(200),
    Route::write(Verb::Post, "/api/v1/leases/{key}", "Acquire a lease", || post(leases::take)).body::<leases::Take>().answers::<leases::AcquiredLease>(200),
    Route::write(Verb::Put, "/api/v1/leases/{key}", "Renew a lease", || put(leases::renew)).body::<leases::Renew>().answers::<leases::AcquiredLease>(200),
    Route::write(Verb::Delete, "/api/v1/leases/{key}", "Release a lease", || delete(leases::release)).query(&["fence!"]).answers::<leases::Released>(200),
    Route::read("/api/v1/locks", "Locks inside the host program", || get(locks::list)).answers::<locks::Shown>(200),

    Route::read("/api/v1/runs", "Runs, newest first", || get(runs::list))
        .query(&["workflow", "status", "prefix", "cursor", "limit"]).answers::<runs::Listing>(200),
    Route::write(Verb::Post, "/api/v1/runs", "Start a run of a registered workflow", || post(runs::start)).body::<runs::Start>().answers::<runs::Started>(201),
    Route::read("/api/v1/runs/{run}", "A run", || get(runs::show)).answers::<shape::Run>(200),
    Route::read("/api/v1/runs/{run}/steps", "Steps of a run", || get(runs::steps)).query(&["cursor", "limit"]).answers::<runs::Steps<'static>>(200),
    Route { lasts: Deadline::Waits, ..Route::read("/api/v1/runs/{run}/result", "Result of a run; waits for it, and returns 202 while the run is in progress", || get(runs::result)) }
        .query(&["wait"]).answers::<runs::Ended>(200),
    Route::write(Verb::Post, "/api/v1/runs/{run}/signals", "Send a signal to a run", || post(runs::signal)).body::<runs::Signal>().answers::<runs::RunId>(202),
    Route::write(Verb::Post, "/api/v1/runs/{run}/cancel", "Cancel a run", || post(runs::cancel)).body::<runs::Reason>().answers::<runs::RunId>(202),
    Route::write(Verb::Post, "/api/v1/runs/{run}/resume", "Resume a failed or suspended run", || post(runs::resume)).body::<runs::Reason>().answers::<runs::RunId>(202),
    Route::write(Verb::Post, "/api/v1/runs/{run}/fork", "Start a run with the history of another run up to a step", || post(runs::fork)).body::<runs::Fork>().answers::<runs::Forked>(201),

    Route::read("/api/v1/work", "Rows of work in the order of their keys", || get(work::list))
        .query(&["key", "queue", "pattern", "blocked", "leased", "cursor", "limit"]).answers::<work::Listing>(200),
    Route::read("/api/v1/work/{key}", "A row of work", || get(work::show)).answers::<work::Shown>(200),
    Route::write(Verb::Post, "/api/v1/work:batch", "Unblock or retry rows of work, after their number was confirmed", || post(work::batch))
        .body::<work::Operate>().answers::<work::Operated>(200),

    Route::read("/api/v1/reactions", "Reactions and their progress", || get(reactions::list)).answers::<reactions::Reactions>(200),
    Route::read("/api/v1/reactions/{reaction}/keys", "Keys of a reaction", || get(reactions::keys)).query(&["blocked", "cursor", "limit"]).answers::<reactions::Keys>(200),
    Route::read("/api/v1/reactions/{reaction}/dead-letters", "Dead letters of a reaction", || get(reactions::dead_letters)).query(&["cursor", "limit"]).answers::<reactions::DeadLetters>(200),
    Route::write(Verb::Post, "/api/v1/reactions/{reaction}/keys:batch", "Unblock, retry, reset or park keys, and replay or drop dead letters, after their number was confirmed", || post(reactions::operate))
        .body::<reactions::Operate>().answers::<work::Operated>(200),

    Route::read("/api/v1/schedules", "Schedules in the order of their names", || get(schedules::list)).query(&["cursor", "limit"]).answers::<schedules::Listing>(200),
    Route::read("/api/v1/schedules/{schedule}", "A schedule with its next times and last runs", || get(schedules::show)).answers::<schedules::ScheduleDetails>(200),
    Route::write(Verb::Post, "/api/v1/schedules/{schedule}/run", "Trigger a run now", || post(schedules::run)).body::<schedules::Empty>().answers::<schedules::Triggered>(202),
    Route::write(Verb::Post, "/api/v1/schedules/{schedule}/pause", "Pause a schedule", || post(schedules::pause)).body::<runs::Reason>().answers::<schedules::ScheduleName>(202),
    Route::write(Verb::Post, "/api/v1/schedules/{schedule}/resume", "Resume a schedule", || post(schedules::resume)).body::<schedules::Empty>().answers::<schedules::ScheduleName>(202),
];

/// Returns whether a request needs no token.
pub(crate) fn is_open(method: &Method, path: &str) -> bool {
    let open = |route: &&Route| route.role == Role::Open && route.path == path;
    ROUTES.iter().filter(open).any(|route| route.verb.word() == method.as_str()) || ui::is_page(method, path)
}

/// Builds the router from the table and the pages of the inspector.
pub(crate) fn router(app: &App) -> Router {
    let mut router = ui::router();
    for route in ROUTES {
        let layer = from_fn_with_state((App::clone(app), route), route_policy::guard);
        router = router.route(route.path, (route.handler)().route_layer(layer));
    }
    router.layer(from_fn_with_state(App::clone(app), access_control::gate)).with_state(App::clone(app))
}

//! Route table. The router, the OpenAPI description and the access policy test are derived from it, so every route has a policy.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post, put};
use http::Method;
use schemars::JsonSchema;

use crate::api::{about, forks, overview, past, reactions, rows, tasks};
use crate::api::{health, leases, locks, log, metrics, runs, schedules, state, streams, work};
use crate::openapi::{Describe, shape};
use crate::shared::App;
use crate::token::Role;
use crate::{gate, guard, openapi, ui};

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
pub(crate) enum Lasts {
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
    pub(crate) lasts: Lasts,
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
            lasts: Lasts::Short,
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

const PAGE: &[&str] = &["prefix", "after", "limit"];
/// The query parameters that name the lease of a write and its fencing token.
const LEASE: &[&str] = &["lease", "fence"];

/// All routes except the pages of the inspector.
#[rustfmt::skip]
pub(crate) const ROUTES: &[Route] = &[
    Route { role: Role::Open, ..Route::read("/healthz", "Whether the process lives", || get(health::lives)) }.sends::<String>("text/plain"),
    Route::read("/readyz", "Whether the store can be read", || get(health::ready)).answers::<health::Ready>(200),
    Route::read("/metrics", "Metrics as Prometheus reads them", || get(metrics::text)).sends::<String>("text/plain"),
    Route::read("/api/v1/openapi.json", "This description", || get(openapi::document)),

    Route::read("/api/v1/streams", "Streams in the order of their keys", || get(streams::list)).query(PAGE).answers::<streams::Listing>(200),
    Route::read("/api/v1/streams/{key}", "A stream", || get(streams::show)).answers::<shape::Stream>(200),
    Route::read("/api/v1/streams/{key}/events", "Events of a stream, from a version on", || get(streams::events))
        .query(&["from", "limit"]).answers::<streams::Events<'static>>(200),
    Route::write(Verb::Post, "/api/v1/streams/{key}/events", "Append events", || post(streams::append)).body::<streams::Append>().answers::<streams::Receipt<'static>>(201),
    Route::read("/api/v1/log/tail", "Follow the log (text/event-stream); resumes after Last-Event-ID", || get(log::tail))
        .query(&["from", "stream", "prefix", "types", "internal"]).sends::<shape::ServerSentEvent>("text/event-stream"),

    Route::read("/api/v1/state", "Documents in the order of their keys, without their values", || get(state::list)).query(PAGE).answers::<state::Listing>(200),
    Route::read("/api/v1/state/{key}", "A document, with its version as ETag", || get(state::show)).answers::<shape::Record>(200),
    Route::write(Verb::Put, "/api/v1/state/{key}", "Write a document: If-Match or If-None-Match: * says what it replaces", || put(state::write))
        .query(LEASE).body::<state::Value>().answers::<state::Written>(200),
    Route::write(Verb::Delete, "/api/v1/state/{key}", "Delete a document: If-Match says which version", || delete(state::remove))
        .query(LEASE).answers::<state::Written>(200),

    Route::read("/api/v1/leases", "Leases in the order of their keys", || get(leases::list)).query(&["after", "limit"]).answers::<leases::Listing>(200),
    Route::read("/api/v1/leases/{key}", "A lease, and who waits for it", || get(leases::show)).answers::<shape::Lease>(200),
    Route::write(Verb::Post, "/api/v1/leases/{key}", "Take a lease", || post(leases::take)).body::<leases::Take>().answers::<leases::AcquiredLease>(200),
    Route::write(Verb::Put, "/api/v1/leases/{key}", "Renew a lease", || put(leases::renew)).body::<leases::Renew>().answers::<leases::AcquiredLease>(200),
    Route::write(Verb::Delete, "/api/v1/leases/{key}", "Release a lease", || delete(leases::release)).query(&["fence!"]).answers::<leases::Released>(200),

    Route::read("/api/v1/runs", "Runs, newest first", || get(runs::list))
        .query(&["workflow", "status", "prefix", "cursor", "limit"]).answers::<runs::Listing>(200),
    Route::write(Verb::Post, "/api/v1/runs", "Start a run of a workflow that some worker knows", || post(runs::start)).body::<runs::Start>().answers::<runs::Started>(201),
    Route::read("/api/v1/runs/{run}", "A run", || get(runs::show)).answers::<shape::Run>(200),
    Route::read("/api/v1/runs/{run}/steps", "List the steps of a run", || get(runs::steps)).query(&["from", "limit"]).answers::<runs::Steps<'static>>(200),
    Route { lasts: Lasts::Waits, ..Route::read("/api/v1/runs/{run}/result", "How a run ended; waits for that (202 when it still runs)", || get(runs::result)) }
        .query(&["wait"]).answers::<runs::Ended>(200),
    Route::write(Verb::Post, "/api/v1/runs/{run}/signals", "Send a run a signal", || post(runs::signal)).body::<runs::Signal>().answers::<runs::RunId>(202),
    Route::write(Verb::Post, "/api/v1/runs/{run}/cancel", "Ask a run to stop", || post(runs::cancel)).body::<runs::Reason>().answers::<runs::RunId>(202),
    Route::write(Verb::Post, "/api/v1/runs/{run}/resume", "Resume a failed or suspended run", || post(runs::resume)).body::<runs::Reason>().answers::<runs::RunId>(202),

    Route::read("/api/v1/work/blocked", "Work that waits for an operator", || get(work::blocked)).query(&["lane", "like", "after", "limit"]).answers::<work::Blocked>(200),
    Route::write(Verb::Post, "/api/v1/work/unblock", "Unblock work, after its count was confirmed", || post(work::unblock)).body::<work::Unblock>().answers::<rows::Operated>(200),

    Route::read("/api/v1/schedules", "Tasks in the order of their names", || get(schedules::list)).query(&["after", "limit"]).answers::<schedules::Listing>(200),
    Route::read("/api/v1/schedules/{task}", "A task, its next fires and its last runs", || get(schedules::show)).answers::<schedules::Whole>(200),

    Route::read("/api/v1/about", "Describe the server and the permissions of the caller", || get(about::about)).answers::<about::About>(200),
    Route::read("/api/v1/overview", "The numbers that matter", || get(overview::overview)).answers::<overview::Overview>(200),
    Route::read("/api/v1/pulse", "A sign whenever something may have changed (text/event-stream)", || get(about::pulse)).sends::<shape::ServerSentEvent>("text/event-stream"),
    Route::read("/api/v1/locks", "Locks of the program that the server is mounted in", || get(locks::list)).answers::<locks::Shown>(200),
    Route::read("/api/v1/work/rows", "Rows of work in the order of their keys", || get(rows::list))
        .query(&["key", "lane", "like", "blocked", "leased", "after", "limit"]).answers::<rows::Listing>(200),
    Route::read("/api/v1/work/rows/{key}", "A row of work", || get(rows::show)).answers::<rows::Shown>(200),
    Route::write(Verb::Post, "/api/v1/work/operate", "Unblock rows, or make them due at once, after their number was confirmed", || post(rows::operate))
        .body::<rows::Operate>().answers::<rows::Operated>(200),
    Route::read("/api/v1/reactions", "Reactions, and how far they are", || get(reactions::list)).answers::<reactions::Reactions>(200),
    Route::read("/api/v1/reactions/{reaction}/keys", "Keys of a reaction", || get(reactions::keys)).query(&["blocked", "after", "limit"]).answers::<reactions::Keys>(200),
    Route::read("/api/v1/reactions/{reaction}/parked", "Events that a reaction has set aside", || get(reactions::parked)).query(&["after", "limit"]).answers::<reactions::Aside>(200),
    Route::write(Verb::Post, "/api/v1/reactions/{reaction}/operate", "Unblock, reset, retry, park, replay or drop, after the number was confirmed", || post(reactions::operate))
        .body::<reactions::Operate>().answers::<rows::Operated>(200),
    Route::read("/api/v1/state/{key}/history", "The last writes to a document, newest first", || get(past::list)).query(&["before", "limit"]).answers::<past::Listing>(200),
    Route::read("/api/v1/state/{key}/at", "Show a document as of a write of its history", || get(past::at)).query(&["number!"]).answers::<past::At>(200),
    Route::read("/api/v1/conflicts", "How often changes of state met others, by kind of record", || get(past::conflicts)).answers::<past::Conflicts>(200),
    Route::write(Verb::Post, "/api/v1/runs/{run}/fork", "Start a run that has done what another one did before a step", || post(forks::fork)).body::<forks::Fork>().answers::<forks::Forked>(201),
    Route::write(Verb::Post, "/api/v1/schedules/{task}/run", "Ask for a run of a task now", || post(tasks::run)).body::<tasks::Nothing>().answers::<tasks::TaskRun>(202),
    Route::write(Verb::Post, "/api/v1/schedules/{task}/pause", "Let a task rest", || post(tasks::pause)).body::<runs::Reason>().answers::<tasks::TaskName>(202),
    Route::write(Verb::Post, "/api/v1/schedules/{task}/resume", "Resume a schedule", || post(tasks::resume)).body::<tasks::Nothing>().answers::<tasks::TaskName>(202),
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
        let layer = from_fn_with_state((App::clone(app), route), guard::guard);
        router = router.route(route.path, (route.handler)().route_layer(layer));
    }
    router.layer(from_fn_with_state(App::clone(app), gate::gate)).with_state(App::clone(app))
}

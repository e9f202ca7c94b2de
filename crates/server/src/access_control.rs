//! Outermost middleware: checks the host, the origin and the token of every request, and sets the security headers of every response.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{StatusCode, Uri};
use tidelock_core::error::Explain as _;

use crate::app_state::{App, AppState};
use crate::error::ServerError;
use crate::options::Access;
use crate::problem::{PROBLEM_JSON, Problem};
use crate::request_id;
use crate::routes;
use crate::sanitize::{escaped, short};
use crate::token::{Caller, Role, Tokens, digest};

/// Security headers of every response. They forbid scripts, frames, content sniffing, referrers and caching.
const TOLD: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The HSTS header of a server with TLS. Browsers use only TLS for a year.
const ONLY_TLS: &str = "max-age=31536000";

/// Runs a request under its request id, behind all checks of this module.
pub(crate) async fn gate(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = request_id::of(request.headers());
    request_id::within(id, passed(app, request, next)).await
}

async fn passed(app: App, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = match admit(&app, &mut request) {
        Ok(()) => next.run(request).await,
        Err(error) => {
            log_refusal(&app, &path, &error);
            Problem::from(error).into_response()
        }
    };
    if is_stray(&response) {
        app.counts.stray();
        response = stray(&response, path);
    }
    if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
        // axum sets `no-cache` on event streams, which still allows caches to store them.
        response.headers_mut().remove(header::CACHE_CONTROL);
    }
    for (name, value) in TOLD {
        // The pages of the inspector set their own content security policy.
        response.headers_mut().entry(*name).or_insert(HeaderValue::from_static(value));
    }
    if app.options.tls.is_some() {
        response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(ONLY_TLS));
    }
    response
}

/// Logs a refused request. The number of lines and the length of names are limited, so that a client cannot flood the log.
fn log_refusal(app: &AppState, path: &str, error: &ServerError) {
    let Some(left_out) = app.refusals.admit(error.code().as_str(), Instant::now()) else { return };
    let (path, request, shown) = (short(path), request_id::shown(), short(&error.to_string()));
    if matches!(error, ServerError::TooFast { .. } | ServerError::Guessing { .. }) {
        tracing::debug!(target: "tidelock::server", %path, %request, error = %shown, left_out, "a request was refused");
    } else {
        tracing::warn!(target: "tidelock::server", %path, %request, error = %shown, left_out, "a request was refused");
    }
}

/// Returns whether the response was produced by no route.
fn is_stray(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
        && kind.is_none_or(|kind| kind != PROBLEM_JSON)
}

/// Returns a problem with an error code that keeps the status and the `Allow` header of the bare response.
fn stray(bare: &Response, path: String) -> Response {
    let problem = Problem::from(ServerError::NotFound { what: "route", name: path });
    let mut response = problem.under(bare.status()).into_response();
    if let Some(methods) = bare.headers().get(header::ALLOW) {
        response.headers_mut().insert(header::ALLOW, methods.clone());
    }
    response
}

fn admit(app: &AppState, request: &mut Request) -> Result<(), ServerError> {
    if routes::is_open(request.method(), request.uri().path()) {
        return Ok(());
    }
    let names = names(request.uri(), request.headers());
    host(app, &names)?;
    site(request.headers(), &names)?;
    let caller = match &app.options.access {
        Access::Tokens(tokens) => {
            // Only a token identifies the caller here. A `Caller` from another layer is discarded.
            request.extensions_mut().remove::<Caller>();
            let from = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|from| from.0.ip());
            match bearer(request.headers()) {
                Some(token) => known(app, tokens, token, from.filter(|_| app.options.back_off))?,
                None => None,
            }
        }
        Access::Own => {
            Some(request.extensions().get::<Caller>().cloned().unwrap_or_else(|| named(Role::Write)))
        }
    };
    match caller {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            Ok(())
        }
        None => Err(ServerError::NoToken),
    }
}

/// Returns the caller that a token belongs to. A token over its rate limit and an address that guesses tokens are refused with a wait.
///
/// A valid token is recognised before guesses are counted. Wrong tokens therefore never lock out other clients of the same address.
fn known(
    app: &AppState,
    tokens: &Tokens,
    token: &str,
    from: Option<IpAddr>,
) -> Result<Option<Caller>, ServerError> {
    let (now, token) = (Instant::now(), digest(token));
    let Some((place, caller)) = tokens.find(&token) else {
        if let Some(wait) = from.and_then(|from| app.guesses.wait(from, now)) {
            return Err(ServerError::Guessing { wait });
        }
        if let Some(from) = from {
            app.guesses.wrong(from, token, now);
        }
        return Ok(None);
    };
    let limit = app.options.rate.map_or(0, |rate| rate.per_second);
    app.rates.draw(place, now).map_err(|wait| ServerError::TooFast { limit, wait })?;
    Ok(Some(caller))
}

fn named(role: Role) -> Caller {
    Caller { role, name: role.word().to_owned() }
}

/// Returns the bearer token of the `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim_start())
}

/// Returns the value of a header as text if the header occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() { None } else { value.to_str().ok() }
}

/// Returns the hosts that a request names. HTTP/1 has the host in a header, HTTP/2 in the URI, and a request may have both.
///
/// A request without a host, or with an unreadable header, yields an empty name.
fn names<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Vec<&'a str> {
    let address = uri.authority().map(Authority::as_str);
    let must = headers.contains_key(header::HOST) || address.is_none();
    let header = must.then(|| only(headers, &header::HOST).unwrap_or_default());
    [header, address].into_iter().flatten().collect()
}

/// Checks that every host that the request names is a name of this server.
fn host(app: &AppState, names: &[&str]) -> Result<(), ServerError> {
    let Some(known) = &app.options.hosts else { return Ok(()) };
    for given in names {
        if !known.iter().any(|name| name.eq_ignore_ascii_case(without_port(given))) {
            return Err(ServerError::OtherHost { host: (*given).to_owned() });
        }
    }
    Ok(())
}

/// Returns a host without its port. A suffix that is not a valid port stays, so that the host check rejects it.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Rejects requests that a browser marks as sent by a page of another site. Other programs do not send these headers.
fn site(headers: &HeaderMap, names: &[&str]) -> Result<(), ServerError> {
    for value in headers.get_all("sec-fetch-site") {
        if value != "same-origin" && value != "none" {
            return Err(cross("Sec-Fetch-Site", value));
        }
    }
    for value in headers.get_all(header::ORIGIN) {
        let origin = value.to_str().unwrap_or_default();
        let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let own = |from: &str| !from.is_empty() && names.iter().all(|name| from.eq_ignore_ascii_case(name));
        if !from.is_some_and(own) {
            return Err(cross("Origin", value));
        }
    }
    Ok(())
}

fn cross(name: &str, value: &HeaderValue) -> ServerError {
    let value: String = String::from_utf8_lossy(value.as_bytes()).chars().take(100).collect();
    ServerError::CrossSite { found: format!("{name}: {}", escaped(&value)) }
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn only_a_number_is_a_port() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:80", "localhost"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
            ("localhost:", "localhost:"),
            ("localhost:80@evil.test", "localhost:80@evil.test"),
            ("127.0.0.1:1:2", "127.0.0.1:1"),
            ("", ""),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }
}

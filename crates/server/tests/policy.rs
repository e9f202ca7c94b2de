//! Access policy of every route: tokens and roles, hosts and origins, and content types.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod common;

use std::sync::Arc;

use axum::body::Body;
use axum::middleware::from_fn;
use common::Site;
use http::Request;
use serde_json::json;
use tidelock::prelude::*;
use tidelock_server::{Caller, Role, ServerOptions, Token, routes};
use tower::ServiceExt as _;

/// Returns a path of a route, with names in place of the parameters.
fn path(route: &str) -> String {
    let path = route
        .replace("{key}", "k")
        .replace("{run}", "r")
        .replace("{schedule}", "t")
        .replace("{reaction}", "e")
        .replace("{number}", "1");
    assert!(!path.contains('{'), "{path}: a parameter has no example");
    path
}

/// Returns the statuses of a request without a token, and with an unknown, a read and a write token.
async fn statuses(site: &Site, method: &str, path: &str) -> [u16; 4] {
    let stranger = Token::generate().unwrap();
    let mut found = [0; 4];
    for (place, token) in [None, Some(&stranger), Some(&site.read), Some(&site.write)].into_iter().enumerate()
    {
        // A log tail never ends. The invalid header makes it fail before it starts.
        let ask = site.bare(method, path).header("last-event-id", "x").json(&json!({}));
        let ask = match token {
            Some(token) => ask.bearer(token),
            None => ask,
        };
        found[place] = ask.send().await.status.as_u16();
    }
    found
}

#[tokio::test]
async fn every_route_asks_for_its_role() {
    let (site, shut) = (Site::new(), Site::with(|options| options));
    let mut open = Vec::new();
    for (method, route, role) in routes() {
        let path = path(route);
        let found = statuses(&site, method, &path).await;
        let passed = |status: u16| ![401, 403, 405, 415, 421].contains(&status);
        match role {
            Role::Open => {
                open.push(route);
                assert_eq!(found, [200; 4], "{method} {route}");
            }
            Role::Read => {
                assert_eq!(method, "GET", "{route}: what changes something is for those who may write");
                assert_eq!(found[..2], [401, 401], "{method} {route}");
                assert!(passed(found[2]) && passed(found[3]), "{method} {route}: {found:?}");
            }
            Role::Write => {
                assert_ne!(method, "GET", "{route}: a link must not change anything");
                assert_eq!(found[..3], [401, 401, 403], "{method} {route}");
                assert!(passed(found[3]), "{method} {route}: {found:?}");
                assert_eq!(statuses(&shut, method, &path).await, [401, 401, 403, 403], "{method} {route}");
            }
        }
    }
    assert_eq!(open, ["/healthz"]);
}

#[tokio::test]
async fn unknown_routes_are_reported_to_callers_only() {
    let site = Site::new();
    assert_eq!(site.bare("GET", "/api/v1/nothing").send().await.refused(401), "TL1301");
    assert_eq!(site.get("/api/v1/nothing").await.refused(404), "TL1307");
    let answer = site.ask("DELETE", "/api/v1/runs").send().await;
    assert_eq!(answer.refused(405), "TL1307");
    assert!(answer.headers.contains_key("allow"));
}

#[tokio::test]
async fn a_token_is_read_from_one_header_only() {
    let site = Site::new();
    let token = site.read.reveal().to_owned();
    for wrong in [
        token.clone(),
        format!("Basic {token}"),
        format!("Bearer {token} "),
        format!("Bearer{token}"),
        "Bearer ".to_owned(),
    ] {
        let answer = site.bare("GET", "/readyz").header("authorization", &wrong).send().await;
        assert_eq!(answer.refused(401), "TL1301", "{wrong}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    let twice = site.bare("GET", "/readyz").bearer(&site.read).bearer(&site.read).send().await;
    assert_eq!(twice.refused(401), "TL1301");
    let query = site.bare("GET", &format!("/readyz?token={token}")).send().await;
    assert_eq!(query.refused(401), "TL1301");
    let cookie = site.bare("GET", "/readyz").header("cookie", &format!("token={token}")).send().await;
    assert_eq!(cookie.refused(401), "TL1301");
    let well = site.bare("GET", "/readyz").header("authorization", &format!("bearer {token}")).send().await;
    assert_eq!(well.status, 200);
}

#[tokio::test]
async fn a_name_that_was_made_to_point_here_is_refused() {
    let site = Site::with(|options| options.host("tidelock.internal"));
    for host in [
        "evil.test",
        "evil.test:4000",
        "rebind.127.0.0.1.example",
        "127.0.0.1.evil.test",
        "localhost.evil.test",
        "localhost:80@evil.test",
        "localhost:",
        "",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
    ] {
        let answer = site.ask("GET", "/readyz").host(Some(host)).send().await;
        assert_eq!(answer.refused(421), "TL1303", "{host}");
    }
    assert_eq!(site.ask("GET", "/readyz").host(None).send().await.refused(421), "TL1303");
    let twice = site.ask("GET", "/readyz").header("host", "localhost").send().await;
    assert_eq!(twice.refused(421), "TL1303");
    let whole = site.ask("GET", "http://evil.test/readyz").send().await;
    assert_eq!(whole.refused(421), "TL1303");
    for host in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:4000",
        "[::1]",
        "[::1]:4000",
        "tidelock.internal",
        "Tidelock.Internal:443",
    ] {
        let answer = site.ask("GET", "/readyz").host(Some(host)).send().await;
        assert_eq!(answer.status, 200, "{host}");
    }
}

/// Sends a request in the form of HTTP/2, with the host in the URI and not in a header.
async fn second(site: &Site, address: &str, more: &[(&str, &str)]) -> u16 {
    let ask = site.ask("GET", address).host(None).version(http::Version::HTTP_2);
    more.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send().await.status.as_u16()
}

#[tokio::test]
async fn a_host_in_the_request_target_counts_as_one_in_the_header() {
    let site = Site::with(|options| options.host("tidelock.internal"));
    for host in ["localhost", "127.0.0.1:4000", "[::1]:4000", "Tidelock.Internal"] {
        assert_eq!(second(&site, &format!("https://{host}/readyz"), &[]).await, 200, "{host}");
        assert_eq!(second(&site, &format!("https://{host}/readyz"), &[("host", host)]).await, 200, "{host}");
    }
    for host in
        ["evil.test", "evil.test:4000", "localhost@evil.test", "user@localhost", "localhost.evil.test"]
    {
        assert_eq!(second(&site, &format!("https://{host}/readyz"), &[]).await, 421, "{host}");
        let both = second(&site, &format!("https://{host}/readyz"), &[("host", "localhost")]).await;
        assert_eq!(both, 421, "{host}, and a header");
    }
    for hosts in
        [&[("host", "evil.test")][..], &[("host", "")], &[("host", "localhost"), ("host", "localhost")]]
    {
        assert_eq!(second(&site, "https://localhost/readyz", hosts).await, 421, "{hosts:?}");
    }
    assert_eq!(second(&site, "/readyz", &[]).await, 421, "one of them must be there");
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_by_the_host_in_the_address() {
    let site = Site::new();
    let from = async |origin: &str, more: &[(&str, &str)]| {
        let headers = [&[("origin", origin)], more].concat();
        second(&site, "https://localhost:4000/readyz", &headers).await
    };
    assert_eq!(from("https://localhost:4000", &[]).await, 200);
    assert_eq!(from("https://localhost:4000", &[("host", "localhost:4000")]).await, 200);
    for origin in ["https://evil.test", "null", "https://localhost", "https://", "localhost:4000"] {
        assert_eq!(from(origin, &[]).await, 403, "{origin}");
    }
    assert_eq!(from("https://localhost:4000", &[("host", "localhost")]).await, 403, "by both names");
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let site = Site::new();
    let asks = [("GET", "/api/v1/streams"), ("PUT", "/api/v1/state/k"), ("GET", "/api/v1/events/tail")];
    for (method, path) in asks {
        for (name, value) in [
            ("origin", "https://evil.test"),
            ("origin", "null"),
            ("origin", "http://localhost"),
            ("origin", "http://localhost:4000.evil.test"),
            ("origin", "localhost:4000"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = site.ask(method, path).header(name, value).json(&json!({"value": 1})).send().await;
            assert_eq!(answer.refused(403), "TL1304", "{method} {path} {name}: {value}");
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
    }
    let own = site
        .ask("PUT", "/api/v1/state/k")
        .header("origin", "http://localhost:4000")
        .header("sec-fetch-site", "same-origin");
    let own = own.header("if-none-match", "*").json(&json!({"value": 1})).send().await;
    assert_eq!(own.status, 200, "{own:?}");
    let preflight = site.bare("OPTIONS", "/api/v1/state/k").header("origin", "https://evil.test");
    let preflight = preflight.header("access-control-request-method", "PUT").send().await;
    assert_eq!(preflight.refused(403), "TL1304");
}

#[tokio::test]
async fn a_form_cannot_write() {
    let site = Site::new();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "",
    ] {
        let ask = site.ask("POST", "/api/v1/work:batch").header("content-type", kind);
        assert_eq!(
            ask.body(r#"{"verb": "unblock", "confirm": 0}"#).send().await.refused(415),
            "TL1305",
            "{kind}"
        );
    }
    let bare =
        site.ask("POST", "/api/v1/work:batch").body(r#"{"verb": "unblock", "confirm": 0}"#).send().await;
    assert_eq!(bare.refused(415), "TL1305");
    let ask =
        site.ask("POST", "/api/v1/work:batch").header("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(ask.body(r#"{"verb": "unblock", "confirm": 0}"#).send().await.status, 200);
    assert_eq!(site.audit().await.len(), 1, "nothing else was written");
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let site = Site::new();
    let put = async |bytes: usize| {
        let value = json!({"value": "x".repeat(bytes)});
        site.ask("PUT", "/api/v1/state/k").header("if-none-match", "*").json(&value).send().await
    };
    assert_eq!(put(1024 * 1024).await.refused(413), "TL1306");
    assert_eq!(put(1024 * 1024 - 12).await.status, 200);
}

#[tokio::test]
async fn every_response_restricts_browsers() {
    let site = Site::new();
    let answers = [
        site.get("/readyz").await,
        site.bare("GET", "/healthz").send().await,
        site.bare("GET", "/readyz").send().await,
        site.get("/nothing").await,
    ];
    for answer in answers {
        let told = |name: &str| answer.headers[name].to_str().unwrap();
        assert!(told("content-security-policy").starts_with("default-src 'none'"));
        assert!(told("content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!(told("x-content-type-options"), "nosniff");
        assert_eq!(told("referrer-policy"), "no-referrer");
        assert_eq!(told("cache-control"), "no-store");
        assert_eq!(told("cross-origin-resource-policy"), "same-origin");
    }
}

/// Builds an application with its own authentication layer. The `x-user` header names the caller.
fn application(store: &SharedStore, options: ServerOptions) -> axum::Router {
    let ours = tidelock_server::router(Arc::clone(store), options);
    let known = from_fn(async |mut request: axum::extract::Request, next: axum::middleware::Next| {
        if let Some(user) = request.headers().get("x-user").map(|user| user.to_str().unwrap().to_owned()) {
            let role = if user == "root" { Role::Write } else { Role::Read };
            request.extensions_mut().insert(Caller { role, name: user });
        }
        next.run(request).await
    });
    axum::Router::new().nest("/tidelock", ours).layer(known)
}

#[tokio::test]
async fn mounted_behind_an_own_layer_the_callers_are_its_own() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let app = application(&store, ServerOptions::behind_own_auth().allow_writes());
    let put = async |user: &str, key: &str| {
        let request = Request::put(format!("/tidelock/api/v1/state/{key}")).header("host", "localhost");
        let request = request
            .header("x-user", user)
            .header("if-none-match", "*")
            .header("content-type", "application/json");
        app.clone().oneshot(request.body(Body::from(r#"{"value": 1}"#)).unwrap()).await.unwrap().status()
    };
    assert_eq!(put("eve", "a").await, 403);
    assert_eq!(put("root", "b").await, 200);
    let site = Site::on(store, |options| options);
    assert_eq!(site.audit().await, ["root put b"]);
}

#[tokio::test]
async fn with_tokens_only_a_token_names_the_caller() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let app = application(&store, ServerOptions::new(tidelock_server::Tokens::none()).allow_writes());
    let request = Request::get("/tidelock/readyz").header("host", "localhost").header("x-user", "root");
    let status = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status();
    assert_eq!(status, 401);
}

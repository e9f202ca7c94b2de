//! Test server on a memory store, and a client that needs no socket.
#![allow(clippy::restriction, dead_code, reason = "tests panic, and each uses a part of what they share")]

pub(crate) mod away;
pub(crate) mod listening;
pub(crate) mod logged;
#[macro_use]
pub(crate) mod stores;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tidelock::prelude::*;
use tidelock_server::{Server, ServerOptions, Token, Tokens};
use tower::ServiceExt as _;

/// A server with a read token and a write token.
pub(crate) struct Site {
    pub(crate) store: SharedStore,
    pub(crate) read: Token,
    pub(crate) write: Token,
    pub(crate) server: Server,
    router: Router,
}

/// A response.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the JSON body of a response that must have this status.
    #[track_caller]
    pub(crate) fn when(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Returns the error code of a problem that must have this status.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        let problem = self.when(status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(problem["status"], status);
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl Site {
    /// Creates a server that allows writes and has no rate limit, because tests poll.
    pub(crate) fn new() -> Self {
        Self::writing(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn with(options: impl FnOnce(ServerOptions) -> ServerOptions) -> Self {
        Self::on(Arc::new(MemoryStore::new()), options)
    }

    pub(crate) fn on(store: SharedStore, options: impl FnOnce(ServerOptions) -> ServerOptions) -> Self {
        let (read, write) = (Token::generate().unwrap(), Token::generate().unwrap());
        let options = options(ServerOptions::new(Tokens::none().read(&read).write(&write)));
        let server = Server::new(Arc::clone(&store), options);
        Self { store, read, write, router: server.router(), server }
    }

    /// Creates the same server on the given store.
    pub(crate) fn writing(store: SharedStore) -> Self {
        Self::on(store, |options| options.allow_writes().any_rate())
    }

    /// Creates a request with the write token.
    pub(crate) fn ask(&self, method: &str, path: &str) -> RequestBuilder<'_> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost:4000");
        RequestBuilder { site: self, request, body: String::new() }.bearer(&self.write)
    }

    /// Creates a request without a token.
    pub(crate) fn bare(&self, method: &str, path: &str) -> RequestBuilder<'_> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost:4000");
        RequestBuilder { site: self, request, body: String::new() }
    }

    pub(crate) async fn get(&self, path: &str) -> TestResponse {
        self.ask("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.ask("POST", path).json(body).send().await
    }

    /// Returns the audit events as lines of caller, action and target.
    pub(crate) async fn audit(&self) -> Vec<String> {
        let key = Key::single("tidelock.audit").unwrap();
        let events = self.store.read_stream(StreamQuery::forward(&key, 1_000)).await.unwrap().events;
        let line = |event: &tidelock::store::Event| {
            let told: Value = event.payload.parse().unwrap();
            format!("{} {} {}", told["by"], told["did"], told["on"]).replace("\\\"", "'").replace('"', "")
        };
        events.iter().map(line).collect()
    }
}

/// A request builder.
pub(crate) struct RequestBuilder<'a> {
    site: &'a Site,
    request: http::request::Builder,
    body: String,
}

impl RequestBuilder<'_> {
    pub(crate) fn bearer(self, token: &Token) -> Self {
        self.header("authorization", &format!("Bearer {}", token.reveal()))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Sets another host, or removes the host.
    pub(crate) fn host(mut self, host: Option<&str>) -> Self {
        let headers = self.request.headers_mut().unwrap();
        headers.remove("host");
        if let Some(host) = host {
            headers.insert("host", host.parse().unwrap());
        }
        self
    }

    pub(crate) fn version(mut self, version: http::Version) -> Self {
        self.request = self.request.version(version);
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(&body.to_string())
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    pub(crate) async fn send(self) -> TestResponse {
        let request = self.request.body(Body::from(self.body)).unwrap();
        let response = self.site.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        TestResponse { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }
}

/// Percent-encodes a text for use in a path.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

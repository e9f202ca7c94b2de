//! The webhook sender: messages of an outbox as signed requests.
//!
//! Redirects are not followed: they would lead to unchecked addresses. Only the status of a response counts, and
//! `Retry-After`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, DATE, HeaderName, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidelock_core::clock::{Clock, SystemClock};
use tidelock_core::failure::Failure;
use tidelock_core::outbox::{Deliver, Delivery};

use super::addresses::{Resolver, is_public};
use super::signature::{SIGNATURE, Secret, sign};
use crate::key::{IDEMPOTENCY_KEY, quoted};

/// The options of the webhook sender.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Whether URLs other than `https` are rejected. Default: yes.
    pub https_only: bool,
    /// Whether only addresses of the internet are reached, and none of this machine or its networks. Default: yes. It
    /// may be no behind a proxy with its own rules.
    pub public_only: bool,
    /// The time limit of the connection and the response. Default: 10 seconds.
    pub limit: Duration,
    /// The clock for signatures. Default: the machine's clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            https_only: true,
            public_only: true,
            limit: Duration::from_secs(10),
            clock: SystemClock::shared(),
        }
    }
}

type Connector = HttpsConnector<HttpConnector<Resolver>>;
type Secrets = dyn Fn(&Delivery) -> Option<Secret> + Send + Sync;

/// Sends the messages of an outbox as webhooks: give it to a [`Sender`](tidelock_core::outbox::Sender). The destination
/// of a message is the URL, its payload the body.
///
/// A response of 2xx is a delivery. 410 and 422 are permanent failures: the message is blocked at once. Every other
/// response is retried, not before `Retry-After` if the receiver sets it, in seconds or as a date.
///
/// # URLs that others have typed
/// Such URLs lead wherever their author wants. By default only `https` and only public addresses are reached, checked
/// when the connection is made, and redirects are not followed. That does not replace a firewall: a public address may
/// belong to you as well.
#[derive(Clone)]
pub struct WebhookSender {
    client: Client<Connector, Full<Bytes>>,
    secrets: Arc<Secrets>,
    options: WebhookOptions,
}

impl WebhookSender {
    /// Creates a sender that looks up the secret of each message, for example by its destination. A message without a
    /// secret is not sent.
    ///
    /// # Errors
    /// [`std::io::Error`] when the certificates of the system cannot be read.
    pub fn new(
        secrets: impl Fn(&Delivery) -> Option<Secret> + Send + Sync + 'static,
        options: WebhookOptions,
    ) -> std::io::Result<Self> {
        let mut http = HttpConnector::new_with_resolver(Resolver { public_only: options.public_only });
        http.enforce_http(false);
        http.set_connect_timeout(Some(options.limit));
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(tls);
        Ok(Self { client, secrets: Arc::new(secrets), options })
    }

    /// Returns the URL of a message, if it may be called.
    fn url(&self, text: &str) -> Result<Uri, Failure> {
        let never = |reason: &str| Failure::permanent(format!("{reason}: {text}"));
        let url: Uri = text.parse().map_err(|_| never("this is no URL"))?;
        match url.scheme_str() {
            Some("https") => {}
            Some("http") if !self.options.https_only => {}
            _ => return Err(never("only https is allowed")),
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(never("a URL with a user name is not allowed"));
        }
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        // The resolver does not see literal addresses, because they are not looked up.
        let private = host.parse::<IpAddr>().is_ok_and(|address| !is_public(address));
        if host.is_empty() || (private && self.options.public_only) {
            return Err(never("only public addresses are allowed"));
        }
        Ok(url)
    }

    fn request(&self, message: &Delivery) -> Result<Request<Full<Bytes>>, Failure> {
        let url = self.url(message.destination())?;
        let secret = (self.secrets)(message).ok_or_else(|| Failure::new("there is no secret for it"))?;
        let (key, body) = (message.key(), Bytes::copy_from_slice(message.payload().as_str().as_bytes()));
        Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("tidelock/", env!("CARGO_PKG_VERSION")))
            .header(IDEMPOTENCY_KEY, quoted(&key))
            .header(SIGNATURE, sign(&secret, self.options.clock.now(), &key, &body))
            .body(Full::new(body))
            .map_err(|error| Failure::permanent(format!("it is no request: {error}")))
    }
}

#[async_trait]
impl Deliver for WebhookSender {
    async fn deliver(&self, message: Delivery) -> Result<(), Failure> {
        let request = self.request(&message)?;
        match tokio::time::timeout(self.options.limit, self.client.request(request)).await {
            Ok(Ok(response)) => judged(response.status(), response.headers()),
            Ok(Err(error)) => Err(Failure::retry(error)),
            Err(_) => Err(Failure::new(format!("no answer within {:?}", self.options.limit))),
        }
    }
}

/// Returns the result of a delivery, by the response.
fn judged(status: StatusCode, headers: &HeaderMap) -> Result<(), Failure> {
    if status.is_success() {
        return Ok(());
    }
    let reason = format!("the answer was {status}");
    if matches!(status, StatusCode::GONE | StatusCode::UNPROCESSABLE_ENTITY) {
        return Err(Failure::permanent(reason));
    }
    Err(match retry_after(headers, SystemTime::now()) {
        // No message is delayed for longer than a day.
        Some(wait) => Failure::retry_after(wait.min(Duration::from_hours(24)), reason),
        None => Failure::new(reason),
    })
}

/// Returns the delay that the receiver requests: seconds, or a date in any of the formats of HTTP. A date is measured
/// by the `Date` of the response if it has one, so that the clocks of the two sides need not agree.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(asked).ok()?;
    let now = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(at.duration_since(now).unwrap_or_default())
}

impl fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSender").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_as_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let wait = |asked: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, asked.parse().unwrap());
            date.map(|date| headers.insert(DATE, date.parse().unwrap()));
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("120", None), Some(120));
        for date in
            ["Sun, 06 Nov 1994 08:51:37 GMT", "Sunday, 06-Nov-94 08:51:37 GMT", "Sun Nov  6 08:51:37 1994"]
        {
            assert_eq!(wait(date, None), Some(120), "{date}");
        }
        let (early, date) = ("Sun, 06 Nov 1994 08:49:00 GMT", "Sun, 06 Nov 1994 08:48:30 GMT");
        assert_eq!(wait(early, None), Some(0), "it has passed");
        assert_eq!(wait(early, Some(date)), Some(30), "by the clock of the other side");
        assert_eq!(wait(early, Some("some time")), Some(0));
        assert_eq!(wait("soon", None), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}

//! The idempotency layer and its policy for the routes behind it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, LINK, LOCATION,
};
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use tidelock_core::idempotency::{Idempotency, MAX_BODY_BYTES};
use tidelock_core::store::SharedStore;
use tower_layer::Layer;

use crate::key::IDEMPOTENCY_KEY;
use crate::service::IdempotencyService;
use crate::webhook::Verifier;

/// The default size limit of a request body.
const REQUEST_BYTES: usize = 1024 * 1024;

/// A layer that runs requests with an `Idempotency-Key` once. Put it in front of the routes that need it, each with its
/// own policy.
///
/// A request that has begun runs to its end, whether its client still waits or not. A client that disconnects and
/// repeats the request gets the response. The layer therefore needs a Tokio runtime.
///
/// Handlers find a [`Reservation`](tidelock_core::idempotency::Reservation) among the extensions of the request. Handlers that
/// commit their effects with it have them exactly once; the committed answer is the response, whatever they return. For
/// other handlers, the layer stores the response after they have returned. If the process dies between an effect and
/// that moment, the request runs again.
#[derive(Clone)]
pub struct IdempotencyLayer {
    policy: Policy,
}

/// The settings that the layer and its services share.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(crate) keys: Idempotency,
    pub(crate) header: HeaderName,
    pub(crate) required: bool,
    pub(crate) methods: Arc<[Method]>,
    pub(crate) wait: Option<Duration>,
    pub(crate) keep: Arc<dyn Fn(StatusCode) -> bool + Send + Sync>,
    pub(crate) scope: Arc<dyn Fn(&Parts) -> String + Send + Sync>,
    pub(crate) request_bytes: usize,
    pub(crate) answer_bytes: usize,
    pub(crate) headers: Arc<[HeaderName]>,
    pub(crate) verifier: Option<Arc<Verifier>>,
}

impl IdempotencyLayer {
    /// Creates a layer with keys on this store: optional, for POST and PATCH, with 409 for keys in flight. Responses
    /// with a status below 400 are stored for a day.
    #[must_use]
    pub fn new(store: &SharedStore) -> Self {
        let policy = Policy {
            keys: Idempotency::new(store),
            header: IDEMPOTENCY_KEY,
            required: false,
            methods: Arc::new([Method::POST, Method::PATCH]),
            wait: None,
            keep: Arc::new(|status| status.as_u16() < 400),
            scope: Arc::new(|_| String::new()),
            request_bytes: REQUEST_BYTES,
            answer_bytes: MAX_BODY_BYTES,
            headers: Arc::new([
                CONTENT_DISPOSITION,
                CONTENT_ENCODING,
                CONTENT_LANGUAGE,
                CONTENT_LOCATION,
                CONTENT_TYPE,
                ETAG,
                LAST_MODIFIED,
                LINK,
                LOCATION,
            ]),
            verifier: None,
        };
        Self { policy }
    }

    /// Creates a layer for receivers of webhooks: requests must be signed and have a key, which runs once. Requests
    /// without a valid signature are rejected with 401, requests without a key with 400. A response with an error status
    /// frees the key, so that the sender's next attempt runs.
    ///
    /// Give each sender a route, or separate the senders by [`scope`](Self::scope).
    #[must_use]
    pub fn webhooks(store: &SharedStore, verifier: Verifier) -> Self {
        let mut layer = Self::new(store).required().scope(|_| "webhooks".to_owned());
        layer.policy.verifier = Some(Arc::new(verifier));
        layer
    }

    /// Rejects requests without a key with 400. By default they run as if there were no layer.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.policy.required = true;
        self
    }

    /// Sets the methods to which the layer applies. The default is POST and PATCH. Requests with other methods run as
    /// if there were no layer.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.policy.methods = methods.into_iter().collect();
        self
    }

    /// Sets another name for the header.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.policy.header = name;
        self
    }

    /// Sets how long a duplicate waits for the response of a key in flight, instead of getting 409 at once. After that
    /// it gets 409.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.wait = Some(wait);
        self
    }

    /// Sets how long responses are stored. The default is one day.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.policy.keys = self.policy.keys.ttl(ttl);
        self
    }

    /// Sets how long a key stays in flight after its process died. The default is 30 seconds.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.policy.keys = self.policy.keys.lease_ttl(ttl);
        self
    }

    /// Sets which responses are stored, by their status. The default is a status below 400. After another response the
    /// key is free, and the request may be sent again. A response that a handler commits itself is always stored.
    ///
    /// A response that is not stored must come from a request that had no effect.
    #[must_use]
    pub fn keep(mut self, keep: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.policy.keep = Arc::new(keep);
        self
    }

    /// Sets the scope of a key, derived from the request: for example a tenant or a user, from an extension that
    /// authentication has set. Keys of different scopes are independent. Without it, all callers share one scope.
    ///
    /// Any caller that knows a key of a scope gets its response. Never derive the scope from an unverified claim of the
    /// caller.
    #[must_use]
    pub fn scope(mut self, scope: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.policy.scope = Arc::new(scope);
        self
    }

    /// Sets the largest body of a request, in bytes. The default is 1 MiB. The layer reads the body before the handler
    /// runs, to compare it with duplicates. Larger bodies are rejected with 413.
    #[must_use]
    pub fn request_bytes(mut self, limit: usize) -> Self {
        self.policy.request_bytes = limit;
        self
    }

    /// Sets the largest body of a stored response, in bytes. The default and the maximum is [`MAX_BODY_BYTES`]. A
    /// larger body, or a stream of unknown length, reaches the client unchanged, and only its status is stored.
    /// Duplicates then do not run, and get 409.
    #[must_use]
    pub fn answer_bytes(mut self, limit: usize) -> Self {
        self.policy.answer_bytes = limit.min(MAX_BODY_BYTES);
        self
    }

    /// Sets which headers of a response are stored. The default is the headers that describe the body, and `Location`,
    /// `Link`, `ETag` and `Last-Modified`. Cookies are not among them: they would reach any caller that repeats the
    /// request.
    #[must_use]
    pub fn headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.policy.headers = names.into_iter().collect();
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("header", &self.header)
            .field("required", &self.required)
            .field("methods", &self.methods)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, self.policy.clone())
    }
}

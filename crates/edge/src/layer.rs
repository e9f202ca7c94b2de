//! The layer, and what it is told: the policy of the routes that it stands before.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, ETAG,
    LAST_MODIFIED, LINK, LOCATION,
};
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use tidelock_core::edge::{Idempotency, MAX_BODY_BYTES};
use tidelock_core::store::SharedStore;
use tower_layer::Layer;

use crate::key::IDEMPOTENCY_KEY;
use crate::service::IdempotencyService;
use crate::webhook::Verifier;

/// How much of a request is read, unless the layer is told otherwise.
const REQUEST_BYTES: usize = 1024 * 1024;

/// Lets requests with an `Idempotency-Key` run once. Put it before the routes that need it, each with a policy of its own.
///
/// A request that has begun runs to its end, whether its client still waits or not: a client that hangs up and comes back finds the
/// answer. So it needs a tokio runtime.
///
/// Handlers find a [`Reservation`](tidelock_core::edge::Reservation) among the extensions of the request. Those that commit
/// their effects with it have them exactly once; what they committed is the answer, whatever they return. For the others, the
/// answer is kept after they have returned: if the process dies between an effect and that moment, the request runs again.
#[derive(Clone)]
pub struct IdempotencyLayer {
    policy: Policy,
}

/// What the layer and its services share.
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
    /// Keys on this store: optional, for POST and PATCH, with 409 for those in flight. Answers with a status below 400 are kept for
    /// a day.
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

    /// For those who receive webhooks: requests must be signed, and have a key, which runs once. Requests that are not are refused
    /// with 401. An answer that says that it failed frees the key, so that the sender's next attempt runs.
    ///
    /// Give each sender a route, or tell them apart by [`scope`](Self::scope).
    #[must_use]
    pub fn webhooks(store: &SharedStore, verifier: Verifier) -> Self {
        let mut layer = Self::new(store).required().scope(|_| "webhooks".to_owned());
        layer.policy.verifier = Some(Arc::new(verifier));
        layer
    }

    /// Requests without a key are refused with 400. Otherwise they run as if the layer was not there.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.policy.required = true;
        self
    }

    /// The methods that it is about: POST and PATCH, unless others are named. Requests with others run as if the layer was not
    /// there.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.policy.methods = methods.into_iter().collect();
        self
    }

    /// Another name for the header.
    #[must_use]
    pub fn header(mut self, name: HeaderName) -> Self {
        self.policy.header = name;
        self
    }

    /// Whoever comes with a key that is in flight waits so long for the answer, instead of hearing 409 at once. After that it is 409
    /// all the same.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.wait = Some(wait);
        self
    }

    /// How long answers are kept: a day.
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

    /// Which answers are kept, by their status: those below 400, unless this says otherwise. After another answer the key is free,
    /// and the request may be sent again. What a handler commits by itself is kept in any case.
    ///
    /// An answer that is not kept must come from a request that had no effect.
    #[must_use]
    pub fn keep(mut self, keep: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.policy.keep = Arc::new(keep);
        self
    }

    /// Whose key it is, by what is known of the request: a tenant or a user, from an extension that authentication has left, for
    /// example. Keys of different scopes have nothing to do with each other. Without it, all callers share one.
    ///
    /// Whoever knows a key of its scope hears its answer, so never take the scope from what a caller merely claims.
    #[must_use]
    pub fn scope(mut self, scope: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.policy.scope = Arc::new(scope);
        self
    }

    /// The largest body of a request, in bytes: 1 MiB. It is read before the handler runs, to be compared with repetitions. Larger
    /// ones are refused with 413.
    #[must_use]
    pub fn request_bytes(mut self, limit: usize) -> Self {
        self.policy.request_bytes = limit;
        self
    }

    /// The largest body of an answer that is kept, in bytes: [`MAX_BODY_BYTES`], which is also the most. A larger one, or a stream
    /// of no known length, reaches the client as it is, and only its status is kept: repetitions do not run, and hear 409.
    #[must_use]
    pub fn answer_bytes(mut self, limit: usize) -> Self {
        self.policy.answer_bytes = limit.min(MAX_BODY_BYTES);
        self
    }

    /// Which headers of an answer are kept: those that describe the body, and `Location`, `Link`, `ETag` and `Last-Modified`,
    /// unless others are named. Cookies are not among them: they would reach whoever repeats the request.
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

//! The idempotency service: one request, from its key to its response.
//!
//! The handler runs in its own task, so that a client that disconnects does not cancel it between an effect and its
//! record. If the process dies, the reservation expires, and the request can be sent again.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tidelock_core::idempotency::{
    Fingerprint, IdempotencyError, InFlight, Reservation, ReserveOutcome, StorePolicy,
};
use tower_service::Service;
use tracing::Instrument as _;

use crate::answer;
use crate::body::{BoxError, whole};
use crate::error::RequestError;
use crate::key;
use crate::layer::Policy;
use crate::problem::Problem;

/// A service behind an [`IdempotencyLayer`](crate::IdempotencyLayer).
///
/// Bodies must be convertible from bytes, like those of axum and `http_body_util::Full`.
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    policy: Policy,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, policy: Policy) -> Self {
        Self { inner, policy }
    }
}

type Answered<R, E> = Pin<Box<dyn Future<Output = Result<Response<R>, E>> + Send>>;

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    R: Body + From<Bytes> + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Answered<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !self.policy.methods.contains(request.method()) {
            return Box::pin(self.inner.call(request));
        }
        // The ready service is consumed; a fresh clone replaces it.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let policy = self.policy.clone();
        Box::pin(async move {
            match prepared(&policy, request).await {
                Ok(Prepared::Run(request, reservation)) => run(policy, inner, request, reservation).await,
                Ok(Prepared::Pass(request)) => {
                    let mut inner = inner;
                    inner.call(request).await
                }
                Ok(Prepared::Answered(response)) => Ok(response),
                Err(problem) => Ok(problem.response()),
            }
        })
    }
}

/// The decision about a request.
enum Prepared<B, R> {
    /// The request has no key and needs none.
    Pass(Request<B>),
    /// The first request with its key.
    Run(Request<B>, Reservation),
    /// The request ran before.
    Answered(Response<R>),
}

/// Runs all steps before the handler.
async fn prepared<B, R>(policy: &Policy, request: Request<B>) -> Result<Prepared<B, R>, Problem>
where
    B: Body + From<Bytes>,
    B::Error: Into<BoxError>,
    R: From<Bytes>,
{
    let Some(key) = key::read(request.headers(), &policy.header)? else {
        if policy.required {
            return Err(RequestError::MissingKey { header: policy.header.to_string() }.into());
        }
        return Ok(Prepared::Pass(request));
    };
    let (mut parts, body) = request.into_parts();
    let body = whole(body, policy.request_bytes).await?;
    if let Some(verifier) = &policy.verifier {
        verifier.check(&parts.headers, &key, &body)?;
    }
    let target = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let said = Fingerprint::of([parts.method.as_str().as_bytes(), target.as_bytes(), body.as_ref()]);
    let scope = (policy.scope)(&parts);
    let reserved = match policy.wait {
        Some(wait) => policy.keys.reserve_within(&scope, &key, &said, wait).await?,
        None => policy.keys.reserve(&scope, &key, &said).await?,
    };
    match reserved {
        ReserveOutcome::Run(reservation) => {
            parts.extensions.insert(reservation.clone());
            Ok(Prepared::Run(Request::from_parts(parts, B::from(body)), reservation))
        }
        ReserveOutcome::Stored(answer) => Ok(Prepared::Answered(answer::replayed(answer))),
        ReserveOutcome::StatusOnly { status } => Err(RequestError::NotKept { key, status }.into()),
        ReserveOutcome::OtherPayload => Err(RequestError::OtherPayload { key }.into()),
        ReserveOutcome::InFlight(InFlight { by, since, until }) => {
            Err(IdempotencyError::InFlight { key, by, since, until }.into())
        }
    }
}

/// Runs the handler to its end and stores its response.
async fn run<S, B, R>(
    policy: Policy,
    mut inner: S,
    request: Request<B>,
    reservation: Reservation,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: Body + From<Bytes> + Send + 'static,
    R::Data: Send,
    R::Error: Into<BoxError>,
{
    let key = reservation.key().to_owned();
    let running = async move {
        let answered = inner.call(request).await;
        settled(&policy, &reservation, answered).await
    };
    match tokio::spawn(running.in_current_span()).await {
        Ok(answered) => answered,
        // The reservation ended with the task, which frees the key.
        Err(_) => Ok(Problem::from(RequestError::Panicked { key }).response()),
    }
}

/// Runs all steps after the handler.
async fn settled<R, E>(
    policy: &Policy,
    reservation: &Reservation,
    answered: Result<Response<R>, E>,
) -> Result<Response<R>, E>
where
    R: Body + From<Bytes>,
    R::Error: Into<BoxError>,
{
    if let Some(StorePolicy::Whole(committed)) = reservation.committed() {
        return Ok(answer::response(committed));
    }
    let response = match answered {
        Ok(response) if (policy.keep)(response.status()) => response,
        other => {
            reservation.release().await;
            return other;
        }
    };
    let (parts, body) = response.into_parts();
    let short = body.size_hint().exact().is_some_and(|bytes| bytes <= policy.answer_bytes as u64);
    if !short {
        log_unstored(reservation.complete_with_status(parts.status.as_u16()).await);
        return Ok(Response::from_parts(parts, body));
    }
    let Ok(body) = body.collect().await else {
        log_unstored(reservation.complete_with_status(parts.status.as_u16()).await);
        let key = reservation.key().to_owned();
        return Ok(Problem::from(RequestError::NotKept { key, status: parts.status.as_u16() }).response());
    };
    let body = body.to_bytes();
    log_unstored(
        reservation.complete(answer::kept(parts.status, &parts.headers, &policy.headers, &body)).await,
    );
    Ok(Response::from_parts(parts, R::from(body)))
}

/// Logs a response that was not stored. The handler has finished, so its client still gets the response, but a
/// duplicate may run again.
fn log_unstored(kept: Result<(), IdempotencyError>) {
    // A handler may end its own reservation.
    if let Err(error) =
        kept.or_else(|error| if matches!(error, IdempotencyError::Over { .. }) { Ok(()) } else { Err(error) })
    {
        tracing::error!(target: "tidelock::idempotency", %error, "an answer was not kept; a repetition of its request runs again");
    }
}

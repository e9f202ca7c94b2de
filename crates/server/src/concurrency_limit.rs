//! Concurrency limit for requests. Request and response bodies use memory, so the number of requests in flight is bounded.
//!
//! A large response keeps its permit until it is sent. It is sent in pieces, so that the unsent part stays here and not in the buffers
//! of the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::app_state::App;
use crate::error::ServerError;

/// The size in bytes above which a response keeps its permit until it is sent.
const LARGE: u64 = 1024 * 1024;
/// The size in bytes of the pieces in which a large response is sent.
const PIECE: usize = 64 * 1024;

/// Acquires a permit for a request. Waits for it until the deadline of the request.
pub(crate) async fn take(app: &App, deadline: Instant) -> Result<OwnedSemaphorePermit, ServerError> {
    let asked = Instant::now();
    match tokio::time::timeout_at(deadline, Arc::clone(&app.seats).acquire_owned()).await {
        Ok(Ok(seat)) => Ok(seat),
        // The semaphore is never closed; if it were, no permit would be available.
        Ok(Err(_)) | Err(_) => Err(ServerError::Busy { limit: app.options.at_once, waited: asked.elapsed() }),
    }
}

/// Returns the response, which keeps the permit if it is large. A response of unknown length keeps none.
pub(crate) fn until_sent(response: Response, seat: Option<OwnedSemaphorePermit>) -> Response {
    let large = response.body().size_hint().exact().is_some_and(|bytes| bytes > LARGE);
    match seat.filter(|_| large) {
        None => response,
        Some(seat) => response.map(|body| Body::new(LimitedBody { body, unsent: Bytes::new(), _seat: seat })),
    }
}

/// A response body that holds its permit until it is sent or dropped.
struct LimitedBody {
    body: Body,
    /// The unsent rest of the last frame of the body.
    unsent: Bytes,
    _seat: OwnedSemaphorePermit,
}

impl hyper::body::Body for LimitedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.unsent.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.unsent = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = self.unsent.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.unsent.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.unsent.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(bytes) => SizeHint::with_exact(bytes.saturating_add(self.unsent.len() as u64)),
            None => SizeHint::default(),
        }
    }
}

//! Seats of requests that are worked on: bodies and answers take memory, so that only so many are there at once.
//!
//! The seat of a large answer is kept until it is sent. It is sent in pieces, so that what is not yet sent is here, and not on its way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::error::ServerError;
use crate::shared::App;

/// An answer of more bytes keeps its seat until it is sent.
const LARGE: u64 = 1024 * 1024;
/// How many bytes of it are sent at once.
const PIECE: usize = 64 * 1024;

/// A seat for the work on a request, for which it waits until its time is over.
pub(crate) async fn take(app: &App, deadline: Instant) -> Result<OwnedSemaphorePermit, ServerError> {
    let asked = Instant::now();
    match tokio::time::timeout_at(deadline, Arc::clone(&app.seats).acquire_owned()).await {
        Ok(Ok(seat)) => Ok(seat),
        // The seats are never closed; there would be none.
        Ok(Err(_)) | Err(_) => Err(ServerError::Busy { limit: app.options.at_once, waited: asked.elapsed() }),
    }
}

/// The same answer, which keeps the seat if it is large. What has no end keeps none.
pub(crate) fn until_sent(response: Response, seat: Option<OwnedSemaphorePermit>) -> Response {
    let large = response.body().size_hint().exact().is_some_and(|bytes| bytes > LARGE);
    match seat.filter(|_| large) {
        None => response,
        Some(seat) => response.map(|body| Body::new(Seated { body, unsent: Bytes::new(), _seat: seat })),
    }
}

/// The body of an answer, with the seat that it has until it is sent or dropped.
struct Seated {
    body: Body,
    /// What is left of the frame that was taken of the body last.
    unsent: Bytes,
    _seat: OwnedSemaphorePermit,
}

impl hyper::body::Body for Seated {
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

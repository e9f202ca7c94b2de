//! Delivery reports: a response body that notifies a task when the connection has read it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// Returns the same response. `report` fires when the connection reads the body, and is dropped with a response that is never read.
pub(crate) fn reported(response: Response, report: oneshot::Sender<()>) -> Response {
    response.map(|body| Body::new(Reported { body, report: Some(report) }))
}

/// A response body with the report of its delivery.
struct Reported {
    body: Body,
    report: Option<oneshot::Sender<()>>,
}

impl hyper::body::Body for Reported {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready()
            && let Some(report) = self.report.take()
        {
            // The task may have ended with its runtime.
            let _ = report.send(());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

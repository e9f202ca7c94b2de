//! Traces that go on across commits: what is written carries the trace that it was written in, and whoever takes it up follows from it.
//!
//! The library speaks no protocol of traces. Whoever does, such as the crate `tidelock-otel`, says so once.

use std::sync::OnceLock;

use thiserror::Error;
use tracing::Span;

/// Somebody who knows traces.
pub trait TraceContext: Send + Sync {
    /// The W3C `traceparent` of the span that is entered now, if it is part of a trace.
    fn current(&self) -> Option<String>;

    /// Says that a span follows from the one that a `traceparent` names.
    fn follow(&self, span: &Span, traceparent: &str);
}

static CONTEXT: OnceLock<Box<dyn TraceContext>> = OnceLock::new();

/// There is somebody already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "traces are known to somebody else already: trace_with was called twice; call it once, where the program starts"
)]
pub struct TracesAlready;

/// From now on, what is written carries the trace that it is written in.
///
/// # Errors
/// [`TracesAlready`] when it was called before; the first one stays.
pub fn trace_with(context: impl TraceContext + 'static) -> Result<(), TracesAlready> {
    CONTEXT.set(Box::new(context)).map_err(|_| TracesAlready)
}

/// The trace of the span that is entered now.
pub(crate) fn current_trace() -> Option<String> {
    CONTEXT.get()?.current()
}

/// Says that a span follows from another one.
pub(crate) fn follow(span: &Span, traceparent: Option<&str>) {
    if let (Some(context), Some(traceparent)) = (CONTEXT.get(), traceparent) {
        context.follow(span, traceparent);
    }
}

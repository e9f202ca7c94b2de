//! Trace propagation across commits. A write carries the trace context of its writer, and the worker that processes it
//! follows from that trace.
//!
//! The library implements no tracing protocol. A crate that does, such as `tidelock-otel`, registers once.

use std::sync::OnceLock;

use thiserror::Error;
use tracing::Span;

/// A provider of trace contexts.
pub trait TraceContext: Send + Sync {
    /// Returns the W3C `traceparent` of the current span, if it is part of a trace.
    fn current(&self) -> Option<String>;

    /// Marks a span as following from the span that a `traceparent` names.
    fn follow(&self, span: &Span, traceparent: &str);
}

static CONTEXT: OnceLock<Box<dyn TraceContext>> = OnceLock::new();

/// A provider is already registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a tracer is installed already: trace_with was called twice; call it once, where the program starts")]
pub struct TracesAlready;

/// Registers the provider of trace contexts. From then on, writes carry the trace context of their writer.
///
/// # Errors
/// [`TracesAlready`] when it was called before; the first provider stays.
pub fn trace_with(context: impl TraceContext + 'static) -> Result<(), TracesAlready> {
    CONTEXT.set(Box::new(context)).map_err(|_| TracesAlready)
}

/// Returns the `traceparent` of the current span.
pub(crate) fn current_trace() -> Option<String> {
    CONTEXT.get()?.current()
}

/// Marks a span as following from another one.
pub(crate) fn follow(span: &Span, traceparent: Option<&str>) {
    if let (Some(context), Some(traceparent)) = (CONTEXT.get(), traceparent) {
        context.follow(span, traceparent);
    }
}

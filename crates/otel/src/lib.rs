//! Trace propagation across commits and processes.
//!
//! A request appends an event in one process; a reaction to it runs in another, minutes later. With this crate the event carries the
//! trace in which it was written. The span of the reaction follows from the span of the command. Likewise, a workflow run follows
//! from the span that started it, in whichever process it continues.
//!
//! ```
//! // Your subscriber, with a layer of tracing-opentelemetry, is set up first. Then, once:
//! tidelock_otel::install()?;
//! # Ok::<(), tidelock_core::telemetry::TracesAlready>(())
//! ```
//!
//! The spans are those that [`telemetry`](tidelock_core::telemetry) names, on the level `DEBUG`; a filter must let them through. They
//! are linked and not nested: many consumers may process a commit, at any time, and again after a crash.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tidelock_core::telemetry::{TraceContext, TracesAlready, trace_with};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Installs the propagation. From then on, writes carry their current trace, and the spans that process them follow from it.
///
/// # Errors
/// [`TracesAlready`] when another implementation is already installed; that one stays in effect.
pub fn install() -> Result<(), TracesAlready> {
    trace_with(OpenTelemetry)
}

struct OpenTelemetry;

impl TraceContext for OpenTelemetry {
    fn current(&self) -> Option<String> {
        let context = Span::current().context();
        let span = context.span();
        let span = span.span_context();
        let written = || {
            let flags = span.trace_flags().to_u8();
            format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id())
        };
        span.is_valid().then(written)
    }

    fn follow(&self, span: &Span, traceparent: &str) {
        match read(traceparent) {
            Some(followed) => span.add_link(followed),
            None => {
                tracing::debug!(target: "tidelock::otel", traceparent, "what was written is no traceparent")
            }
        }
    }
}

/// Parses a `traceparent` into a span context.
fn read(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // A later version may have more parts; version 00 has exactly four.
    let known = version.len() == 2 && version != "ff" && (version != "00" || parts.next().is_none());
    if !known || (trace.len(), span.len(), flags.len()) != (32, 16, 2) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let named = SpanContext::new(trace, span, flags, true, TraceState::default());
    named.is_valid().then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_traceparent_is_left_out() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let span = read(good).unwrap();
        assert_eq!(span.span_id().to_string(), "b7ad6b7169203331");
        assert!(span.is_sampled() && span.is_remote());
        assert!(read("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more").is_some());
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c8031-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319x-b7ad6b7169203331-01",
        ] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}

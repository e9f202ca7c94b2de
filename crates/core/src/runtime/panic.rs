//! Panic isolation: runs user callbacks under `catch_unwind`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `callback`, and turns a panic into a reason that names `what` panicked.
pub(crate) fn isolate<R>(what: &str, callback: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|panic| reason(what, &*panic))
}

/// Drops a value of the user. A panic of its `Drop` is logged and goes no further.
pub(crate) fn discard<T>(value: T) {
    if let Err(panic) = isolate("the drop of a value", || drop(value)) {
        tracing::error!(%panic, "drop panicked");
    }
}

/// Returns a reason that names `what` panicked.
pub(crate) fn reason(what: &str, panic: &(dyn Any + Send)) -> String {
    format!("{what} panicked: {}", text(panic))
}

/// Returns the message of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why")
}

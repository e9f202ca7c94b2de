//! The user's code, called where a panic would take others along.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls it; a panic becomes a reason.
pub(crate) fn calm<R>(what: &str, call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| format!("{what} panicked: {}", text(&*panic)))
}

/// What a panic says.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why")
}

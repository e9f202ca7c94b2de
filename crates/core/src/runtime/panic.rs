//! Panic isolation: runs user callbacks under `catch_unwind`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `callback`, and turns a panic into a reason that names `what` panicked.
pub(crate) fn isolate<R>(what: &str, callback: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(callback)).map_err(|panic| reason(what, panic))
}

/// Drops a value of the user. A panic of its `Drop` is logged and goes no further.
pub(crate) fn discard<T>(value: T) {
    if let Err(panic) = isolate("the drop of a value", || drop(value)) {
        tracing::error!(%panic, "drop panicked");
    }
}

/// A value of the user whose `Drop` may panic.
#[derive(Debug)]
pub(crate) struct Isolated<T>(Option<T>);

impl<T> Isolated<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// Returns the value, which is there until this is dropped.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }
}

impl<T> Drop for Isolated<T> {
    fn drop(&mut self) {
        discard(self.0.take());
    }
}

/// Returns a reason that names `what` panicked, and drops the payload of the panic.
pub(crate) fn reason(what: &str, panic: Box<dyn Any + Send>) -> String {
    let reason = format!("{what} panicked: {}", text(&*panic));
    dispose(panic);
    reason
}

/// Drops the payload of a panic. A payload whose `Drop` panics may bring another one of its kind: that one is leaked.
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(next);
    }
}

/// Returns the message of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why")
}

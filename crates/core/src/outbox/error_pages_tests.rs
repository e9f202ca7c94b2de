//! Example errors of outboxes for their documentation pages, which `error/pages/tests.rs` compares.

use super::OutboxError;
use crate::error::pages::tests::{Examples, boxed};

/// One error for each code.
pub(crate) fn examples() -> Examples {
    let (outbox, message) = (|| "mails".to_owned(), || "order-17".to_owned());
    let by = "web-1-4242/9f86d081884c-7".to_owned();
    boxed([
        OutboxError::NoRuntime,
        OutboxError::Unknown { outbox: outbox(), message: message() },
        OutboxError::UnderWay { outbox: outbox(), message: message(), by },
    ])
}

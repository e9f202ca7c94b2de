//! Example errors of idempotency keys for their documentation pages. `error/pages/tests.rs` compares them.

use super::IdempotencyError;
use crate::clock::Timestamp;
use crate::error::InvalidInput;
use crate::error::pages::tests::{Examples, boxed};
use crate::id::{Fence, Owner};
use crate::key::Key;
use crate::worker::LostReason;

/// Returns one error for each code.
pub(crate) fn examples() -> Result<Examples, InvalidInput> {
    let at = |seconds: i64| Timestamp::from_micros(1_000_000_000_000_000 + seconds * 1_000_000);
    let (key, by) = ("order-17".to_owned(), "web-1-4242/9f86d081884c-7".to_owned());
    let reason = LostReason::Taken { by: Owner::new("web-2-17/0a1b2c3d4e5f-3")?, fence: Fence(12) };
    Ok(boxed([
        IdempotencyError::BadKey { key: String::new(), reason: "the key is empty".to_owned() },
        IdempotencyError::InFlight { key: key.clone(), by, since: at(0), until: at(30) },
        IdempotencyError::Lost { key: key.clone(), reason },
        IdempotencyError::Over { key: key.clone(), how: "committed" },
        IdempotencyError::AnswerTooLarge {
            key: key.clone(),
            what: "body",
            found: 3_000_000,
            limit: super::MAX_BODY_BYTES,
        },
        IdempotencyError::Unknown { scope: "shop-1".to_owned(), key },
        IdempotencyError::Damaged {
            key: Key::new("tidelock.idempotency", ["shop-1", "order-17"])?,
            reason: InvalidInput::Payload { reason: "missing field `request` at line 1 column 2".to_owned() }
                .to_string(),
        },
    ]))
}

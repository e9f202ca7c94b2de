//! Results of operations: how they are recorded, and how the code receives them.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::activation::{OpHandle, Resolution};
use crate::error::InvalidInput;
use crate::failure::Failure;
use crate::failure::step_error::StepError;
use crate::model::limits::{PAYLOAD_BYTES, PAYLOAD_DEPTH, depth, within};
use crate::payload::Payload;
use crate::runtime::panic::isolate;

/// The longest result of a step or a run, in bytes: it is recorded with its name.
pub(super) const RESULT_BYTES: usize = PAYLOAD_BYTES - 16 * 1024;
/// The deepest result of a step: its entry adds a level.
const RESULT_DEPTH: usize = PAYLOAD_DEPTH - 10;

/// Encodes the value of a step for its record. A value that cannot be recorded or decoded again fails the step without a retry,
/// because the step has run.
pub(super) fn recordable<T: Serialize + DeserializeOwned>(value: &T) -> Result<Payload, Failure> {
    let recorded = isolate("its conversion", || {
        let payload = Payload::of(value)?;
        within("the length in bytes", "the result", payload.len(), RESULT_BYTES)?;
        within("the nesting depth", "the result", depth(payload.as_str()), RESULT_DEPTH)?;
        payload.parse::<T>()?;
        Ok(payload)
    });
    let recorded = recorded.and_then(|recorded| recorded.map_err(|error: InvalidInput| error.to_string()));
    recorded.map_err(|reason| Failure::permanent(format!("its result cannot be recorded: {reason}")))
}

/// Decodes the result of a step, as the code receives it.
pub(super) async fn value<T: DeserializeOwned>(op: &OpHandle, result: Resolution) -> Result<T, StepError> {
    match result {
        Resolution::Error(error) => Err(error),
        Resolution::Value(value) => fitting(op, &value).await,
        Resolution::Nothing => fitting(op, &Payload::null()).await,
    }
}

/// Decodes the value of a step. A value that does not fit suspends the run, because only a change of the code can fix it; the
/// workflow receives no error.
pub(super) async fn fitting<T: DeserializeOwned, E>(op: &OpHandle, value: &Payload) -> Result<T, E> {
    match value.parse() {
        Ok(value) => Ok(value),
        Err(error) => {
            op.does_not_fit(error.to_string());
            std::future::pending().await
        }
    }
}

/// Decodes the value of a signal.
pub(super) fn decode_signal<T: DeserializeOwned>(signal: &str, result: Resolution) -> Result<T, StepError> {
    let value = match result {
        Resolution::Error(error) => return Err(error),
        Resolution::Value(value) => value,
        Resolution::Nothing => Payload::null(),
    };
    value.parse().map_err(|error| StepError::Value { what: signal.to_owned(), reason: error.to_string() })
}

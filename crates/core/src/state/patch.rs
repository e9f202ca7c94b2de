//! Partial changes of a value, by way of its JSON.

use serde_json::Value;

use super::StateValue;
use crate::model::draft::Draft;
use crate::payload::Payload;
use crate::store::Delta;

/// Sets the fields of an object that the patch names.
pub(super) fn patched<T: StateValue>(draft: &mut T, patch: &Value) -> Result<(), String> {
    let mut json = serde_json::to_value(&*draft).map_err(|error| error.to_string())?;
    match (&mut json, patch) {
        (Value::Object(fields), Value::Object(new)) => {
            fields.extend(new.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        _ => return Err("only an object can be patched, and only by an object".to_owned()),
    }
    *draft = serde_json::from_value(json).map_err(|error| error.to_string())?;
    Ok(())
}

/// Applies deltas to the value.
pub(super) fn with_deltas<T: StateValue>(draft: &mut T, deltas: &[Delta]) -> Result<(), String> {
    let mut merged = Draft::of(&Payload::of(draft).map_err(|error| error.to_string())?);
    for change in deltas {
        merged.apply(change).map_err(|misfit| {
            format!("{}: needed {}, found {}", change.path(), misfit.needed, misfit.found)
        })?;
    }
    *draft = merged.payload().parse().map_err(|error| error.to_string())?;
    Ok(())
}

/// Returns the JSON pointer of a field below another one.
pub(super) fn below(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

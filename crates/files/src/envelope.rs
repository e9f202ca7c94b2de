//! A document as a file: the envelope of its value, and the detection of manual edits.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::path::Path;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::DocVersion;
use tidelock_core::key::Key;
use tidelock_core::model::rows::DocumentRow;
use tidelock_core::payload::{Payload, text};
use tidelock_core::store::{Batch, Expect, StoreError};

use crate::{error, file_names};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    key: Key,
    #[serde(default)]
    version: u64,
    #[serde(default)]
    updated_at: Option<Timestamp>,
    #[serde(default)]
    expires_at: Option<Timestamp>,
    #[serde(default)]
    deleted: bool,
    #[serde(default)]
    sha256: Option<String>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
}

/// A value that is present may be `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The contents of a document's file.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) row: DocumentRow,
    /// Whether the file was edited by hand. The version is then the one before the edit.
    pub(crate) edited: bool,
}

/// Parses the file of a document.
pub(crate) fn parse(path: &Path, name: &str, content: &str) -> Result<Found, StoreError> {
    let broken = |detail: String| error::corrupt(path, detail);
    let envelope: Envelope = serde_json::from_str(content)
        .map_err(|e| broken(format!("it is not the JSON of a document: {e}")))?;
    let key = envelope.key;
    let place = file_names::encode(&key);
    if place != name {
        return Err(broken(format!("it says that it holds {key}, whose file would be {place}")));
    }
    let value = match (envelope.deleted, envelope.value) {
        (false, Some(raw)) => Some(Payload::trusted(text::compact(raw.get()))),
        (true, None) => None,
        (true, Some(_)) => return Err(broken("it is marked as deleted and has a value".to_owned())),
        (false, None) => return Err(broken("it has no value and is not marked as deleted".to_owned())),
    };
    let row = DocumentRow {
        version: DocVersion(envelope.version),
        updated_at: envelope.updated_at.unwrap_or(Timestamp::EPOCH),
        expires_at: envelope.expires_at,
        value,
    };
    let edited = sum(&row).is_some_and(|sum| envelope.sha256.as_deref() != Some(sum.as_str()));
    if edited && let Some(value) = &row.value {
        // The limits apply to manual edits as well.
        let put = Batch::new().put(&key, Expect::Any, value.clone());
        put.validate().map_err(|refusal| broken(refusal.to_string()))?;
    }
    Ok(Found { key, row, edited })
}

/// Returns the file of a document. Its parts are in a fixed order, and the value is as its author gave it.
pub(crate) fn write(key: &Key, row: &DocumentRow) -> String {
    let key = serde_json::Value::from(key.to_string());
    let mut lines = vec![format!("\"key\": {key}"), format!("\"version\": {}", row.version.0)];
    lines.push(format!("\"updated_at\": \"{}\"", row.updated_at));
    if let Some(at) = row.expires_at {
        lines.push(format!("\"expires_at\": \"{at}\""));
    }
    match (&row.value, sum(row)) {
        (Some(value), Some(sum)) => {
            lines.push(format!("\"sha256\": \"{sum}\""));
            lines.push(format!("\"value\": {}", text::pretty(&text::compact(value.as_str()), 1)));
        }
        _ => lines.push("\"deleted\": true".to_owned()),
    }
    format!("{{\n  {}\n}}\n", lines.join(",\n  "))
}

/// Returns the checksum of the editable parts: the value and its expiry. White space does not count.
fn sum(row: &DocumentRow) -> Option<String> {
    let value = text::compact(row.value.as_ref()?.as_str());
    let end = row.expires_at.map_or_else(String::new, |at| at.to_string());
    Some(file_names::digest(&format!("{end}\n{value}")))
}

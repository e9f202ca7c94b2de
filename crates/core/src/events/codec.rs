//! Encoding of serde enum variants as events. The variant name is the event type, and the content is the payload.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::InvalidInput;
use crate::id::EventType;
use crate::payload::Payload;

/// Encodes an event as a type and a payload.
///
/// # Errors
/// Returns [`InvalidInput`] when the event cannot be encoded as JSON, or is not a variant of an externally tagged enum.
/// External tagging is serde's default.
pub fn encode<E: Serialize>(event: &E) -> Result<(EventType, Payload), InvalidInput> {
    let refused = |reason: String| InvalidInput::Payload { reason };
    let text = serde_json::to_string(event).map_err(|error| refused(error.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    let (name, held) = reader.deserialize_any(Variant).map_err(|error| refused(error.to_string()))?;
    let payload = held.map_or_else(Payload::null, |held| Payload::trusted(held.get()));
    Ok((EventType::new(name.into_owned())?, payload))
}

/// Decodes an event from a type and a payload.
///
/// # Errors
/// Returns [`InvalidInput`] when the enum has no such variant, or the payload does not match it.
pub fn decode<E: DeserializeOwned>(event_type: &EventType, payload: &Payload) -> Result<E, InvalidInput> {
    let refused = |error: serde_json::Error| InvalidInput::Payload { reason: error.to_string() };
    let name = serde_json::to_string(event_type.as_str()).map_err(refused)?;
    serde_json::from_str(&format!("{{{name}:{payload}}}")).map_err(refused)
}

/// Returns the event types of an enum: the names of its variants, as serde encodes them.
#[must_use]
pub fn types_of<E: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The deserializer only records the variants, and then fails because there is no input.
    drop(E::deserialize(Names(&mut names)));
    names
}

/// A deserializer that records the variants of an enum.
struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("there is nothing to read"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = variants;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A visitor that splits an encoded variant: `"Name"` or `{"Name": …}`.
struct Variant;

impl<'de> Visitor<'de> for Variant {
    type Value = (Cow<'de, str>, Option<&'de RawValue>);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a variant of an enum, written with its name as the only field")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok((Cow::Borrowed(name), None))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok((Cow::Owned(name.to_owned()), None))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Self::Value, M::Error> {
        let missing = || serde::de::Error::custom("an event has no name");
        let (name, held): (Cow<'de, str>, &'de RawValue) = fields.next_entry()?.ok_or_else(missing)?;
        if fields.next_key::<Cow<'de, str>>()?.is_some() {
            let reason = "an event must be an enum that serde writes with the variant's name as its only field; take \
                          attributes like `tag` and `untagged` away";
            return Err(serde::de::Error::custom(reason));
        }
        Ok((name, Some(held)))
    }
}

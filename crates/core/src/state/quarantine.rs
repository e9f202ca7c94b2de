//! List that quarantines bad items, so that one of them costs neither the others nor itself.

use std::ops::{Deref, DerefMut};

use serde::de::DeserializeOwned;
use serde::ser::{Error as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A list of items. An item that does not decode as the type is quarantined unchanged, and written back at its index.
///
/// ```
/// use tidelock_core::state::Items;
///
/// let mut numbers: Items<u32> = serde_json::from_str(r#"[1, "two", 3]"#)?;
/// assert_eq!(*numbers, [1, 3]);
/// assert_eq!(numbers.quarantine()[0].json, "two");
/// numbers.push(4);
/// assert_eq!(serde_json::to_string(&numbers)?, r#"[1,"two",3,4]"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Items<T> {
    good: Vec<T>,
    bad: Vec<QuarantinedItem>,
}

/// An item that does not decode.
#[derive(Clone, Debug, PartialEq)]
pub struct QuarantinedItem {
    /// The index in the list. Good and bad items count from 0.
    pub place: usize,
    /// The raw value.
    pub json: Value,
    /// The message of the decoder.
    pub reason: String,
}

impl<T> Items<T> {
    /// Returns the quarantined items, in the order of their indexes.
    #[must_use]
    pub fn quarantine(&self) -> &[QuarantinedItem] {
        &self.bad
    }

    /// Removes the quarantined items. Repaired items can be pushed again; the others disappear with the next write.
    pub fn take_quarantine(&mut self) -> Vec<QuarantinedItem> {
        std::mem::take(&mut self.bad)
    }
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T> From<Vec<T>> for Items<T> {
    fn from(good: Vec<T>) -> Self {
        Self { good, bad: Vec::new() }
    }
}

impl<T> Deref for Items<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.good
    }
}

impl<T> DerefMut for Items<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.good
    }
}

impl<'a, T> IntoIterator for &'a Items<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.good.iter()
    }
}

impl<T: Serialize> Serialize for Items<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length =
            self.good.len().checked_add(self.bad.len()).ok_or_else(|| S::Error::custom("too long"))?;
        let mut list = serializer.serialize_seq(Some(length))?;
        let (mut good, mut bad) = (self.good.iter(), self.bad.iter().peekable());
        for place in 0..length {
            let set_aside = bad.next_if(|bad| bad.place <= place);
            match (set_aside, good.len()) {
                (Some(bad), _) => list.serialize_element(&bad.json)?,
                (None, 0) => bad.next().into_iter().try_for_each(|bad| list.serialize_element(&bad.json))?,
                (None, _) => good.next().into_iter().try_for_each(|good| list.serialize_element(good))?,
            }
        }
        list.end()
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut items = Self::default();
        for (place, json) in Vec::<Value>::deserialize(deserializer)?.into_iter().enumerate() {
            match T::deserialize(&json) {
                Ok(item) => items.good.push(item),
                Err(error) => items.bad.push(QuarantinedItem { place, json, reason: error.to_string() }),
            }
        }
        Ok(items)
    }
}

//! Deltas: changes to parts of a JSON value that make sense whatever the rest of it is by then.
//!
//! A path is a JSON pointer (RFC 6901): `""` is the whole value, `/stock/apples` a field, `/items/0` an element.
//! Objects on the way that do not exist are created; array elements are not.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// Adds to a number; a field that does not exist counts as zero.
    Inc {
        /// Where.
        path: String,
        /// How much.
        by: Number,
    },
    /// Adds an element at the end of an array; a field that does not exist counts as an empty array.
    Push {
        /// Where.
        path: String,
        /// What.
        value: Value,
    },
    /// Sets a field or replaces an element.
    Set {
        /// Where.
        path: String,
        /// To what.
        value: Value,
    },
    /// Removes a field; one that does not exist is as good as removed.
    Remove {
        /// Where.
        path: String,
    },
}

impl Delta {
    /// Adds a whole number.
    #[must_use]
    pub fn inc(path: impl Into<String>, by: i64) -> Self {
        Self::Inc { path: path.into(), by: by.into() }
    }

    /// Adds an element to an array.
    #[must_use]
    pub fn push(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Push { path: path.into(), value: value.into() }
    }

    /// Sets a field.
    #[must_use]
    pub fn set(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::Set { path: path.into(), value: value.into() }
    }

    /// Removes a field.
    #[must_use]
    pub fn remove(path: impl Into<String>) -> Self {
        Self::Remove { path: path.into() }
    }

    /// The place that is changed.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Inc { path, .. }
            | Self::Push { path, .. }
            | Self::Set { path, .. }
            | Self::Remove { path } => path,
        }
    }
}

impl Delta {
    /// How many steps the path takes.
    pub(super) fn steps(&self) -> usize {
        self.path().matches('/').count()
    }

    /// The value that it brings, if it is one of any shape.
    pub(super) fn value(&self) -> Option<&Value> {
        match self {
            Self::Push { value, .. } | Self::Set { value, .. } => Some(value),
            Self::Inc { .. } | Self::Remove { .. } => None,
        }
    }
}

/// Why a delta does not fit the value that it meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// What the delta needs.
    pub needed: &'static str,
    /// What is there.
    pub found: String,
}

fn misfit(needed: &'static str, found: &Value) -> Misfit {
    let found = match found {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(_) => "a text".to_owned(),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
    };
    Misfit { needed, found }
}

/// Applies a delta.
///
/// # Errors
/// [`Misfit`] when the value at the path, or on the way to it, is of another kind. The value may then be changed in
/// part: the caller works on a draft.
pub fn apply(root: &mut Value, delta: &Delta) -> Result<(), Misfit> {
    match delta {
        Delta::Remove { path } => remove(root, path),
        Delta::Set { path, value } => {
            *place(root, path)? = value.clone();
            Ok(())
        }
        Delta::Push { path, value } => match place(root, path)? {
            Value::Array(items) => {
                items.push(value.clone());
                Ok(())
            }
            empty @ Value::Null => {
                *empty = Value::Array(vec![value.clone()]);
                Ok(())
            }
            other => Err(misfit("an array", other)),
        },
        Delta::Inc { path, by } => {
            let target = place(root, path)?;
            let sum = match &*target {
                Value::Null => by.clone(),
                Value::Number(present) => {
                    add(present, by).ok_or_else(|| misfit("a sum that fits", target))?
                }
                other => return Err(misfit("a number", other)),
            };
            *target = Value::Number(sum);
            Ok(())
        }
    }
}

/// Whole numbers stay whole; a sum that does not fit is refused rather than rounded.
fn add(a: &Number, b: &Number) -> Option<Number> {
    let (Some(whole_a), Some(whole_b)) = (whole(a), whole(b)) else {
        return Number::from_f64(a.as_f64()? + b.as_f64()?);
    };
    let sum = whole_a.checked_add(whole_b)?;
    let signed = i64::try_from(sum).map(Number::from);
    signed.or_else(|_| u64::try_from(sum).map(Number::from)).ok()
}

/// Wide enough for the sum of any two whole numbers that JSON values hold.
fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn tokens(path: &str) -> Result<Vec<String>, Misfit> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err(Misfit { needed: "a path that begins with /", found: format!("{path:?}") });
    };
    Ok(rest.split('/').map(|t| t.replace("~1", "/").replace("~0", "~")).collect())
}

/// The place that a path means, created when it is a field that does not exist.
fn place<'a>(root: &'a mut Value, path: &str) -> Result<&'a mut Value, Misfit> {
    let mut at = root;
    for token in tokens(path)? {
        at = step(at, &token)?;
    }
    Ok(at)
}

fn step<'a>(at: &'a mut Value, token: &str) -> Result<&'a mut Value, Misfit> {
    if at.is_null() {
        *at = Value::Object(Map::new());
    }
    match at {
        Value::Object(fields) => Ok(fields.entry(token.to_owned()).or_insert(Value::Null)),
        Value::Array(items) => {
            let length = items.len();
            let element = token.parse::<usize>().ok().and_then(|i| items.get_mut(i));
            element.ok_or(Misfit { needed: "an element that exists", found: format!("an array of {length}") })
        }
        other => Err(misfit("an object on the way", other)),
    }
}

fn remove(root: &mut Value, path: &str) -> Result<(), Misfit> {
    let mut tokens = tokens(path)?;
    let Some(last) = tokens.pop() else {
        *root = Value::Null;
        return Ok(());
    };
    let mut at = root;
    for token in tokens {
        at = match at {
            Value::Object(fields) => match fields.get_mut(&token) {
                Some(next) => next,
                None => return Ok(()),
            },
            // Nothing is there to be removed, and a removal must not create the way to it.
            Value::Null => return Ok(()),
            other => step(other, &token)?,
        };
    }
    match at {
        Value::Object(fields) => drop(fields.remove(&last)),
        Value::Array(items) => {
            if let Some(i) = last.parse::<usize>().ok().filter(|i| *i < items.len()) {
                items.remove(i);
            }
        }
        Value::Null => {}
        other => return Err(misfit("an object or an array", other)),
    }
    Ok(())
}

//! Depth and size of a JSON value, measured without recursion. A value that is too deep must not overflow the stack
//! before it is refused.

use serde_json::{Number, Value};

/// The measurements of a value that limits apply to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measure {
    /// The nesting depth of arrays and objects: 0 for a number, 1 for `[]`.
    pub(super) depth: usize,
    /// The approximate length as text in bytes. Escapes and the exact length of fractions are not counted.
    pub(super) bytes: usize,
}

impl Measure {
    pub(super) fn of(root: &Value) -> Self {
        let mut measure = Self::default();
        let mut open = vec![(root, 0_usize)];
        while let Some((value, around)) = open.pop() {
            let bytes = match value {
                Value::Null | Value::Bool(_) => 4,
                Value::Number(number) => digits(number),
                Value::String(text) => text.len().saturating_add(2),
                Value::Array(items) => {
                    open.extend(items.iter().map(|item| (item, around + 1)));
                    items.len().saturating_add(2)
                }
                Value::Object(fields) => {
                    open.extend(fields.values().map(|field| (field, around + 1)));
                    fields.keys().map(|name| name.len().saturating_add(4)).sum::<usize>().saturating_add(2)
                }
            };
            let own = usize::from(value.is_array() || value.is_object());
            measure.depth = measure.depth.max(around + own);
            measure.bytes = measure.bytes.saturating_add(bytes);
        }
        measure
    }
}

/// Counts the digits of non-negative integers. All other numbers count as long as the longest of them.
fn digits(number: &Number) -> usize {
    let digits = number.as_u64().map_or(20, |n| n.checked_ilog10().unwrap_or(0) + 1);
    usize::try_from(digits).unwrap_or(usize::MAX)
}

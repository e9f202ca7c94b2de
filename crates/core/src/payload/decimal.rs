//! Exact addition of JSON numbers in decimal text.
//!
//! The sum of two whole numbers is a whole number of at most 64 bits. If one has a fraction or an exponent, the
//! decimals are added exactly. The sum counts only if a reader with double precision gets it back unchanged: 15 digits
//! always do, more than 17 never. Every other sum is refused rather than rounded.

use std::cmp::Ordering;

/// Maximum number of digits and maximum exponent that are considered. No double has more.
const MOST: usize = 400;
/// Maximum length of a sum as a plain decimal. A longer one is written with an exponent.
const PLAIN: usize = 40;

/// Returns the sum of two JSON numbers; `None` when it cannot be exact.
pub(crate) fn add(a: &str, b: &str) -> Option<String> {
    if is_whole(a) && is_whole(b) {
        let sum = whole(a)?.checked_add(whole(b)?)?;
        let fits = i64::try_from(sum).is_ok() || u64::try_from(sum).is_ok();
        return fits.then(|| sum.to_string());
    }
    let (a, b) = (Decimal::read(a)?, Decimal::read(b)?);
    let sum = a.plus(&b)?;
    let double = sum.double()?;
    let plain = sum.plain(a.scale().max(b.scale()).max(1));
    Some(plain.unwrap_or(double))
}

/// Returns whether a reader with 64-bit numbers gets the number back unchanged.
pub(crate) fn survives(text: &str) -> bool {
    if is_whole(text) {
        return whole(text).is_some();
    }
    Decimal::read(text).is_some_and(|decimal| decimal.double().is_some())
}

fn is_whole(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// Parses a whole number of 64 bits into a type wide enough for the sum of any two.
fn whole(text: &str) -> Option<i128> {
    let signed = text.parse::<i64>().map(i128::from);
    signed.or_else(|_| text.parse::<u64>().map(i128::from)).ok()
}

/// `±digits × 10^exponent`. Digits are values from 0 to 9, the highest first.
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Parses a JSON number; `None` when it has too many digits or too large an exponent.
    fn read(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if before.len() + after.len() > MOST || exponent.unsigned_abs() > MOST as u64 {
            return None;
        }
        let digits =
            before.bytes().chain(after.bytes()).map(|byte| byte.wrapping_sub(b'0')).collect::<Vec<_>>();
        let exponent = exponent - i64::try_from(after.len()).ok()?;
        digits.iter().all(|digit| *digit < 10).then_some(Self { negative, digits, exponent })
    }

    /// Returns the number of digits after the point.
    fn scale(&self) -> usize {
        usize::try_from(-self.exponent).unwrap_or(0)
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.aligned(exponent)?, other.aligned(exponent)?);
        let length = a.len().max(b.len());
        let (a, b) = (padded(a, length), padded(b, length));
        let (digits, negative) = if self.negative == other.negative {
            (sum(&a, &b), self.negative)
        } else {
            match a.cmp(&b) {
                Ordering::Less => (difference(&b, &a), other.negative),
                Ordering::Equal => (vec![0], false),
                Ordering::Greater => (difference(&a, &b), self.negative),
            }
        };
        Some(Self { negative, digits, exponent })
    }

    /// Returns the digits, padded with trailing zeros down to an exponent.
    fn aligned(&self, exponent: i64) -> Option<Vec<u8>> {
        let zeros = usize::try_from(self.exponent - exponent).ok()?;
        let mut digits = self.digits.clone();
        digits.extend(std::iter::repeat_n(0, zeros));
        Some(digits)
    }

    /// Returns the shortest text of the nearest double; `None` when that text is a different number.
    fn double(&self) -> Option<String> {
        let text = format!("{}{}e{}", self.sign(), text_of(&self.digits), self.exponent);
        let number = serde_json::Number::from_f64(text.parse().ok()?)?.to_string();
        let read = Self::read(&number)?;
        (read.normal() == self.normal()).then_some(number)
    }

    /// Returns a plain decimal with `scale` digits after the point; `None` when it would be longer than [`PLAIN`].
    fn plain(&self, scale: usize) -> Option<String> {
        let behind = i64::try_from(scale).ok()?;
        let digits = self.aligned(self.exponent.min(-behind))?;
        let digits = padded(digits, scale + 1);
        let (before, after) = digits.split_at_checked(digits.len().checked_sub(scale)?)?;
        let text = format!("{}{}.{}", self.sign(), text_of(leading(before)), text_of(after));
        (text.len() <= PLAIN).then_some(text)
    }

    fn sign(&self) -> &'static str {
        if self.negative && self.digits.iter().any(|digit| *digit > 0) { "-" } else { "" }
    }

    /// Returns the sign, the digits without surrounding zeros, and the exponent. Equal numbers have equal results.
    fn normal(&self) -> (&'static str, &[u8], i64) {
        let end = self.digits.iter().rposition(|digit| *digit > 0).map_or(0, |last| last + 1);
        let (kept, zeros) = self.digits.split_at_checked(end).unwrap_or((&self.digits, &[]));
        let start = kept.iter().position(|digit| *digit > 0).unwrap_or(kept.len());
        let kept = kept.get(start..).unwrap_or_default();
        let exponent = self.exponent + i64::try_from(zeros.len()).unwrap_or(i64::MAX);
        (self.sign(), kept, if kept.is_empty() { 0 } else { exponent })
    }
}

fn padded(digits: Vec<u8>, length: usize) -> Vec<u8> {
    let zeros = length.saturating_sub(digits.len());
    std::iter::repeat_n(0, zeros).chain(digits).collect()
}

/// Removes leading zeros, but keeps the last digit.
fn leading(digits: &[u8]) -> &[u8] {
    let start = digits.iter().position(|digit| *digit > 0).unwrap_or(digits.len().saturating_sub(1));
    digits.get(start..).unwrap_or_default()
}

fn text_of(digits: &[u8]) -> String {
    digits.iter().map(|digit| char::from(b'0' + digit)).collect()
}

/// Adds two numbers of the same length.
fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let mut digits: Vec<u8> = (a.iter().zip(b).rev())
        .map(|(a, b)| {
            let sum = a + b + carry;
            carry = sum / 10;
            sum % 10
        })
        .collect();
    digits.push(carry);
    digits.reverse();
    digits
}

/// Subtracts `b` from `a`. Both have the same length, and `a` is not less than `b`.
fn difference(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut borrow = 0;
    let mut digits: Vec<u8> = (a.iter().zip(b).rev())
        .map(|(a, b)| {
            let left = a + 10 - b - borrow;
            borrow = u8::from(left < 10);
            left % 10
        })
        .collect();
    digits.reverse();
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{add, survives};

    fn sum(a: &str, b: &str) -> Option<String> {
        let there = add(a, b);
        assert_eq!(there, add(b, a), "{a} + {b}");
        there
    }

    #[test]
    fn d16_sums_are_exact() {
        for (a, b, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.50", "11.00"),
            ("1", "0.5", "1.5"),
            ("-0.5", "0.5", "0.0"),
            ("0.25", "-1", "-0.75"),
            ("1e2", "1", "101.0"),
            ("2.5e-3", "1e-3", "0.0035"),
            ("2251799813685248", "0.5", "2251799813685248.5"),
            ("1e300", "1e300", "2e+300"),
            ("1e-300", "1e-300", "2e-300"),
            ("-9223372036854775808", "18446744073709551615", "9223372036854775807"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} + {b}");
        }
    }

    #[test]
    fn d16_sums_that_would_be_rounded_are_refused() {
        for (a, b) in [
            ("9007199254740993", "0.5"),
            ("12345678901234567.89", "0.01"),
            ("1e300", "1.0"),
            ("1e-400", "1"),
            ("1e400", "1"),
            ("1.7976931348623157e308", "1.7976931348623157e308"),
            ("18446744073709551615", "1"),
            ("123456789012345678901", "1"),
            ("0.1", "1e999999999999999999999"),
        ] {
            assert_eq!(sum(a, b), None, "{a} + {b}");
        }
    }

    #[test]
    fn d16_numbers_that_readers_round_are_known() {
        for text in ["0", "-0.0", "1e300", "0.1", "1.50", "18446744073709551615", "5e-324"] {
            assert!(survives(text), "{text}");
        }
        for text in
            ["12345678901234567.89", "1e-400", "1e400", "18446744073709551616", "0.1000000000000000055"]
        {
            assert!(!survives(text), "{text}");
        }
    }

    proptest! {
        /// Cents as fractions add like cents as whole numbers.
        #[test]
        fn d16_decimals_add_like_whole_numbers(a in -99_999_999_999_i64..=99_999_999_999, b in -99_999_999_999_i64..=99_999_999_999) {
            let text = |n: i64| format!("{}{}.{:02}", if n < 0 { "-" } else { "" }, n.abs() / 100, n.abs() % 100);
            prop_assert_eq!(sum(&text(a), &text(b)), Some(text(a + b)));
        }
    }
}

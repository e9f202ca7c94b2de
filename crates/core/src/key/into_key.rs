//! Conversions to keys and arguments: texts, numbers and tuples.

use uuid::Uuid;

use super::{Arg, Key};
use crate::error::InvalidInput;

/// A value that can be the argument of a key: a text, a number, a truth value or a UUID.
pub trait IntoArg {
    /// Converts the value.
    ///
    /// # Errors
    /// [`InvalidInput::Name`] when a number does not fit 64 bits with a sign.
    fn into_arg(self) -> Result<Arg, InvalidInput>;
}

macro_rules! infallible {
    ($($from:ty),*) => {$(
        impl IntoArg for $from {
            fn into_arg(self) -> Result<Arg, InvalidInput> {
                Ok(self.into())
            }
        }
    )*};
}
infallible!(Arg, &str, String, &String, Uuid, i64, i32, u32);

macro_rules! numbers {
    ($($from:ty),*) => {$(
        impl IntoArg for $from {
            fn into_arg(self) -> Result<Arg, InvalidInput> {
                i64::try_from(self).map(Arg::Int).map_err(|_| {
                    let reason = "the number does not fit 64 bits with a sign; pass it as text";
                    InvalidInput::name("argument", &self.to_string(), reason)
                })
            }
        }
    )*};
}
numbers!(i8, i16, i128, isize, u8, u16, u64, u128, usize);

impl IntoArg for bool {
    fn into_arg(self) -> Result<Arg, InvalidInput> {
        Ok(Arg::from(if self { "true" } else { "false" }))
    }
}

impl IntoArg for &Arg {
    fn into_arg(self) -> Result<Arg, InvalidInput> {
        Ok(self.clone())
    }
}

/// A value that names an entity: a text is a key without arguments, a tuple is a kind with arguments.
///
/// An invalid key is reported by the operation that uses it.
///
/// ```
/// use tidelock_core::key::{IntoKey, Key};
///
/// assert_eq!("nightly".into_key()?, Key::single("nightly")?);
/// assert_eq!(("cart", "ann").into_key()?, Key::new("cart", ["ann"])?);
/// assert_eq!(("page", "docs", 7_u64).into_key()?.to_string(), r#"page("docs", 7)"#);
/// # Ok::<(), tidelock_core::error::InvalidInput>(())
/// ```
pub trait IntoKey {
    /// Converts the value.
    ///
    /// # Errors
    /// [`InvalidInput`] when the kind is empty, the key is too long, or a number does not fit.
    fn into_key(self) -> Result<Key, InvalidInput>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, InvalidInput> {
        Ok(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, InvalidInput> {
        Ok(self.clone())
    }
}

impl IntoKey for Result<Key, InvalidInput> {
    fn into_key(self) -> Result<Key, InvalidInput> {
        self
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, InvalidInput> {
        Key::single(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, InvalidInput> {
        Key::single(&self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, InvalidInput> {
        Key::single(self)
    }
}

macro_rules! tuples {
    ($(($($arg:ident $index:tt),+))*) => {$(
        impl<K: AsRef<str>, $($arg: IntoArg),+> IntoKey for (K, $($arg),+) {
            fn into_key(self) -> Result<Key, InvalidInput> {
                Key::of(self.0.as_ref(), &[$(self.$index.into_arg()?),+])
            }
        }
    )*};
}
tuples! {
    (A 1)
    (A 1, B 2)
    (A 1, B 2, C 3)
    (A 1, B 2, C 3, D 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_tuples_are_keys() {
        let id = Uuid::nil();
        for (key, text) in [
            ("nightly".into_key(), "nightly()".to_owned()),
            (("cart", "ann").into_key(), r#"cart("ann")"#.to_owned()),
            (("cart", String::from("ann"), 3_u8).into_key(), r#"cart("ann", 3)"#.to_owned()),
            (("flag", true, -1_i8, 9_usize).into_key(), r#"flag("true", -1, 9)"#.to_owned()),
            ((String::from("run"), id).into_key(), Key::of("run", &[id.into()]).unwrap().to_string()),
        ] {
            assert_eq!(key.unwrap(), text.parse().unwrap());
        }
    }

    #[test]
    fn invalid_parts_are_errors() {
        assert!(matches!(("n", u64::MAX).into_key(), Err(InvalidInput::Name { .. })));
        assert!("".into_key().is_err() && ("", 1).into_key().is_err());
        assert!(("n", "x".repeat(2_000)).into_key().is_err());
    }
}

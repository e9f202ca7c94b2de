//! Tests of payload equality, and of numbers that only text can represent.

use super::Payload;
use super::numbers::first_rounded;

fn json(text: &str) -> Payload {
    Payload::from_json(text).unwrap()
}

#[test]
fn numbers_beyond_64_bits_are_found_outside_strings() {
    let fit = [
        "0",
        "[-9223372036854775808,18446744073709551615]",
        r#"{"123456789012345678901":"123456789012345678901"}"#,
        r#"["\"123456789012345678901","\\",1]"#,
        "[1e300,1234567890.5,0.1,1.50]",
        "\"é\\u00e9\"",
        "null",
    ];
    for text in fit {
        assert_eq!(first_rounded(text), None, "{text}");
    }
    let wide = [
        ("123456789012345678901", "123456789012345678901"),
        ("[1, 18446744073709551616]", "18446744073709551616"),
        (r#"{"a":"\\","b":-9223372036854775809}"#, "-9223372036854775809"),
        ("[0.5,12345678901234567.89]", "12345678901234567.89"),
        (r#"{"a":1e-400}"#, "1e-400"),
    ];
    for (text, token) in wide {
        assert_eq!(first_rounded(text), Some(token), "{text}");
    }
}

#[test]
fn equality_ignores_spacing_and_order_but_never_a_digit() {
    assert_eq!(json(r#"{"a":1,"b":2}"#), json(r#"{ "b": 2, "a": 1 }"#));
    assert_ne!(json("123456789012345678901"), json("123456789012345678902"));
    assert_eq!(json("[123456789012345678901]"), json("[123456789012345678901]"));
    assert_ne!(json("[123456789012345678901]"), json("[ 123456789012345678901 ]"), "only by their text");
    assert_ne!(json("18446744073709551616"), json("18446744073709551616.0"));
}

//! Tests of the source reader: blanking, function boundaries, and removal of test code.

use super::{Function, code, functions, without_tests};

#[test]
fn comments_and_literals_are_blanked_in_place() {
    let cases = [
        ("let a = 1; // { \"x\"", "let a = 1;         "),
        ("f(\"a{b\\\"c\", 'x')", "f(\"      \", ' ')"),
        ("/* { /* } */ */ g()", "                g()"),
        ("'\\'' '{' &'a str", "'  ' ' ' &'a str"),
        ("r\"{\" r#\"a\"b\"# bar\"{\"", "r\" \" r#\"    # bar\" \""),
        ("b\"{\" c", "b\" \" c"),
    ];
    for (text, expected) in cases {
        assert_eq!(code(text), expected, "{text}");
    }
}

#[test]
fn lines_stay_where_they_are() {
    let text = "a\n/* {\n{ */ b\n\"c\n{\" d\n";
    let blanked = code(text);
    assert_eq!(blanked.lines().count(), text.lines().count());
    assert!(!blanked.contains('{'));
    assert!(blanked.ends_with("\" d\n"));
}

#[test]
fn unfinished_text_does_not_hang() {
    for text in ["\"abc", "/* abc", "'\\", "r#\"abc", "'", "\"\\"] {
        assert_eq!(code(text).chars().count(), text.chars().count(), "{text}");
    }
}

#[test]
fn functions_are_measured_between_their_first_and_last_line() {
    let text =
        "pub(crate) async fn a() {\n  1;\n  2;\n}\ntrait T {\n  fn b();\n  fn c(x: [u8; 4]) -> u8 { 1 }\n}\n";
    let found = functions(&code(text));
    let expected = [("a", 1, 2), ("c", 7, 1)];
    let expected = expected.map(|(name, line, length)| Function { name: name.to_owned(), line, length });
    assert_eq!(found, expected);
}

#[test]
fn words_that_only_look_like_functions_are_none() {
    assert_eq!(functions(&code("let f: fn(u8) = x;\nlet s = \"fn a() {}\";\n// fn b() {}\n")), []);
}

#[test]
fn tests_are_left_out() {
    let text =
        "fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod more;\nfn d() {}";
    assert_eq!(without_tests(text), "fn a() {}\n\n\n\n\nfn c() {}\n\n\nfn d() {}");
}

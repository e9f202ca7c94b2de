//! Which phrases are counted, and in which parts of which files.

use super::super::super::tree::Tree;
use super::{count, hits};

#[test]
fn phrases_are_counted() {
    for (text, expected) in [
        ("The writer commits the group.", 0),
        ("Nobody is told, and everybody hears it.", 4),
        ("It goes on to the next row; then it goes on.", 1),
        ("The number stands for itself. It stands.", 1),
        ("What opens a sentence: What follows. What is Tidelock?", 2),
        ("It ends with 5, and begins by itself.", 2),
        ("To be, had it been so.", 0),
    ] {
        assert_eq!(hits(text), expected, "{text}");
    }
}

#[test]
fn code_and_tests_are_no_prose() {
    let counts = |path: &str, text: &str| {
        let counts = count(&Tree::of(&[(path, text)]));
        (counts.lines, counts.hits())
    };
    assert_eq!(counts("a.md", "```text\nnobody\n```\nthe `nobody` word\n"), (1, 0));
    assert_eq!(counts("a.rs", "//! Nobody\nlet a = \"nobody is at home\"; // nobody\n"), (3, 3));
    assert_eq!(counts("a/tests/b.rs", "let a = \"nobody is at home\";\n"), (0, 0));
    assert_eq!(counts("a.sql", "-- nobody\nSELECT 'nobody';\n"), (1, 1));
    assert_eq!(counts("a/vendor/b.js", "// nobody\n"), (0, 0));
}

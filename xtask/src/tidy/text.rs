//! Rules about lines: opening comments, blanks, markers of unfinished work, machine-specific paths, unwraps.

use super::Finding;
use super::source;
use super::tree::{File, Tree};

/// The number of lines at the top of a file within which its `//!` must start.
const OPENING_LINES: usize = 5;

/// Checks that every Rust file opens with a comment about its responsibility.
pub(super) fn opening_comment(tree: &Tree) -> Vec<Finding> {
    let opens = |file: &File| file.text.lines().take(OPENING_LINES).any(|line| line.starts_with("//!"));
    let missing = tree.rust().filter(|file| !opens(file));
    let message = "the file does not open with //!: say what it owns and what it must never do";
    missing.map(|file| Finding::error(&file.path, 1, "opening-comment", message)).collect()
}

/// Rejects tabs, and blanks at the end of a line.
pub(super) fn blanks(tree: &Tree) -> Vec<Finding> {
    lines(tree, |line| {
        if line.contains('\t') {
            return Some(("blanks", "a tab: use spaces".to_owned()));
        }
        line.ends_with(' ').then(|| ("blanks", "blanks at the end of the line: remove them".to_owned()))
    })
}

/// The words that mark unfinished work, written in two parts so that this file does not contain them.
const MARKERS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Rejects markers of unfinished work, which belongs into an issue and not into a comment.
pub(super) fn markers(tree: &Tree) -> Vec<Finding> {
    lines(tree, |line| {
        let marker = MARKERS.iter().find(|marker| has_word(line, marker))?;
        Some(("markers", format!("{marker}: do it now, or open an issue and remove the marker")))
    })
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The prefixes of machine-specific paths.
const WORKSHOP: &[&str] = &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Rejects paths on the author's machine.
pub(super) fn workshop_paths(tree: &Tree) -> Vec<Finding> {
    lines(tree, |line| {
        let path = WORKSHOP.iter().find(|path| line.contains(**path))?;
        Some(("workshop-paths", format!("{path} is a place on one machine: use a relative path")))
    })
}

/// Applies a check to every line of every text file of this project.
fn lines(tree: &Tree, check: impl Fn(&str) -> Option<(&'static str, String)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| is_written(file)) {
        for (number, line) in file.lines() {
            if let Some((rule, message)) = check(line) {
                findings.push(Finding::error(&file.path, number, rule, message));
            }
        }
    }
    findings
}

fn is_written(file: &File) -> bool {
    const EXTENSIONS: &[&str] = &["rs", "md", "toml", "sql", "txt", "yml", "html", "css", "js"];
    // Vendored files stay unchanged, because their digests are checked.
    let theirs = file.path.contains("/vendor/");
    !theirs && EXTENSIONS.iter().any(|extension| file.has_extension(extension))
        || file.path.starts_with(".ci/")
}

/// Rejects `unwrap` and `expect` outside tests, which must return typed errors. Unlike the lints, this rule also covers code that is not
/// compiled.
pub(super) fn unwraps(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test() && !is_excepted(tree, file)) {
        for (i, line) in source::without_tests(&file.code).lines().enumerate() {
            if line.contains(".unwrap()") || line.contains(".expect(") {
                let message = "unwrap or expect outside tests: return a typed error";
                findings.push(Finding::error(&file.path, i + 1, "unwraps", message));
            }
        }
    }
    findings
}

/// Returns whether the file or its crate has a lint exception with a reason. A test kit fails by panicking, for example.
fn is_excepted(tree: &Tree, file: &File) -> bool {
    let states =
        |file: &File| file.code.contains("clippy::unwrap_used") || file.code.contains("clippy::expect_used");
    let roots = file
        .path
        .split_once("/src/")
        .map(|(package, _)| ["lib", "main"].map(|n| format!("{package}/src/{n}.rs")));
    states(file) || roots.into_iter().flatten().filter_map(|root| tree.file(&root)).any(states)
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::{blanks, markers, opening_comment, unwraps, workshop_paths};

    #[test]
    fn a_file_opens_with_its_purpose() {
        check(opening_comment, &[("a.rs", "//! Owns a.\n")], &[]);
        check(opening_comment, &[("build.rs", "fn main() {}\n")], &["build.rs:1"]);
        check(opening_comment, &[("a.rs", "\n\n\n\n\n\n//! Too late.\n")], &["a.rs:1"]);
        check(opening_comment, &[("a.md", "text")], &[]);
    }

    #[test]
    fn tabs_and_trailing_blanks_are_found() {
        check(blanks, &[("a.md", "a\nb \n\tc\n")], &["a.md:2", "a.md:3"]);
        check(blanks, &[("a.rs", "    a\n")], &[]);
        check(blanks, &[("a.bin", "b \n")], &[]);
    }

    #[test]
    fn markers_are_found_as_words() {
        let text = format!("// {}: later\nlet todo = 1;\n", super::MARKERS[0]);
        check(markers, &[("a.rs", &text)], &["a.rs:1"]);
        check(markers, &[("a.rs", "// TODOS and TLXXXX are other words\n")], &[]);
    }

    #[test]
    fn places_on_one_machine_are_found() {
        let text = format!("see {}me/notes\n", super::WORKSHOP[1]);
        check(workshop_paths, &[("a.md", &text)], &["a.md:1"]);
        check(workshop_paths, &[("a.md", "see docs/notes\n")], &[]);
    }

    #[test]
    fn unwraps_are_found_outside_tests() {
        let code = "fn a() { b().unwrap(); }\n// .unwrap()\n#[cfg(test)]\nmod tests {\n  fn c() { d().unwrap(); }\n}\n";
        check(unwraps, &[("a.rs", code)], &["a.rs:1"]);
        check(unwraps, &[("a/tests/b.rs", code), ("a/tests.rs", code)], &[]);
        check(unwraps, &[("a.rs", "fn a() { b().expect(\"c\") }")], &["a.rs:1"]);
        check(unwraps, &[("a.rs", "fn a() { b().unwrap_or(1) }\n#[expect(dead_code)]\n")], &[]);
    }

    #[test]
    fn a_reason_for_the_lints_is_a_reason_here() {
        let code = "#![expect(clippy::unwrap_used, reason = \"a test kit\")]\nfn a() { b().unwrap(); }\n";
        check(unwraps, &[("a/src/lib.rs", code), ("a/src/b/c.rs", "fn a() { b().unwrap(); }\n")], &[]);
        check(
            unwraps,
            &[("a/src/lib.rs", ""), ("a/src/b.rs", "fn a() { b().unwrap(); }\n")],
            &["a/src/b.rs:1"],
        );
    }
}

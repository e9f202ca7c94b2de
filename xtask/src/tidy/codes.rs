//! Rule about error codes: every code has a page, every page has a code, and the list and the book contain all of them.

use std::collections::BTreeMap;

use super::Finding;
use super::source;
use super::tree::{File, Tree};

const PAGES: &str = "crates/core/errors";
const LIST: &str = "crates/core/src/error/pages.rs";
const BOOK: &str = "docs/errors.md";

/// Checks that the codes in the source, the pages in the directory, the list that programs print from, and the book agree.
pub(super) fn pages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let used = used(tree);
    for (code, (path, line)) in &used {
        if tree.file(&page(code)).is_none() {
            let message = format!("{code} has no page: write {PAGES}/{code}.md");
            findings.push(Finding::error(path, *line, "error-pages", message));
        }
    }
    let (list, book) = (text(tree, LIST), text(tree, BOOK));
    for file in tree.below(PAGES) {
        let code = file.name().strip_suffix(".md").unwrap_or(file.name());
        let mut complain =
            |message: String| findings.push(Finding::error(&file.path, 1, "error-pages", message));
        if !used.contains_key(code) {
            complain(format!("no error has the code {code}: remove the page"));
        }
        if !file.text.starts_with(&format!("# {code}: ")) {
            complain(format!("the page must begin with `# {code}: `"));
        }
        if !list.contains(&format!("\"{code}\"")) {
            complain(format!("{LIST} does not list {code}: add it"));
        }
        if !book.contains(&format!("/{code}.md}}}}")) {
            complain(format!("{BOOK} does not include {code}: add it"));
        }
    }
    findings
}

fn page(code: &str) -> String {
    format!("{PAGES}/{code}.md")
}

fn text<'a>(tree: &'a Tree, path: &str) -> &'a str {
    tree.file(path).map_or("", |file| file.text.as_str())
}

/// Returns each code that the sources use as a literal outside tests, with the location of its first use.
fn used(tree: &Tree) -> BTreeMap<&str, (&str, usize)> {
    let mut used = BTreeMap::new();
    let sources = tree.below("crates").filter(|file| file.path.contains("/src/") && file.has_extension("rs"));
    for file in sources.filter(|file| !file.is_test() && file.path != LIST) {
        for (line, code) in codes(file) {
            used.entry(code).or_insert((file.path.as_str(), line));
        }
    }
    used
}

/// Returns the literals `"TLdddd"` in the code of a file, outside tests.
fn codes(file: &File) -> Vec<(usize, &str)> {
    let code = source::without_tests(&file.code);
    let mut kept = code.lines();
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let is_code = kept.next().is_some_and(|blanked| blanked.contains('"'));
        let literals = line.split('"').skip(1).step_by(2);
        found.extend(literals.filter(|text| is_code && is_error_code(text)).map(|text| (number, text)));
    }
    found
}

fn is_error_code(text: &str) -> bool {
    let digits = text.strip_prefix("TL");
    digits.is_some_and(|digits| digits.len() == 4 && digits.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, findings};
    use super::pages;

    const USE: (&str, &str) =
        ("crates/core/src/error.rs", "fn a() -> &str {\n  \"TL0101\"\n}\n// \"TL0999\"\n");
    const PAGE: (&str, &str) = ("crates/core/errors/TL0101.md", "# TL0101: a key is not valid\n");
    const LIST: (&str, &str) = (super::LIST, "pages![\"TL0101\"]");
    const BOOK: (&str, &str) = (super::BOOK, "{{#include ../crates/core/errors/TL0101.md}}\n");

    #[test]
    fn codes_and_pages_agree() {
        check(pages, &[USE, PAGE, LIST, BOOK], &[]);
    }

    #[test]
    fn missing_codes_are_named() {
        check(pages, &[USE, LIST, BOOK], &["crates/core/src/error.rs:2"]);
        for (files, message) in [
            (vec![PAGE, LIST, BOOK], "no error has the code TL0101"),
            (vec![USE, PAGE, BOOK], "does not list TL0101"),
            (vec![USE, PAGE, LIST], "does not include TL0101"),
            (vec![USE, (PAGE.0, "# Keys\n"), LIST, BOOK], "must begin with `# TL0101: `"),
        ] {
            let found = findings(pages, &files);
            assert!(found.len() == 1 && found.concat().contains(message), "{message}: {found:#?}");
        }
    }

    #[test]
    fn codes_in_tests_do_not_count() {
        let tests = (
            "crates/core/src/x.rs",
            "fn a() {}\n#[cfg(test)]\nmod tests {\n  const C: &str = \"TL9999\";\n}\n",
        );
        check(pages, &[USE, PAGE, LIST, BOOK, tests], &[]);
    }
}

//! Rules about Markdown documents: valid links, a complete table of contents of the book, and code that compiles.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{self, File, Tree};

const BOOK: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
/// The records of decisions are chapters below this page, which lists them. The table of contents has only the page.
const DECISIONS: &str = "docs/decisions/README.md";

/// Checks that the target of every link to a local file or heading exists. Pages of the book link only to other pages of the book.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, target) in targets(file) {
            if let Some(message) = objection(tree, file, target) {
                findings.push(Finding::error(&file.path, line, "links", message));
            }
        }
    }
    findings
}

fn objection(tree: &Tree, file: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) =
        target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let resolved = if path.is_empty() { Some(file.path.clone()) } else { tree::resolve(&file.path, path) };
    let Some(resolved) = resolved.filter(|resolved| tree.has(resolved)) else {
        return Some(format!("{target} does not exist: correct the link"));
    };
    let in_book = |path: &str| path.starts_with(&format!("{BOOK}/"));
    if in_book(&file.path) && !in_book(&resolved) {
        return Some(format!("{target} is not in the book: link to its address in the repository"));
    }
    let page = tree.file(&resolved)?;
    let heading = heading.filter(|heading| !headings(tree, page).contains(*heading))?;
    Some(format!("{resolved} has no heading #{heading}: correct the link"))
}

/// Returns the lines of a document outside code blocks, with their numbers.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// Returns the targets of all links, with their lines: `[text](target)`, `[name]: target`.
fn targets(file: &File) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(file) {
        if let Some((_, target)) = line.split_once("]: ").filter(|_| line.starts_with('[')) {
            found.push((number, target.trim()));
        }
        let outside_code = line.split('`').step_by(2);
        for part in outside_code.flat_map(|part| part.split("](").skip(1)) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target));
        }
    }
    found.retain(|(_, target)| !target.is_empty());
    found
}

/// Returns the anchors of all headings, including those of included files.
fn headings(tree: &Tree, file: &File) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(file) {
        if let Some(title) = line.strip_prefix('#') {
            found.insert(anchor(title.trim_start_matches('#').trim()));
        } else if let Some(included) = included(line).and_then(|path| tree::resolve(&file.path, path)) {
            found.extend(tree.file(&included).map(|page| headings(tree, page)).unwrap_or_default());
        }
    }
    found
}

fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("{{#include ")?.strip_suffix("}}").map(str::trim)
}

/// Returns whether the target of an include exists: a file, or the part of a file between `ANCHOR: name` and `ANCHOR_END: name`.
fn includes_something(tree: &Tree, page: &File, target: &str) -> bool {
    let (path, part) = target.split_once(':').map_or((target, None), |(path, part)| (path, Some(part)));
    let Some(file) = tree::resolve(&page.path, path).and_then(|path| tree.file(&path)) else { return false };
    let has = |mark: &str| file.lines().any(|(_, line)| line.trim_start().strip_prefix("// ") == Some(mark));
    part.is_none_or(|part| has(&format!("ANCHOR: {part}")) && has(&format!("ANCHOR_END: {part}")))
}

/// Returns the anchor of a heading, as mdBook and GitHub generate it.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// Checks that the table of contents lists every page of the book, that the list of decisions has every record, and that every
/// included file exists.
pub(super) fn book_pages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = tree.file(SUMMARY).map(listed).unwrap_or_default();
    let decisions = tree.file(DECISIONS).map(listed).unwrap_or_default();
    for file in tree.below(BOOK).filter(|file| file.has_extension("md")) {
        let is_record = file.path.starts_with("docs/decisions/") && file.path != DECISIONS;
        let (list, found) = if is_record { (DECISIONS, &decisions) } else { (SUMMARY, &pages) };
        if file.path != SUMMARY && !found.contains(&file.path) {
            let message = format!("the page is not in the book: add it to {list}");
            findings.push(Finding::error(&file.path, 1, "book-pages", message));
        }
        for (line, target) in file.lines().filter_map(|(line, text)| Some((line, included(text)?))) {
            if !includes_something(tree, file, target) {
                let message = format!("{target} does not exist: correct the include");
                findings.push(Finding::error(&file.path, line, "book-pages", message));
            }
        }
    }
    findings
}

/// Returns the paths that a page links to.
fn listed(page: &File) -> BTreeSet<String> {
    targets(page).into_iter().filter_map(|(_, target)| tree::resolve(&page.path, target)).collect()
}

/// Rejects code blocks marked `ignore`, so that all Rust code is compiled.
pub(super) fn ignored_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, text) in file.lines() {
            let words = text.trim_start().strip_prefix("```").unwrap_or_default();
            if words.split([',', ' ']).any(|word| word.trim() == "ignore") {
                let message = "the block is not compiled: complete it with hidden lines (`# `), and say no_run where it cannot run";
                findings.push(Finding::error(&file.path, line, "ignored-code", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, findings};
    use super::{anchor, book_pages, ignored_code, links};

    #[test]
    fn blocks_that_are_not_compiled_are_found() {
        let text =
            "```rust,ignore\nlet x = ;\n```\n\n```rust,no_run\n// ignore\n```\n\n```text\nignore\n```\n";
        check(ignored_code, &[("docs/a.md", text)], &["docs/a.md:1"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](docs/a.md) [b](docs/b.md \"title\")\n[web](https://example.org)\n\n[c]: gone.md\n";
        check(links, &[("README.md", text), ("docs/a.md", "")], &["README.md:1", "README.md:4"]);
        check(links, &[("README.md", "[d](docs)\n"), ("docs/a.md", "")], &[]);
    }

    #[test]
    fn code_is_not_read_as_links() {
        let text = "`[a](gone.md)`\n```text\n[b](gone.md)\n```\nx `y` [c](gone.md)\n";
        check(links, &[("README.md", text)], &["README.md:5"]);
    }

    #[test]
    fn headings_must_exist_also_in_included_pages() {
        let page = ("docs/errors.md", "# Errors\n\n{{#include ../crates/core/errors/TL0101.md}}\n");
        let error = ("crates/core/errors/TL0101.md", "# TL0101: a key is not valid\n");
        let good = ("docs/a.md", "[a](errors.md#tl0101-a-key-is-not-valid) [b](#here)\n## Here\n");
        check(links, &[page, error, good], &[]);
        check(links, &[page, error, ("docs/a.md", "[a](errors.md#gone)\n")], &["docs/a.md:1"]);
    }

    #[test]
    fn the_book_links_only_to_itself() {
        let files = [("docs/a.md", "[a](../README.md)\n"), ("README.md", "")];
        assert!(findings(links, &files).concat().contains("is not in the book"));
    }

    #[test]
    fn anchors_are_made_as_in_the_book() {
        assert_eq!(anchor("TL0101: a key is not valid"), "tl0101-a-key-is-not-valid");
        assert_eq!(anchor("What `apply` does"), "what-apply-does");
    }

    #[test]
    fn every_page_is_in_the_table_of_contents() {
        let summary = ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n");
        check(book_pages, &[summary, ("docs/a.md", "")], &[]);
        check(book_pages, &[summary, ("docs/a.md", ""), ("docs/b.md", "")], &["docs/b.md:1"]);
    }

    #[test]
    fn every_record_is_in_the_list_of_decisions() {
        let summary = ("docs/SUMMARY.md", "- [D](decisions/README.md)\n");
        let list = ("docs/decisions/README.md", "- [1](0001-a.md)\n");
        let record = ("docs/decisions/0001-a.md", "");
        check(book_pages, &[summary, list, record], &[]);
        check(
            book_pages,
            &[summary, list, record, ("docs/decisions/0002-b.md", "")],
            &["docs/decisions/0002-b.md:1"],
        );
    }

    #[test]
    fn includes_must_exist() {
        let summary = ("docs/SUMMARY.md", "- [A](a.md)\n");
        check(book_pages, &[summary, ("docs/a.md", "\n{{#include ../gone.md}}\n")], &["docs/a.md:2"]);
        let program = ("a.rs", "//! A.\n// ANCHOR: b\nfn b() {}\n// ANCHOR_END: b\n");
        let page = ("docs/a.md", "{{#include ../a.rs:b}}\n{{#include ../a.rs:c}}\n{{#include ../a.rs}}\n");
        check(book_pages, &[summary, program, page], &["docs/a.md:2"]);
    }
}

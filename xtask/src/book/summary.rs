//! The pages of the book, in the order of the table of contents.

use std::path::Path;

use anyhow::{Context as _, Result};

/// A page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The part of the book, such as `How-to`.
    pub(super) part: String,
    /// The title in the table of contents.
    pub(super) title: String,
    /// The path below `docs`.
    pub(super) path: String,
    /// The text, with its includes.
    pub(super) text: String,
}

/// Reads the pages that `SUMMARY.md` lists.
pub(super) fn pages(docs: &Path) -> Result<Vec<Page>> {
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md"))?;
    entries(&summary).into_iter().map(|(part, title, path)| read(docs, part, title, path)).collect()
}

fn read(docs: &Path, part: String, title: String, path: String) -> Result<Page> {
    let file = docs.join(&path);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
    let directory = file.parent().unwrap_or(docs);
    let lines: Result<Vec<String>> = text.lines().map(|line| included(directory, line)).collect();
    Ok(Page { part, title, path, text: lines?.join("\n") })
}

/// Returns a line, or the file that it includes, or the part of that file behind the colon.
fn included(directory: &Path, line: &str) -> Result<String> {
    let target = line.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
    let Some(target) = target.map(str::trim) else { return Ok(line.to_owned()) };
    let (path, name) = target.split_once(':').map_or((target, None), |(path, name)| (path, Some(name)));
    let text =
        std::fs::read_to_string(directory.join(path)).with_context(|| format!("cannot include {target}"))?;
    Ok(name.map_or(text.clone(), |name| anchored(&text, name)))
}

/// Returns the lines between `ANCHOR: name` and `ANCHOR_END: name`, without the anchors of other parts, as mdBook does.
fn anchored(text: &str, name: &str) -> String {
    let names = |line: &str, word: &str| line.split_once(word).is_some_and(|(_, rest)| rest.trim() == name);
    let after = text.lines().skip_while(|line| !names(line, "ANCHOR: ")).skip(1);
    let part = after.take_while(|line| !names(line, "ANCHOR_END: "));
    let lines: Vec<&str> =
        part.filter(|line| !line.contains("ANCHOR: ") && !line.contains("ANCHOR_END: ")).collect();
    lines.join("\n")
}

/// Returns the part, title and path of each entry that has a page. Entries before the first part belong to the part `Start`.
fn entries(summary: &str) -> Vec<(String, String, String)> {
    let mut part = "Start".to_owned();
    let mut found = Vec::new();
    for line in summary.lines() {
        if let Some(title) = line.strip_prefix("# ").filter(|title| *title != "Summary") {
            title.clone_into(&mut part);
        } else if let Some((title, path)) = link(line).filter(|(_, path)| !path.is_empty()) {
            found.push((part.clone(), title.to_owned(), path.to_owned()));
        }
    }
    found
}

fn link(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once('[')?;
    let (title, rest) = rest.split_once("](")?;
    Some((title, rest.split_once(')')?.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{Page, anchored, entries, pages};

    #[test]
    fn entries_have_their_part() {
        let summary =
            "# Summary\n\n[Introduction](a.md)\n\n# How-to\n\n- [B](b/b.md)\n  - [C](c.md)\n- [Draft]()\n";
        let shown: Vec<String> = entries(summary)
            .into_iter()
            .map(|(part, title, path)| format!("{part}/{title}/{path}"))
            .collect();
        assert_eq!(shown, ["Start/Introduction/a.md", "How-to/B/b/b.md", "How-to/C/c.md"]);
    }

    #[test]
    fn an_include_can_name_a_part_of_a_file() {
        let text = "a\n// ANCHOR: one\nb\n// ANCHOR: two\nc\n// ANCHOR_END: two\n// ANCHOR_END: one\nd\n";
        assert_eq!(anchored(text, "one"), "b\nc");
        assert_eq!(anchored(text, "two"), "c");
    }

    #[test]
    fn pages_contain_their_includes() {
        let docs = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(docs.path().join(name), text).unwrap();
        write("SUMMARY.md", "# Reference\n- [Errors](errors.md)\n");
        write("errors.md", "# Errors\n{{#include one.md}}");
        write("one.md", "## TL0101\n");
        let text = |text: &str| text.to_owned();
        let page = Page {
            part: text("Reference"),
            title: text("Errors"),
            path: text("errors.md"),
            text: text("# Errors\n## TL0101\n"),
        };
        assert_eq!(pages(docs.path()).unwrap(), [page]);
    }
}

//! The book as text for language models (<https://llmstxt.org>): an index of the pages, and one file with all of them.

use super::summary::Page;

/// The address of the published book.
const BOOK: &str = "https://tidelock.github.io/tidelock";

/// The first lines of both files.
const HEAD: &str = "# Tidelock

> A Rust library that keeps application state correct while many tasks, processes and machines work on it: locks, leases with fencing
> tokens, shared state, event streams, reactions, durable workflows, cron schedules, a transactional outbox and idempotency keys, on one
> SQLite file, on PostgreSQL or in memory.
";

/// Returns the index: a link and the first sentence of each page, by part.
pub(super) fn index(pages: &[Page]) -> String {
    let mut text = HEAD.to_owned();
    let mut part = "";
    for page in pages {
        if page.part != part {
            part = &page.part;
            text.push_str(&format!("\n## {part}\n\n"));
        }
        text.push_str(&format!(
            "- [{}]({BOOK}/{}): {}\n",
            page.title,
            html(&page.path),
            first_sentence(&page.text)
        ));
    }
    text
}

/// Returns all pages, without the lines of samples that the book hides.
pub(super) fn full(pages: &[Page]) -> String {
    let mut text = HEAD.to_owned();
    for page in pages {
        text.push_str(&format!("\n---\nsource: {BOOK}/{}\n\n", html(&page.path)));
        for line in shown(&page.text) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn html(path: &str) -> String {
    let path =
        path.strip_suffix("README.md").map_or_else(|| path.to_owned(), |folder| format!("{folder}index.md"));
    path.strip_suffix(".md").map_or(path.clone(), |stem| format!("{stem}.html"))
}

/// Returns the lines of a page that a reader sees.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    let mut rust = false;
    text.lines().filter(move |line| {
        if let Some(language) = line.strip_prefix("```") {
            rust = language.starts_with("rust");
        }
        !(rust && (*line == "#" || line.starts_with("# ")))
    })
}

/// Returns the first sentence of the first paragraph.
fn first_sentence(text: &str) -> String {
    let mut in_code = false;
    let outside_code = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    let is_prose = |line: &&str| line.starts_with(|c: char| c.is_alphanumeric() || c == '[' || c == '`');
    let paragraph = outside_code.skip_while(|line| !is_prose(line)).take_while(|line| !line.is_empty());
    let paragraph = paragraph.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |at| at + 1);
    without_links(paragraph.split_at(end).0)
}

/// Replaces each link by its text.
fn without_links(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (head, label) = before.rsplit_once('[').unwrap_or((before, ""));
        kept.push_str(head);
        kept.push_str(label);
        rest = after.split_once(')').map_or("", |(_, tail)| tail);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::super::summary::Page;
    use super::{full, index};

    fn page() -> Page {
        let text = "# Locks\n\n```text\ncode\n```\n\nA [keyed lock](x.md) admits one task\nat a time. More.\n\n```rust\n# hidden\nlet a = 1;\n```\n# Not hidden";
        let text = text.to_owned();
        Page {
            part: "How-to".to_owned(),
            title: "Locks".to_owned(),
            path: "how-to/locks.md".to_owned(),
            text,
        }
    }

    #[test]
    fn the_index_has_the_first_sentence_of_each_page() {
        let text = index(&[page()]);
        let line = "\n## How-to\n\n- [Locks](https://tidelock.github.io/tidelock/how-to/locks.html): A keyed lock admits one task at a time.\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn hidden_lines_of_samples_are_left_out() {
        let text = full(&[page()]);
        assert!(
            !text.contains("# hidden") && text.contains("let a = 1;") && text.contains("# Not hidden"),
            "{text}"
        );
    }
}

//! The share of phrases in the prose that reference documentation does not use. A finding is a sentence to rewrite, not a word to swap.
//!
//! Prose is: comments in Rust, SQL and JavaScript, string literals of several words outside tests, and Markdown outside code.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::super::tree::{File, Tree};

/// The marked phrases, one on each line, after comments that begin with `#`.
static PHRASES: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("phrases.txt").lines().filter(|line| !line.starts_with('#')).collect());

/// Openings of sentences that have lost their noun, each with the continuations that are fine.
const OPENINGS: &[(&str, &[&str])] =
    &[("What ", &["is Tidelock", "happens if", "to do", "it is for", "happens when"]), ("Who ", &["owns"])];

/// The counts of a tree.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Lines of prose.
    pub(super) lines: usize,
    by_file: BTreeMap<String, usize>,
}

impl Counts {
    /// Returns the number of marked phrases.
    pub(super) fn hits(&self) -> usize {
        self.by_file.values().sum()
    }

    /// Returns the number of marked phrases per 1,000 lines.
    pub(super) fn per_1000(&self) -> f64 {
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        1_000.0 * number(self.hits()) / number(self.lines.max(1))
    }

    /// Formats the files with the most phrases.
    pub(super) fn worst(&self, count: usize) -> String {
        let mut files: Vec<_> = self.by_file.iter().collect();
        files.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let shown: Vec<String> =
            files.iter().take(count).map(|(path, hits)| format!("{path} has {hits}")).collect();
        shown.join(", ")
    }
}

/// Counts the lines of prose and the marked phrases of a tree.
pub(super) fn count(tree: &Tree) -> Counts {
    let mut counts = Counts::default();
    for file in tree.files().iter().filter(|file| !file.path.contains("/vendor/")) {
        for text in prose(file) {
            counts.lines += 1;
            let hits = hits(&text);
            if hits > 0 {
                *counts.by_file.entry(file.path.clone()).or_default() += hits;
            }
        }
    }
    counts
}

/// Returns the prose of a file, by lines and literals.
fn prose(file: &File) -> Vec<String> {
    match file.name().rsplit_once('.').map(|(_, extension)| extension) {
        Some("md") => markdown(&file.text),
        Some("sql") => {
            file.text.lines().filter_map(|line| line.trim().strip_prefix("--")).map(text).collect()
        }
        Some("rs" | "js") => source(file),
        _ => Vec::new(),
    }
}

fn text(line: &str) -> String {
    line.trim().to_owned()
}

fn markdown(document: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in document.lines().map(str::trim) {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.is_empty() {
            found.push(without_code(line));
        }
    }
    found
}

fn source(file: &File) -> Vec<String> {
    let is_test =
        file.path.contains("/tests") || file.path.contains("/tck/") || file.path.starts_with("xtask");
    let mut found = Vec::new();
    for line in file.lines().map(|(_, line)| line.trim()) {
        if let Some(comment) = line.strip_prefix("//") {
            let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim();
            if !comment.is_empty() {
                found.push(without_code(comment));
            }
            continue;
        }
        found.extend(line.split_once(" // ").map(|(_, comment)| text(comment)));
        if !is_test {
            found.extend(literals(line).filter(|literal| literal.contains(' ')).map(str::to_owned));
        }
    }
    found
}

/// Returns a line without what is in backquotes.
fn without_code(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('`') {
        let Some((_, after)) = after.split_once('`') else { break };
        kept.push_str(before);
        rest = after;
    }
    kept + rest
}

/// Returns the string literals of a line that have at least twelve characters.
fn literals(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once('"')?;
        let mut escaped = false;
        let end = after.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let (literal, tail) = after.split_at(end);
        rest = tail.get(1..).unwrap_or_default();
        Some(literal)
    })
    .filter(|literal| literal.chars().count() >= 12)
}

/// Returns the number of marked phrases in a text.
fn hits(text: &str) -> usize {
    let words = words(text);
    let phrases = (0..words.len()).flat_map(|at| PHRASES.iter().map(move |phrase| (at, phrase)));
    phrases.filter(|(at, phrase)| begins(words.get(*at..).unwrap_or_default(), phrase)).count()
        + openings(text)
}

/// A word in lower case, and whether one blank or apostrophe separates it from the word before.
struct Word {
    text: String,
    joined: bool,
}

fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut gap = String::new();
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            let joined = matches!(gap.as_str(), " " | "'");
            found.push(Word { text: std::mem::take(&mut word), joined });
            gap.clear();
        }
        gap.push(c);
    }
    found
}

/// Returns whether the words begin with the phrase.
fn begins(words: &[Word], phrase: &str) -> bool {
    let mut words = words.iter();
    for (at, part) in phrase.split(' ').enumerate() {
        let word = words.next();
        if let Some(excluded) = part.strip_prefix('!') {
            return !word.is_some_and(|word| word.joined && is_one_of(word, excluded));
        }
        if !word.is_some_and(|word| (at == 0 || word.joined) && is_one_of(word, part)) {
            return false;
        }
    }
    true
}

fn is_one_of(word: &Word, alternatives: &str) -> bool {
    alternatives.split('|').any(|found| match found {
        "%" => word.text.starts_with(|c: char| c.is_ascii_digit()),
        found => word.text == found,
    })
}

/// Returns the number of sentences that open without their noun.
fn openings(text: &str) -> usize {
    let sentences = [". ", ": ", "; "].iter().flat_map(|end| text.split(end).skip(1));
    let opens = |sentence: &str| {
        OPENINGS.iter().any(|(opening, fine)| {
            let rest = sentence.strip_prefix(opening);
            rest.is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_lowercase())
                    && !fine.iter().any(|fine| rest.starts_with(fine))
            })
        })
    };
    sentences.chain([text]).filter(|sentence| opens(sentence)).count()
}

#[cfg(test)]
mod tests;

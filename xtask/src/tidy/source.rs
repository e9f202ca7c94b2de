//! Minimal Rust scanner that separates code from comments, literals and tests.

/// Replaces comments and the contents of literals by blanks. Lines and columns stay the same.
pub(super) fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out: Vec<char> = Vec::with_capacity(chars.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = chars.get(at..).unwrap_or_default();
        let (kept, end) = token(rest, out.last().copied());
        for (i, c) in rest.iter().take(end).enumerate() {
            let keep = i < kept || *c == '\n' || (kept > 0 && i + 1 == end);
            out.push(if keep { *c } else { ' ' });
        }
        at += end.max(1);
    }
    out.into_iter().collect()
}

/// Returns the number of characters of the next token that are kept, and its length. A literal keeps its quotes.
fn token(rest: &[char], before: Option<char>) -> (usize, usize) {
    match rest {
        ['/', '/', ..] => (0, until(rest, 2, |r| r.starts_with(&['\n']))),
        ['/', '*', ..] => (0, block_comment(rest)),
        ['"', ..] => (1, string(rest)),
        ['r', ..] if !before.is_some_and(is_word) => raw_string(rest).unwrap_or((1, 1)),
        ['\'', '\\', ..] => (1, until(rest, 3, |r| r.starts_with(&['\''])) + 1),
        ['\'', c, '\'', ..] if *c != '\'' => (1, 3),
        _ => (1, 1),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the first index from `start` on at which `stop` holds, or the end.
fn until(rest: &[char], start: usize, stop: impl Fn(&[char]) -> bool) -> usize {
    (start..rest.len()).find(|i| rest.get(*i..).is_some_and(&stop)).unwrap_or(rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        match here {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while let Some(c) = rest.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"…"` or `r#"…"#` with any number of hashes; the characters before and behind the quotes are kept.
fn raw_string(rest: &[char]) -> Option<(usize, usize)> {
    let hashes = rest.iter().skip(1).take_while(|c| **c == '#').count();
    if rest.get(hashes + 1) != Some(&'"') {
        return None;
    }
    let closes = |r: &[char]| {
        r.first() == Some(&'"') && r.iter().skip(1).take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((hashes + 2, (until(rest, hashes + 2, closes) + hashes + 1).min(rest.len())))
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of `fn`, from 1.
    pub(super) line: usize,
    /// The lines between the first and the last one.
    pub(super) length: usize,
}

/// Returns every function with a body, including nested ones. `code` must be blanked.
pub(super) fn functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let starts = lines.iter().enumerate().filter_map(|(i, line)| Some((i, function_name(line)?)));
    let found = starts.filter_map(|(start, name)| {
        let end = end_of_item(lines.get(start..)?)?;
        Some(Function { name: name.to_owned(), line: start + 1, length: end.saturating_sub(1).max(1) })
    });
    found.collect()
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let name = loop {
        match words.next()? {
            "fn" => break words.next()?,
            "pub" | "const" | "async" | "unsafe" | "default" | "extern" | "\"" | "in" => {}
            word if word.starts_with("pub(") || word.ends_with(')') || word.starts_with('"') => {}
            _ => return None,
        }
    };
    name.split(|c: char| !is_word(c)).next().filter(|name| !name.is_empty())
}

/// Returns the index of the line that closes the braces of an item; `None` when it has none.
fn end_of_item(lines: &[&str]) -> Option<usize> {
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (i, line) in lines.iter().enumerate() {
        for c in line.chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                '{' => depth += 1,
                '}' if depth <= 1 => return Some(i),
                '}' => depth -= 1,
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Blanks every item that is compiled only for tests.
pub(super) fn without_tests(code: &str) -> String {
    let mut lines: Vec<&str> = code.lines().collect();
    for start in 0..lines.len() {
        let marked = lines.get(start).is_some_and(|line| {
            let line = line.trim_start();
            line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
        });
        if marked {
            let item = start + 1;
            let length = lines.get(item..).and_then(end_of_item).unwrap_or(0);
            lines.iter_mut().skip(start).take(length + 2).for_each(|line| *line = "");
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests;

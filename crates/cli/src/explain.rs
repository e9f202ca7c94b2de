//! `tidelock explain`: the pages of the error codes, which are embedded in the program.

use anyhow::Result;
use tidelock::error::pages;

use crate::args::Explain;
use crate::exit::Exit;
use crate::output::{self, Tone};

/// Prints the page of a code, or the list of all codes.
pub(crate) fn run(options: &Explain) -> Result<Exit> {
    let Some(code) = &options.code else {
        list()?;
        return Ok(Exit::Well);
    };
    let wanted = canonical(code);
    if let Some(page) = pages::page(&wanted) {
        output::say(rendered(page).trim_end())?;
        return Ok(Exit::Well);
    }
    eprintln!("error: there is no code {:?}", output::escaped(code));
    let near = near(&wanted);
    if !near.is_empty() {
        eprintln!("hint: did you mean {}?", near.join(", "));
    }
    eprintln!("hint: `tidelock explain` lists all codes");
    Ok(Exit::NotFound)
}

/// Returns the code in canonical form: `204`, `0204` and `tl0204` all mean `TL0204`.
fn canonical(code: &str) -> String {
    let upper = code.trim().to_ascii_uppercase();
    let digits = upper.strip_prefix("TL").unwrap_or(&upper);
    if !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit()) {
        return format!("TL{digits:0>4}");
    }
    upper
}

/// Returns the codes that differ in the fewest places, at most two.
fn near(wanted: &str) -> Vec<&'static str> {
    let codes = pages::all().iter().map(|(code, _)| *code);
    let fewest = codes.clone().map(|code| distance(code, wanted)).min().filter(|places| *places <= 2);
    codes.filter(|code| Some(distance(code, wanted)) == fewest).collect()
}

/// Returns the number of places in which two codes differ.
fn distance(a: &str, b: &str) -> usize {
    a.chars().count().abs_diff(b.chars().count()) + a.chars().zip(b.chars()).filter(|(a, b)| a != b).count()
}

fn list() -> Result<()> {
    let mut table = output::table(&["code", "title"], &[]);
    for (code, page) in pages::all() {
        table.add_row([*code, title(code, page)]);
    }
    output::say(table)
}

/// Returns the first heading of a page, without a leading code.
fn title<'a>(code: &str, page: &'a str) -> &'a str {
    let heading = page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    heading.strip_prefix(code).map_or(heading, |rest| rest.trim_start_matches([':', ' ', '—', '-', '.']))
}

/// Renders the page: headings in bold on a terminal, everything else unchanged.
fn rendered(page: &str) -> String {
    let mut shown = String::with_capacity(page.len());
    let mut in_code = false;
    for line in page.lines() {
        in_code ^= line.starts_with("```");
        match line.trim_start_matches('#').strip_prefix(' ') {
            Some(heading) if !in_code && line.starts_with('#') => {
                shown.push_str(&output::styled(heading, Tone::Bold))
            }
            _ => shown.push_str(line),
        }
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_may_be_written_in_short() {
        assert_eq!(canonical("tl0204"), "TL0204");
        assert_eq!(canonical("204"), "TL0204");
        assert_eq!(canonical("nonsense"), "NONSENSE");
    }

    #[test]
    fn a_title_omits_its_code() {
        assert_eq!(title("TL0204", "# TL0204: the fence is stale\n\ntext"), "the fence is stale");
        assert_eq!(title("TL0204", "# The fence is stale\n"), "The fence is stale");
    }

    #[test]
    fn comments_in_code_are_no_headings() {
        assert_eq!(rendered("# A\n```sh\n# b\n```\n"), "A\n```sh\n# b\n```\n");
    }
}

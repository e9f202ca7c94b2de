//! `cargo xtask tidy`: project rules that the compiler does not check, each a pure function over the tree.
//!
//! A finding names the file, the line, the rule and the next step. Errors fail the command; warnings are only printed.

mod codes;
mod crates;
mod determinism;
mod layers;
mod length;
mod markdown;
mod migrations;
mod ratchet;
mod source;
mod text;
mod tree;

use anyhow::{Result, bail};

use self::tree::Tree;
use crate::run;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Error,
    Warning,
}

/// A violation of a rule at one place.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    rule: &'static str,
    /// The problem and the next step.
    message: String,
    weight: Weight,
}

impl Finding {
    fn error(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, message: message.into(), weight: Weight::Error }
    }

    fn warning(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, ..Self::error(path, line, rule, message) }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let weight = match self.weight {
            Weight::Error => "",
            Weight::Warning => "warning: ",
        };
        write!(f, "{}:{}: {weight}{}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Every rule.
const RULES: &[fn(&Tree) -> Vec<Finding>] = &[
    text::opening_comment,
    text::blanks,
    text::markers,
    text::workshop_paths,
    text::unwraps,
    length::files,
    length::functions,
    layers::core_modules,
    determinism::simulated_code,
    crates::arrows,
    crates::mirrored_backends,
    codes::pages,
    migrations::checksums,
    markdown::links,
    markdown::book_pages,
    markdown::ignored_code,
    ratchet::prose,
    ratchet::retired_names,
];

/// Checks the working tree.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::load(&run::root())?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.weight == Weight::Error).count();
    if errors > 0 {
        bail!("tidy found {errors} violations");
    }
    println!("tidy: {} files, {} rules, no violations", tree.files().len(), RULES.len());
    Ok(())
}

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    findings
}

/// Helpers of the rules' tests.
#[cfg(test)]
mod testing {
    use super::{Finding, Tree};

    /// Returns the findings of a rule as `path:line: message`, for files given as path and text.
    pub(super) fn findings(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let found = rule(&Tree::of(files));
        found.iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.message)).collect()
    }

    /// Asserts that a rule finds exactly the given places.
    #[track_caller]
    pub(super) fn check(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)], places: &[&str]) {
        let found = rule(&Tree::of(files));
        let found: Vec<String> = found.iter().map(|f| format!("{}:{}", f.path, f.line)).collect();
        assert_eq!(found, places, "{:#?}", findings(rule, files));
    }
}

//! Rules about the length of files and functions.

use super::Finding;
use super::source;
use super::tree::Tree;

const FILE_LINES: usize = 800;
const FILE_LINES_WARNING: usize = 500;
const FUNCTION_LINES: usize = 70;

/// Rejects Rust files of more than 800 lines, and warns above 500.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let lines = file.text.lines().count();
        let message = format!("{lines} lines: split the file by what its parts own");
        if lines > FILE_LINES {
            findings.push(Finding::error(&file.path, FILE_LINES, "file-length", message));
        } else if lines > FILE_LINES_WARNING {
            findings.push(Finding::warning(&file.path, FILE_LINES_WARNING, "file-length", message));
        }
    }
    findings
}

/// Rejects functions of more than 70 lines.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for function in source::functions(&file.code) {
            if function.length > FUNCTION_LINES {
                let (name, length) = (function.name, function.length);
                let message =
                    format!("`{name}` has {length} lines, at most {FUNCTION_LINES} are allowed: split it");
                findings.push(Finding::error(&file.path, function.line, "function-length", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, findings};
    use super::super::{Weight, tree::Tree};
    use super::{files, functions};

    #[test]
    fn long_files_are_found_and_longish_ones_mentioned() {
        let file = |lines: usize| "x\n".repeat(lines);
        check(files, &[("a.rs", &file(801))], &["a.rs:800"]);
        check(files, &[("a.rs", &file(500)), ("b.md", &file(900))], &[]);
        let found = files(&Tree::of(&[("a.rs", &file(501))]));
        assert_eq!(found.first().map(|f| f.weight), Some(Weight::Warning));
    }

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| format!("\nfn a() {{\n{}}}\n", "    b();\n".repeat(lines));
        check(functions, &[("a.rs", &function(71))], &["a.rs:2"]);
        check(functions, &[("a.rs", &function(70))], &[]);
        assert!(findings(functions, &[("a.rs", &function(90))]).concat().contains("`a` has 90 lines"));
    }
}

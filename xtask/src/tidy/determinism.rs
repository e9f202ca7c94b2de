//! Rule about determinism: code that a simulation runs takes its tasks, time and random numbers from `process`.

use super::Finding;
use super::source;
use super::tree::Tree;

/// Calls that a seed cannot determine, and what replaces them.
const CALLS: &[(&str, &str)] = &[
    ("tokio::spawn(", "process::spawn"),
    ("Instant::now(", "process::now"),
    ("Uuid::now_v7(", "process::uuid"),
    ("Uuid::new_v4(", "process::uuid"),
];

/// The files that provide the replacements, or serve the threads that a simulation does not have.
const EXEMPT: &[&str] = &[
    "crates/core/src/clock.rs",
    "crates/core/src/process.rs",
    "crates/core/src/process/simulated.rs",
    "crates/core/src/lock/coarse_clock.rs",
    "crates/core/src/runtime/timer.rs",
];

/// Checks the core and the facade.
pub(super) fn simulated_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let roots = ["crates/core/src", "crates/tidelock/src"];
    let files = roots.into_iter().flat_map(|root| tree.below(root));
    for file in
        files.filter(|file| file.has_extension("rs") && !file.is_test() && !EXEMPT.contains(&&*file.path))
    {
        let code = source::without_tests(&file.code);
        let mut lines = code.lines().enumerate().peekable();
        while let Some((i, line)) = lines.next() {
            for (call, instead) in CALLS.iter().filter(|(call, _)| line.contains(call)) {
                let message = format!("{call}) depends on more than the seed of a simulation: use {instead}");
                findings.push(Finding::error(&file.path, i + 1, "determinism", message));
            }
            let is_biased = lines.peek().is_some_and(|(_, next)| next.trim() == "biased;");
            if line.contains("select! {") && !is_biased {
                let message = "tokio draws the order of the branches: begin with `biased;`".to_owned();
                findings.push(Finding::error(&file.path, i + 1, "determinism", message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::check;
    use super::simulated_code;

    #[test]
    fn random_order_and_foreign_clocks_are_found() {
        let code = "fn f() {\n    tokio::spawn(g());\n    let at = Instant::now();\n    tokio::select! {\n        () = h() => {}\n    }\n}\n";
        let file = "crates/core/src/lease/acquire.rs";
        let found = [format!("{file}:2"), format!("{file}:3"), format!("{file}:4")];
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        check(simulated_code, &[(file, code)], &found);
        check(simulated_code, &[("crates/sqlite/src/writer.rs", code)], &[]);
    }

    #[test]
    fn biased_branches_and_the_process_module_pass() {
        let code = "fn f() {\n    process::spawn(g());\n    tokio::select! {\n        biased;\n        () = h() => {}\n    }\n}\n";
        check(simulated_code, &[("crates/core/src/lease/acquire.rs", code)], &[]);
        check(simulated_code, &[("crates/core/src/process.rs", "let at = Instant::now();\n")], &[]);
    }
}

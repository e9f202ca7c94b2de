//! The first five minutes: the commands in README and the book for newcomers are run here, in order, and succeed.
//!
//! A block that cannot be run has a comment before it with the reason: `<!-- not run: reason -->`.

use std::path::Path;
use std::process::Command;

/// The command for newcomers who have not installed anything yet.
const CARGO: &str = "cargo run --release --";

/// A command of a page, and its line number.
#[derive(Debug, PartialEq, Eq)]
struct Typed {
    line: usize,
    command: String,
}

/// Returns the commands in the shell blocks of a page.
fn typed(page: &str) -> Vec<Typed> {
    let (mut found, mut inside, mut marked) = (Vec::new(), None, false);
    for (i, text) in page.lines().enumerate() {
        match (inside, text.trim().strip_prefix("```")) {
            (None, Some(language)) => inside = Some(matches!(language, "sh" | "console") && !marked),
            (Some(_), Some(_)) => inside = None,
            (Some(true), None) => {
                if let Some(command) = text.strip_prefix("$ ") {
                    found.push(Typed { line: i + 1, command: command.to_owned() });
                }
            }
            _ => {}
        }
        let blank = text.trim().is_empty();
        marked = text.trim().starts_with("<!-- not run: ") || (marked && blank);
    }
    found
}

/// Runs all commands of a page in a temporary directory.
fn follow(page: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(page)).unwrap();
    let commands = typed(&text);
    assert!(!commands.is_empty(), "{page} has nothing to type");
    let directory = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_tidelock");
    for Typed { line, command } in commands {
        let ours = command.starts_with(CARGO) || command.starts_with("tidelock ");
        assert!(ours, "{page}:{line}: {command:?} is not run here: say why in a comment before the block");
        let line_of_shell = command.replacen(CARGO, binary, 1);
        let line_of_shell = match line_of_shell.strip_prefix("tidelock ") {
            Some(rest) => format!("{binary} {rest}"),
            None => line_of_shell,
        };
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &line_of_shell]).current_dir(directory.path());
        let output = shell.env_remove("DATABASE_URL").env_remove("TIDELOCK_STORE").output().unwrap();
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{page}:{line}: {command}: {told}{said}");
    }
}

#[test]
fn the_readme_can_be_typed() {
    follow("README.md");
}

#[test]
fn the_first_page_of_the_book_can_be_typed() {
    follow("docs/getting-started.md");
}

#[test]
fn commands_are_found_in_blocks_for_a_shell_that_are_not_marked() {
    let page = "```console\n$ tidelock demo\nsaid\n```\n```rust\n$ no\n```\n<!-- not run: why -->\n\n```sh\n$ cargo xtask\n```\n```sh\n$ tidelock top\n```\n";
    let found: Vec<String> = typed(page).into_iter().map(|typed| typed.command).collect();
    assert_eq!(found, ["tidelock demo", "tidelock top"]);
}

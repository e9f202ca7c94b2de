//! `cargo xtask docs`: builds the API documentation, the book, and its text for language models. A warning is an error.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::{book, run};

/// The version of mdBook to install.
const VERSION: &str = "0.5.4";

/// Builds the API documentation, the book, `llms.txt` and `llms-full.txt`.
pub(crate) fn run() -> Result<()> {
    let mut rustdoc = run::cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    run::run(rustdoc.env("RUSTDOCFLAGS", "-D warnings"))?;
    book::check_api_links()?;
    build_book()?;
    book::write_llms()
}

fn build_book() -> Result<()> {
    let root = run::root();
    let mdbook = mdbook(&root)?;
    let (_, log) = run::capture(Command::new(mdbook).arg("build").arg("docs").current_dir(&root))?;
    let complaints: Vec<&str> = log.lines().filter(|line| is_complaint(line)).collect();
    if !complaints.is_empty() {
        bail!("the book has warnings:\n{}", complaints.join("\n"));
    }
    println!("the book is in target/book/index.html");
    Ok(())
}

fn is_complaint(line: &str) -> bool {
    line.contains("WARN") || line.contains("ERROR")
}

/// Returns the mdBook program from `PATH` or from `target/tools`, where it is installed when it is missing.
fn mdbook(root: &Path) -> Result<PathBuf> {
    if let Some(found) = run::on_path("mdbook") {
        return Ok(found);
    }
    let tools = root.join("target").join("tools");
    let program = tools.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        println!("mdbook is not installed: building it into target/tools, which takes a minute or two, once");
        // The book is small, so a short build of mdBook matters more than its speed.
        let mut install = run::cargo(&["install", "--locked", "--debug", "--no-default-features"]);
        install.args(["--features", "search", "mdbook", "--version", VERSION, "--root"]).arg(&tools);
        run::run(install.env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn warnings_of_mdbook_are_recognised() {
        assert!(is_complaint(" WARN chapter `x.md` is empty"));
        assert!(is_complaint("2026-01-01 [ERROR] (mdbook): no"));
        assert!(!is_complaint(" INFO Book building has started"));
    }
}

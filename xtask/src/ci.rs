//! `cargo xtask ci`: what must pass before a change goes in. It stops at the first step that fails.

use std::time::Instant;

use anyhow::Result;

use crate::{Missing, api_check, docs, run, test, tidy};

/// Runs every step and prints the time of each.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    run::step("fmt", || run::run(&mut run::cargo(&["fmt", "--all", "--check"])))?;
    run::step("clippy", clippy)?;
    run::step("tidy", tidy::run)?;
    run::step("test", || test::run(&["--locked".to_owned()], Missing::Fails))?;
    run::step("docs", docs::run)?;
    run::step("api-check", || api_check::run(Missing::Fails))?;
    println!("==> ci: everything passed in {}", run::seconds(start.elapsed()));
    Ok(())
}

fn clippy() -> Result<()> {
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run::run(&mut run::cargo(&args))
}

//! `cargo xtask ci`: runs the checks that must pass before a change is merged. All steps run; the final report has the time of each.

use anyhow::Result;

use crate::postgres::versions;
use crate::steps::Steps;
use crate::{Missing, api_check, docs, run, test, tidy};

/// Runs every step, and fails when one did.
pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    steps.run("fmt", || run::run(&mut run::cargo(&["fmt", "--all", "--check"])));
    steps.run("clippy", clippy);
    steps.run("tidy", tidy::run);
    test::add(&mut steps, &test::Options::ci());
    steps.run("postgres 14 and 18", || versions::run(&versions::ENDS, &[], Missing::Fails));
    steps.run("docs", docs::run);
    steps.run("api-check", || api_check::run(Missing::Fails));
    steps.finish("ci")
}

fn clippy() -> Result<()> {
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run::run(&mut run::cargo(&args))
}

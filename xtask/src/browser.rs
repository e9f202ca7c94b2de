//! `cargo xtask browser`: checks the types of the inspector's pages, and tests the pages in a real Chromium. It installs missing tools
//! where possible. Otherwise it prints one line with the missing tool and skips the check, or fails with `--require`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::apt::{self, output};
use crate::repeat::RepeatOptions;
use crate::steps::Failures;
use crate::{Missing, run};

/// The library that drives the browser, in the version that the tests were written for.
const LIBRARY: &str = "playwright-core@1.65.0";
/// The type checker. It reads the type comments in the sources of the pages.
const CHECKER: &str = "typescript@5.9.3";
/// The oldest major version of Node.js that supports the tests.
const OLDEST_NODE: u32 = 20;
const CHROMIUM: &str = "/usr/bin/chromium";

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The reaction to a missing tool.
    missing: Missing,
    /// The directory for screenshots. With it, no test runs.
    screens: Option<String>,
    /// Selects the cases whose names contain this text.
    only: Option<String>,
    /// The number of runs, and the load during them.
    repeat: RepeatOptions,
}

impl Options {
    /// Sets the reaction to a missing tool.
    pub(crate) fn missing(self, missing: Missing) -> Self {
        Self { missing, ..self }
    }

    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            let mut value = || args.next().cloned().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--require" => options.missing = Missing::Fails,
                "--screens" => options.screens = Some(value()?),
                "--only" => options.only = Some(value()?),
                arg if options.repeat.parse(arg, &mut args)? => {}
                other => bail!("`browser` does not know {other:?}"),
            }
        }
        Ok(options)
    }
}

/// Runs the cases for the requested number of times, and fails when one did.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.repeat.run(|| run_cases(options))
}

/// Runs the cases once, or reports why they cannot run. Returns the cases that failed.
pub(crate) fn run_cases(options: &Options) -> Result<Failures> {
    let scratch = Scratch::new()?;
    match tools(&scratch.0) {
        Ok(tools) => tools.run_cases(options),
        Err(reason) => {
            let reason = format!("the inspector was not looked at in a browser: {reason}");
            options.missing.because(&reason).map(|()| Failures::new())
        }
    }
}

/// The tools that the tests need.
struct Tools {
    chromium: PathBuf,
    library: PathBuf,
    checker: PathBuf,
}

/// Finds or installs the tools. Fails with a reason for human readers.
fn tools(scratch: &Path) -> Result<Tools, String> {
    node()?;
    let chromium = chromium()?;
    let (library, checker) = libraries(scratch)?;
    Ok(Tools { chromium, library, checker })
}

fn node() -> Result<(), String> {
    let version = || output(Command::new("node").arg("--version"));
    let said = version().or_else(|| apt::install(&["nodejs", "npm"]).then(version).flatten());
    let said = said.ok_or("node is not installed, and apt-get cannot install it")?;
    let major = said.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major >= OLDEST_NODE) {
        return Ok(());
    }
    Err(format!("node {} is older than {OLDEST_NODE}", said.trim()))
}

fn chromium() -> Result<PathBuf, String> {
    let path = std::env::var_os("CHROMIUM").map_or_else(|| PathBuf::from(CHROMIUM), PathBuf::from);
    if path.exists() || (apt::install(&["chromium"]) && path.exists()) {
        return Ok(path);
    }
    Err(format!(
        "there is no Chromium at {}, and apt-get cannot install it; name one with CHROMIUM",
        path.display()
    ))
}

/// Installs both packages in one call, because npm removes packages that a call does not name.
fn libraries(scratch: &Path) -> Result<(PathBuf, PathBuf), String> {
    let mut install = Command::new("npm");
    install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--prefix"]);
    output(install.arg(scratch).args([LIBRARY, CHECKER]))
        .ok_or_else(|| format!("npm cannot install {LIBRARY} and {CHECKER}"))?;
    let modules = scratch.join("node_modules");
    let library = std::env::var_os("PLAYWRIGHT_CORE").map(PathBuf::from);
    let library = library.unwrap_or_else(|| modules.join("playwright-core"));
    Ok((library, modules.join("typescript").join("bin").join("tsc")))
}

impl Tools {
    fn run_cases(&self, options: &Options) -> Result<Failures> {
        let pages = run::root().join("crates/server/ui");
        run::run(Command::new("node").arg(&self.checker).arg("--project").arg(&pages))?;
        let (program, tidelock) =
            (run::built(&["--example", "inspector_host"])?, run::built(&["--bin", "tidelock"])?);
        let tests = pages.join("tests");
        let mut command = Command::new("node");
        match &options.screens {
            Some(directory) => command.arg(tests.join("screens.mjs")).arg(directory),
            None => command.arg(tests.join("inspector.mjs")).args(&options.only),
        };
        command.env("INSPECTED_PROGRAM", program).env("TIDELOCK_PROGRAM", tidelock);
        command.env("PLAYWRIGHT_CORE", &self.library).env("CHROMIUM", &self.chromium);
        let mut failures = Failures::new();
        let passed =
            run::stream(&mut command, |line| failures.extend(line.strip_prefix("FAIL ").map(str::to_owned)))?;
        // A case may fail in several ways.
        failures.dedup();
        if !passed && failures.is_empty() {
            failures.push("the tests ended early; their output says why".to_owned());
        }
        Ok(failures)
    }
}

/// A temporary directory that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tidelock-browser-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is left to the operating system.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{Missing, Options};

    #[test]
    fn options_are_read() {
        let parse =
            |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), Options::default());
        let found = parse("--require --only keyboard").unwrap();
        assert!(found.missing == Missing::Fails && found.only.as_deref() == Some("keyboard"));
        assert!(parse("--repeat 20 --load --only keyboard").is_ok());
        assert!(parse("--screens").is_err() && parse("--fast").is_err());
    }
}

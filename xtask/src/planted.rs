//! `cargo xtask planted`: plants faults in a copy of the sources, one at a time, and reports which layer of tests finds each.
//!
//! Tests that are green prove little about tests that never were red. Each fault of `xtask/planted/faults.txt` breaks one rule
//! that the project promises. A fault that no layer finds is a gap in the tests.

mod faults;
mod layers;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::faults::Fault;
use self::layers::{Found, Layer};
use crate::run;

/// The options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only faults whose name contains this text.
    only: Option<String>,
    /// The layers to run; all when empty.
    layers: Vec<Layer>,
}

impl Options {
    /// Reads `--only TEXT` and `--layers NAME,NAME`.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut options, mut args) = (Self::default(), args.iter());
        while let Some(arg) = args.next() {
            let value = args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--only" => options.only = Some(value?.clone()),
                "--layers" => options.layers = value?.split(',').map(str::parse).collect::<Result<_>>()?,
                other => bail!("`planted` has no option {other:?}"),
            }
        }
        Ok(options)
    }
}

/// Plants every fault, prints which layer found it, and fails when one was not found.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = faults::read(&run::root())?;
    let wanted = |fault: &&Fault| options.only.as_ref().is_none_or(|text| fault.name.contains(text));
    let faults: Vec<&Fault> = all.iter().filter(wanted).collect();
    let layers = if options.layers.is_empty() { Layer::ALL.to_vec() } else { options.layers.clone() };
    let copy = Copy::create()?;
    let mut missed = Vec::new();
    for (number, fault) in faults.iter().enumerate() {
        println!("[{}/{}] {}: {}", number + 1, faults.len(), fault.name, fault.rule);
        let planted = copy.plant(fault)?;
        if !found_by_any(&copy, &layers, fault)? {
            missed.push(fault.name.as_str());
        }
        drop(planted);
    }
    let count = faults.len();
    println!("planted: {} of {count} found", count - missed.len());
    if !missed.is_empty() {
        bail!("no layer found {}", missed.join(", "));
    }
    Ok(())
}

fn found_by_any(copy: &Copy, layers: &[Layer], fault: &Fault) -> Result<bool> {
    let mut any = false;
    for layer in layers {
        let begun = Instant::now();
        let found = layer.run(&copy.tree, &copy.target)?;
        let took = run::seconds(begun.elapsed());
        match &found {
            Found::By { test, after } => println!("    {layer}: {test} after {}", run::seconds(*after)),
            Found::Hang => println!("    {layer}: it hangs"),
            Found::Nothing => println!("    {layer}: not found in {took}"),
            Found::Invalid(error) => bail!("{} does not compile:\n{error}", fault.name),
        }
        any |= matches!(found, Found::By { .. } | Found::Hang);
    }
    Ok(any)
}

/// A copy of the sources, with a build directory of its own.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

/// A file with a planted fault. Dropping it restores the file.
struct Planted {
    file: PathBuf,
    text: String,
}

impl Copy {
    fn create() -> Result<Self> {
        let base = run::root().join("target/planted");
        let copy = Self { tree: base.join("tree"), target: base.join("build") };
        let mut list = std::process::Command::new("git");
        let (files, _) = run::capture(list.args(["ls-files"]).current_dir(run::root()))?;
        for file in files.lines() {
            replace(&copy.tree.join(file), &std::fs::read(run::root().join(file)).unwrap_or_default())?;
        }
        Ok(copy)
    }

    fn plant(&self, fault: &Fault) -> Result<Planted> {
        let file = self.tree.join(&fault.file);
        let text = std::fs::read_to_string(&file)?;
        replace(&file, fault.planted(&text)?.as_bytes())?;
        Ok(Planted { file, text })
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if let Err(error) = replace(&self.file, self.text.as_bytes()) {
            eprintln!("cannot restore {}: {error:#}", self.file.display());
        }
    }
}

/// Writes a file unless it has this content, so that cargo builds only what has changed.
fn replace(file: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(file).is_ok_and(|known| known == content) {
        return Ok(());
    }
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

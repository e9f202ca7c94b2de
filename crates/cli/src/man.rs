//! `tidelock man`: the manual pages, generated from the texts of `--help`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;

use crate::args::{Cli, Man};
use crate::exit::Exit;
use crate::output;

/// Prints the page of the program, or writes the pages of all verbs.
pub(crate) fn run(options: &Man) -> Result<Exit> {
    let mut command = Cli::command();
    command.build();
    match &options.dir {
        None => output::say(String::from_utf8_lossy(&page(&command)?).trim_end())?,
        Some(directory) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("{} cannot be made", directory.display()))?;
            let pages = write(&command, directory)?;
            eprintln!("{pages} pages are in {}", output::escaped(&directory.display().to_string()));
        }
    }
    Ok(Exit::Well)
}

/// Writes the pages of a command and its subcommands, and returns their number.
fn write(command: &Command, directory: &Path) -> Result<usize> {
    let path = directory.join(format!("{}.1", name(command)));
    fs::write(&path, page(command)?).with_context(|| format!("{} cannot be written", path.display()))?;
    let mut pages = 1;
    for below in shown(command) {
        pages += write(below, directory)?;
    }
    Ok(pages)
}

/// Returns the visible subcommands, without `help`, which repeats the manual.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// Returns the name of a page, such as `tidelock-runs-list`.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let titled = command.clone().name(name(command)).disable_help_subcommand(true);
    Page::new(titled).title(name(command)).section("1").render(&mut text)?;
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for (exit, meaning) in Exit::ALL {
        writeln!(text, ".TP\n.B {}\n{meaning}", exit as u8)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_says_the_same_about_exit_codes() {
        let help = Cli::command().render_help().to_string();
        let codes: Vec<String> =
            Exit::ALL.iter().map(|(exit, meaning)| format!("{} {meaning}", *exit as u8)).collect();
        assert!(help.contains(&format!("Exit codes: {}.", codes.join(", "))), "{help}");
    }
}

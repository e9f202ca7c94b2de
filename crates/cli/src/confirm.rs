//! Confirmation prompts before irreversible changes.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::Result;

use crate::exit::UsageError;

/// Returns whether the user agrees, with `--yes` or by typing it. Without a terminal, `--yes` is
/// required.
pub(crate) fn agreed(question: &str, yes: bool) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let reason = format!("{question} There is no terminal to confirm it: add --yes");
        return Err(UsageError(reason).into());
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !agreed {
        eprintln!("nothing was changed");
    }
    Ok(agreed)
}

//! Execution of other programs in the root of the repository, with their output forwarded as it arrives.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Returns a command of the cargo that runs this program, in the root of the repository. The variables of the outer cargo about its
/// package are removed. Some build scripts read them, and would rebuild crates that were built without this program.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command.args(args).current_dir(root());
    command
}

/// Runs a command and fails when it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, prints each line of its output and passes it to `line`, and returns whether the command succeeded. Standard
/// output and standard error share one pipe, so that their lines keep their order.
pub(crate) fn stream(command: &mut Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let shown = show(command);
    let (reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    // The command holds the write ends of the pipe. The pipe ends when the last of them is closed.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes)? > 0 {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\r', '\n']);
        println!("{text}");
        line(text);
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

/// Runs a command quietly and returns its standard output and standard error.
pub(crate) fn capture(command: &mut Command) -> Result<(String, String)> {
    let shown = show(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("`{shown}` failed ({}):\n{}", output.status, stderr.trim_end());
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), stderr))
}

/// Builds with cargo and returns the path of the last program. It builds with the features of the whole workspace, so that it reuses
/// what the tests have built.
pub(crate) fn built(target: &[&str]) -> Result<PathBuf> {
    let mut build =
        cargo(&["build", "--locked", "--workspace", "--message-format", "json-render-diagnostics"]);
    let (said, _) = capture(build.args(target))?;
    said.lines().filter_map(executable).next_back().context("cargo has built no program")
}

/// Returns the path of the program that a line of cargo's output names.
pub(crate) fn executable(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once("\"executable\":\"")?;
    Some(PathBuf::from(rest.split_once('"')?.0))
}

/// Returns the number of cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Finds a program on the `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|dir| dir.join(&name)).find(|program| program.is_file())
}

/// Formats a command as a user would type it.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut shown = program.to_string_lossy().into_owned();
    for arg in command.get_args() {
        shown.push(' ');
        shown.push_str(&arg.to_string_lossy());
    }
    shown
}

/// Runs one named step and prints how long it took.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    work().with_context(|| format!("step `{name}` failed after {}", seconds(start.elapsed())))?;
    println!("==> {name}: ok in {}", seconds(start.elapsed()));
    Ok(())
}

/// Formats a duration for human readers.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::executable;

    #[test]
    fn the_program_is_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","executable":"/a/tidelock","fresh":true}"#;
        assert_eq!(executable(line), Some(PathBuf::from("/a/tidelock")));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }
}

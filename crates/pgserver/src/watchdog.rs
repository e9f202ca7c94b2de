//! A watchdog that ends a server and removes its directory when the process that started it dies.
//!
//! The guard is a shell that waits for the end of a pipe. It must not depend on anything that dies with the process.
//! It has a separate process group, so that Ctrl-C does not reach it. A note in the server's directory names the
//! process to end.
//!
//! There is no gap between a start and its note. The guard first moves the directory of notes away. It finds a program
//! whose note was written before that. A later program cannot write its note, and therefore does not run.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::Error;

/// The directory of notes in the server's directory.
pub(crate) const NOTES: &str = "guard";
/// The note that names the process of the server.
const NOTE: &str = "pid";

/// `$1` is the server's directory. An immediate shutdown takes a moment; after 10 s it is enforced.
const WATCH: &str = r#"
read -r word
mv "$1/guard" "$1/over" && pid=$(cat "$1/over/pid")
if [ -n "$pid" ]; then
    kill -QUIT "$pid"
    n=0
    while [ $n -lt 200 ] && [ -e "$1/data/postmaster.pid" ] && kill -0 "$pid"; do
        sleep 0.05
        n=$((n + 1))
    done
    kill -KILL "$pid"
fi
n=0
until rm -rf "$1" || [ $n -ge 100 ]; do
    sleep 0.1
    n=$((n + 1))
done
"#;

/// `$0` is the note, the rest is the program with its arguments. The program keeps the process id of the shell.
const RUN: &str = r#"echo $$ >"$0" && exec "$@""#;

/// The shell that watches one directory. Dropping it ends the shell.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Starts watching a directory. The caller must end the server before it drops the guard.
    pub(crate) fn watch(directory: &Path) -> Result<Self, Error> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", WATCH, "tidelock-pg-guard"]).arg(directory).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let shell = shell.spawn().map_err(Error::io("starting /bin/sh"))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Waiting closes the pipe first, and the shell waits for that.
        let _ = self.shell.wait();
    }
}

/// Returns a command that writes a note about its process before it becomes `program`. The caller adds the arguments.
pub(crate) fn noted(directory: &Path, program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", RUN]).arg(directory.join(NOTES).join(NOTE)).arg(program).process_group(0);
    command
}

/// Removes the note after the program has ended, so that the guard does not kill a later process with the same id.
pub(crate) fn forget(directory: &Path) {
    let _ = fs::remove_file(directory.join(NOTES).join(NOTE));
}

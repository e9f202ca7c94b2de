//! Model checker tests: separate programs, built with a flag that puts the checker's mutex into the lock table. They have a
//! separate target directory, so that nothing else is built twice.

use anyhow::Result;

use crate::run;

/// The checkers: the flag, the test program, and its description.
const CHECKERS: [(&str, &str, &str); 2] = [
    ("tidelock_loom", "loom", "every interleaving of a few threads"),
    ("tidelock_shuttle", "shuttle", "random schedules of many tasks"),
];

/// Runs the checkers, and returns whether all of them passed. `schedules` is the number of schedules that each shuttle test
/// tries; `None` leaves it to the tests. Every line of their output goes to `line`.
pub(crate) fn run(schedules: Option<u64>, mut line: impl FnMut(&str)) -> Result<bool> {
    let mut passed = true;
    for (flag, test, what) in CHECKERS {
        println!("==> {test}: {what}");
        let args = ["test", "--locked", "--profile", "checked", "--target-dir", "target/checked"];
        let mut command = run::cargo(&args);
        command.args(["-p", "tidelock-core", "--test", test]).env("RUSTFLAGS", format!("--cfg {flag}"));
        if let Some(schedules) = schedules {
            command.env("TIDELOCK_SCHEDULES", schedules.to_string());
        }
        passed &= run::stream(&mut command, &mut line)?;
    }
    Ok(passed)
}

//! Optimistic concurrency on a git repository: two processes change one file repeatedly, and no change is lost. Each process fetches
//! a fresh copy, changes it, and pushes. The slower one is rejected and retries.
//!
//! `cargo run -p tidelock-examples --example external_update_git`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidelock::external_update::{self, Push, UpdateOptions};
use tidelock::lock::LockClass;
use tidelock::model::retry::RetryPolicy;
use tokio::process::Command;

static REPOSITORY: LockClass = LockClass::new("repository");
const CHANGES: usize = 8;

type Fault = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Fault> {
    // A child process adds lines to the file, each in a separate update.
    if let [_, remote, name] = std::env::args().collect::<Vec<_>>().as_slice() {
        return add_lines(Path::new(remote), name).await;
    }
    if Command::new("git").arg("--version").stdout(Stdio::null()).status().await.is_err() {
        println!("git is not installed: there is nothing to show");
        return Ok(());
    }
    let home = tempfile::tempdir()?;
    let remote = home.path().join("remote.git");
    git(home.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "remote.git"]).await?;
    let seed = clone(&remote).await?;
    commit(seed.path(), "", "the beginning").await?;
    git(seed.path(), &["push", "--quiet", "origin", "main"]).await?;

    let program = std::env::current_exe()?;
    let start = |name: &str| Command::new(&program).arg(&remote).arg(name).spawn();
    let (mut left, mut right) = (start("left")?, start("right")?);
    if !left.wait().await?.success() || !right.wait().await?.success() {
        return Err("one of the processes failed".into());
    }
    let text = std::fs::read_to_string(clone(&remote).await?.path().join("lines.txt"))?;
    let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    println!("left wrote {} lines, right wrote {}, of {CHANGES} each", count("left"), count("right"));
    if count("left") + count("right") != 2 * CHANGES {
        return Err("a change was lost".into());
    }
    Ok(())
}

async fn add_lines(remote: &Path, name: &str) -> Result<(), Fault> {
    let retry = RetryPolicy {
        max_attempts: 30,
        base: Duration::from_millis(20),
        cap: Duration::from_millis(200),
        ..RetryPolicy::default()
    };
    let options = UpdateOptions { retry, ..UpdateOptions::default() };
    let repository = REPOSITORY.key([remote.to_string_lossy().into_owned()])?;
    for i in 0..CHANGES {
        let tries = std::cell::Cell::new(0);
        let fetch = async || clone(remote).await;
        let transform = async |copy: &mut tempfile::TempDir| {
            tries.set(tries.get() + 1);
            let file = copy.path().join("lines.txt");
            let text = std::fs::read_to_string(&file)? + &format!("{name} {i}\n");
            commit(copy.path(), &text, &format!("{name} {i}")).await
        };
        let push =
            async |copy: tempfile::TempDir| match git(copy.path(), &["push", "--quiet", "origin", "main"])
                .await
            {
                Ok(()) => Ok(Push::Accepted),
                Err(error) if was_rejected(&error.to_string()) => Ok(Push::Rejected(error.to_string())),
                Err(error) => Err(error),
            };
        external_update::update(&options, &repository, fetch, transform, push)
            .await
            .map_err(|e| e.to_string())?;
        println!("{name} {i}: pushed at attempt {}", tries.get());
    }
    Ok(())
}

/// Returns whether a push was rejected because another process pushed first. Every other error is a real failure.
fn was_rejected(message: &str) -> bool {
    ["[rejected]", "[remote rejected]", "fetch first", "cannot lock ref"]
        .iter()
        .any(|sign| message.contains(sign))
}

async fn clone(remote: &Path) -> Result<tempfile::TempDir, Fault> {
    let copy = tempfile::tempdir()?;
    let remote: PathBuf = remote.to_owned();
    // A local clone copies files, and fails when a concurrent push removes one of them. The git protocol avoids that.
    git(copy.path(), &["clone", "--quiet", "--no-local", &remote.to_string_lossy(), "."]).await?;
    Ok(copy)
}

async fn commit(copy: &Path, text: &str, message: &str) -> Result<(), Fault> {
    std::fs::write(copy.join("lines.txt"), text)?;
    git(copy, &["add", "lines.txt"]).await?;
    let name = ["-c", "user.name=tidelock", "-c", "user.email=example@example.org"];
    git(copy, &[&name[..], &["commit", "--quiet", "--allow-empty", "-m", message]].concat()).await
}

async fn git(directory: &Path, args: &[&str]) -> Result<(), Fault> {
    let output = Command::new("git").current_dir(directory).args(args).stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)).into())
}

//! The template for `cargo generate`: filled in, pointed at this checkout, and checked offline.
//!
//! The project shares the lock file, the profiles and the target directory of the workspace, so that only what it builds with
//! other features is built again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::run;

const TEMPLATE: &str = "templates/service";
/// Files of the template that `cargo generate` reads and does not copy.
const SETTINGS: &str = "cargo-generate.toml";
const PLACEHOLDER: &str = "{{project-name}}";
/// The name of the project that is checked.
const NAME: &str = "service-from-template";
/// The source of the library in the template. The check replaces it by the path of this checkout.
const PUBLISHED: &str = "git = \"https://github.com/tidelock/tidelock\"";

/// Creates a project from the template below the target directory, and checks it with its tests.
pub(super) fn check() -> Result<()> {
    let root = run::root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let project = root.join("target").join("templates").join("service");
    if project.exists() {
        std::fs::remove_dir_all(&project)?;
    }
    fill(&root.join(TEMPLATE), &project)?;
    let manifest = project.join("Cargo.toml");
    let local = local_manifest(&std::fs::read_to_string(&manifest)?, &root)?;
    std::fs::write(&manifest, local + &profiles(&std::fs::read_to_string(root.join("Cargo.toml"))?))?;
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock"))?;
    let mut check = run::cargo(&["check", "--offline", "--all-targets"]);
    run::capture(check.current_dir(&project).env("CARGO_TARGET_DIR", target)).map(drop)
}

/// Copies the template, and replaces the placeholder in every file.
fn fill(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fill(&path, &copy)?;
        } else if entry.file_name() != SETTINGS {
            let text = std::fs::read_to_string(&path)?;
            std::fs::write(copy, text.replace(PLACEHOLDER, NAME))?;
        }
    }
    Ok(())
}

/// Points the dependency at the checkout, and makes the project a workspace of its own.
fn local_manifest(manifest: &str, root: &Path) -> Result<String> {
    if !manifest.contains(PUBLISHED) {
        bail!("cannot point the template at this checkout: its Cargo.toml does not contain {PUBLISHED}");
    }
    let path = format!("path = {:?}", root.join("crates").join("tidelock"));
    Ok(format!("{}\n[workspace]\n", manifest.replace(PUBLISHED, &path)))
}

/// Returns the development profiles of a manifest.
fn profiles(manifest: &str) -> String {
    let mut wanted = false;
    let mut text = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            wanted = line.starts_with("[profile.dev");
        }
        if wanted {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{local_manifest, profiles};

    #[test]
    fn the_dependency_becomes_a_path() {
        let manifest =
            "tidelock = { git = \"https://github.com/tidelock/tidelock\", features = [\"server\"] }\n";
        let local = local_manifest(manifest, Path::new("/a")).unwrap();
        assert!(local.starts_with("tidelock = { path = \"/a/crates/tidelock\", features"), "{local}");
        assert!(local.ends_with("[workspace]\n"));
        assert!(local_manifest("tidelock = \"0.1\"\n", Path::new("/a")).is_err());
    }

    #[test]
    fn only_development_profiles_are_taken() {
        let manifest = "[workspace]\na = 1\n[profile.dev]\nb = 2\n[profile.dev.package.c]\nd = 3\n[profile.release]\ne = 4\n";
        assert_eq!(profiles(manifest), "[profile.dev]\nb = 2\n[profile.dev.package.c]\nd = 3\n");
    }
}

//! Working tree of the rules: all files that git tracks or would track, read once.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::source;
use crate::run;

/// One file.
#[derive(Debug)]
pub(super) struct File {
    /// The path from the root, with `/`.
    pub(super) path: String,
    /// The text; empty when the file is not text.
    pub(super) text: String,
    /// The text of a Rust file with comments and the contents of literals blanked; empty for others.
    pub(super) code: String,
}

impl File {
    fn new(path: &str, text: String) -> Self {
        let code = if path.ends_with(".rs") { source::code(&text) } else { String::new() };
        Self { path: path.to_owned(), text, code }
    }

    /// Returns the lines with their numbers, starting at 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Returns the last part of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns whether the name has this extension.
    pub(super) fn has_extension(&self, extension: &str) -> bool {
        self.name().rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }

    /// Returns whether the whole file is test code.
    pub(super) fn is_test(&self) -> bool {
        self.name() == "tests.rs" || self.path.split('/').any(|part| part == "tests")
    }
}

/// All files, in the order of their paths.
#[derive(Debug)]
pub(super) struct Tree {
    files: Vec<File>,
    directories: BTreeSet<String>,
}

impl Tree {
    /// Reads the working tree at `root`.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let (names, _) = run::capture(Command::new("git").args(list).current_dir(root))?;
        let mut files = Vec::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let path = root.join(name);
            if path.is_file() {
                let text = String::from_utf8(std::fs::read(path)?).unwrap_or_default();
                files.push(File::new(name, text));
            }
        }
        Ok(Self::from_files(files))
    }

    /// Creates a tree from paths and texts.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::from_files(files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect())
    }

    fn from_files(mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let parents = files
            .iter()
            .flat_map(|file| file.path.match_indices('/').map(|(at, _)| file.path.split_at(at).0));
        let directories = parents.map(str::to_owned).collect();
        Self { files, directories }
    }

    /// Returns all files.
    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns all Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("rs"))
    }

    /// Returns all Markdown files.
    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("md"))
    }

    /// Returns all files below a directory.
    pub(super) fn below<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a File> {
        let inside =
            move |file: &&File| file.path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        self.files.iter().filter(inside)
    }

    /// Returns the file at a path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns whether a file or a directory exists at the path.
    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.directories.contains(path) || self.file(path).is_some()
    }
}

/// Resolves `target` relative to the file `from`. Returns `None` when the path leaves the root.
pub(super) fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{Tree, resolve};

    #[test]
    fn paths_are_resolved_from_the_file_that_names_them() {
        assert_eq!(resolve("docs/guide/a.md", "../b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../x.md"), None);
    }

    #[test]
    fn directories_exist_by_their_files() {
        let tree = Tree::of(&[("docs/guide/a.md", "")]);
        assert!(tree.has("docs") && tree.has("docs/guide") && tree.has("docs/guide/a.md"));
        assert!(!tree.has("docs/gui") && !tree.has("a.md"));
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        let tree = Tree::of(&[("a/src/tests.rs", ""), ("a/tests/x.rs", ""), ("a/src/contest.rs", "")]);
        let tests: Vec<bool> = tree.files().iter().map(super::File::is_test).collect();
        assert_eq!(tests, [false, true, true]);
    }
}

//! The list of planted faults.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// A fault: a text of one file, and its replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) name: String,
    /// The rule that it breaks.
    pub(super) rule: String,
    pub(super) file: String,
    find: String,
    replacement: String,
}

/// Reads the list in the repository at this root.
pub(super) fn read(root: &Path) -> Result<Vec<Fault>> {
    let path = root.join("xtask/planted/faults.txt");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let blocks = text.split("\n\n").map(str::trim_start).filter(|block| !block.starts_with('#'));
    blocks.filter(|block| !block.is_empty()).map(Fault::parse).collect()
}

impl Fault {
    fn parse(block: &str) -> Result<Self> {
        let parsed = || {
            let (head, rest) = block.split_once('\n')?;
            let (name, rule) = head.split_once(": ")?;
            let (file, change) = rest.split_once("\n- ")?;
            let (find, replacement) = change.split_once("\n+")?;
            // A fault that only removes its text has no replacement.
            let replacement = replacement.trim_start_matches(' ').trim_end_matches('\n');
            let [name, rule, file, find, replacement] =
                [name, rule, file, find, replacement].map(str::to_owned);
            Some(Self { name, rule, file, find, replacement })
        };
        parsed().with_context(|| {
            format!("cannot parse the fault {block:?}; expected `name: rule`, a file, `- text`, `+ text`")
        })
    }

    /// Returns the text of the file with the fault.
    pub(super) fn planted(&self, text: &str) -> Result<String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replacement, 1)),
            count => bail!(
                "cannot plant {}: its text occurs {count} times in {}; update the list",
                self.name,
                self.file
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::collections::HashSet;

    use super::read;
    use crate::run;

    #[test]
    fn every_fault_fits_the_sources() {
        let faults = read(&run::root()).unwrap();
        assert!(faults.len() >= 50, "{}", faults.len());
        let mut names = HashSet::new();
        for fault in &faults {
            assert!(names.insert(&fault.name), "{} occurs twice", fault.name);
            let text = std::fs::read_to_string(run::root().join(&fault.file)).unwrap();
            assert_ne!(fault.planted(&text).unwrap(), text, "{}", fault.name);
        }
    }
}

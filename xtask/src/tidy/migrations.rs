//! Rule about migrations: they are never edited. A list in the same directory has the checksum of each.
//!
//! The checksum is FNV-1a with 64 bits. It detects accidental edits only.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::{File, Tree};

const LIST: &str = "checksums.txt";

/// Checks that every migration has the checksum that it had when it was released.
pub(super) fn checksums(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.below("crates").filter(|file| is_migration(file)) {
        let directory = file.path.strip_suffix(file.name()).unwrap_or_default();
        let listed = tree.file(&format!("{directory}{LIST}")).map(entries).unwrap_or_default();
        let actual = format!("{:016x}", checksum(&file.text));
        let message = match listed.get(file.name()) {
            Some(expected) if **expected == actual => continue,
            Some(_) => "the migration was edited: restore it and write a new one".to_owned(),
            None => format!("the migration is new: add the line `{actual}  {}` to {LIST}", file.name()),
        };
        findings.push(Finding::error(&file.path, 1, "migrations", message));
    }
    for list in tree.below("crates").filter(|file| file.path.ends_with(&format!("/migrations/{LIST}"))) {
        let directory = list.path.strip_suffix(LIST).unwrap_or_default();
        for name in entries(list).into_keys().filter(|name| !tree.has(&format!("{directory}{name}"))) {
            let message = format!("{name} is listed but gone: migrations are never removed");
            findings.push(Finding::error(&list.path, 1, "migrations", message));
        }
    }
    findings
}

fn is_migration(file: &File) -> bool {
    file.path.contains("/migrations/") && file.has_extension("sql")
}

/// Parses the lines `checksum  name`, by name.
fn entries(list: &File) -> BTreeMap<&str, &str> {
    list.text.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name, sum)).collect()
}

fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, findings};
    use super::{checksum, checksums};

    const SQL: &str = "crates/sqlite/migrations/0001_a.sql";
    const LIST: &str = "crates/sqlite/migrations/checksums.txt";

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(checksum(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum("a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn an_untouched_migration_passes_and_an_edited_one_does_not() {
        check(checksums, &[(SQL, "a"), (LIST, "af63dc4c8601ec8c  0001_a.sql\n")], &[]);
        check(checksums, &[(SQL, "b"), (LIST, "af63dc4c8601ec8c  0001_a.sql\n")], &[&format!("{SQL}:1")]);
    }

    #[test]
    fn a_new_migration_gets_its_line_and_a_missing_one_is_reported() {
        let found = findings(checksums, &[(SQL, "a")]).concat();
        assert!(found.contains("add the line `af63dc4c8601ec8c  0001_a.sql`"), "{found}");
        check(checksums, &[(LIST, "af63dc4c8601ec8c  0001_a.sql\n")], &[&format!("{LIST}:1")]);
    }
}

//! The limits of the ratchets: above one, below one, and without one.

use super::super::Weight;
use super::super::testing::{check, findings};
use super::super::tree::Tree;
use super::{prose, retired_names};

const LIMITS: &str = "# comment\nprose-per-1000 500\nretired-files 0\nretired-types 1\nretired-functions 0\n";

#[test]
fn prose_above_its_limit_is_an_error() {
    let limits = ("xtask/ratchets.txt", LIMITS);
    check(prose, &[limits, ("a.md", "Nobody\nhears it.\n")], &["xtask/ratchets.txt:2"]);
    check(prose, &[limits, ("a.md", "Nobody\nreads it.\n")], &[]);
}

#[test]
fn retired_names_may_not_come_back() {
    let limits = ("xtask/ratchets.txt", LIMITS);
    check(retired_names, &[limits, ("a.rs", "struct Kept;\n")], &[]);
    let two = [limits, ("a.rs", "struct Kept;\nenum Told {}\n")];
    check(retired_names, &two, &["xtask/ratchets.txt:4"]);
    assert!(findings(retired_names, &two).concat().contains("a.rs:1: Kept, a.rs:2: Told"));
}

#[test]
fn a_limit_that_can_fall_is_reported() {
    let found = retired_names(&Tree::of(&[("xtask/ratchets.txt", LIMITS)]));
    assert_eq!(found.iter().map(|finding| finding.weight).collect::<Vec<_>>(), [Weight::Warning]);
}

#[test]
fn a_missing_limit_is_an_error() {
    let limits = ("xtask/ratchets.txt", "retired-types 0\nretired-functions 0\n");
    assert!(findings(retired_names, &[limits]).concat().contains("retired-files has no limit"));
}

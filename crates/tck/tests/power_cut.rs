//! The model of the disk that the power cuts use: what is durable stays, and everything else may be lost in parts.
#![cfg(unix)]
#![allow(dead_code, clippy::restriction, reason = "a test fails by panicking, and uses a part of the model")]

#[path = "../src/power_cut/disk.rs"]
mod disk;
#[path = "../src/power_cut/log.rs"]
mod log;
#[path = "../src/power_cut/loss.rs"]
mod loss;

use std::collections::BTreeSet;
use std::path::Path;

use disk::{Disk, Node};
use log::Change;
use loss::{Extent, Loss};
use rng::Rng;
use tidelock_tck::power_cut::Device;
use tidelock_tck::rng;

const ROOT: u64 = 1;
const FILE: u64 = 2;
const SEEDS: u64 = 200;

fn root() -> Change<'static> {
    Change::Directory { directory: 0, name: "", inode: ROOT }
}

fn create() -> Change<'static> {
    Change::Create { directory: ROOT, name: "a", inode: FILE }
}

fn write(offset: usize, data: &[u8]) -> Change<'_> {
    Change::Write { inode: FILE, offset, data }
}

fn flush(inode: u64) -> Change<'static> {
    Change::Flush { inode }
}

/// Returns every content of a file that some seed leaves.
fn left(changes: &[Change<'_>], name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let mut disk = Disk::new(Device::Honest);
    changes.iter().for_each(|change| disk.apply(change));
    let content = |seed| match disk.cut(&mut Loss::seeded(Rng::new(seed))).remove(Path::new(name)) {
        Some(Node::File { content, .. }) => Some(content),
        Some(Node::Directory) => panic!("{name} is a directory"),
        None => None,
    };
    (0..SEEDS).map(content).collect()
}

fn only(content: &[u8]) -> BTreeSet<Option<Vec<u8>>> {
    BTreeSet::from([Some(content.to_vec())])
}

#[test]
fn a_flushed_file_in_a_flushed_directory_stays() {
    let changes = [root(), create(), write(0, b"one"), flush(FILE), flush(ROOT)];
    assert_eq!(left(&changes, "a"), only(b"one"));
}

#[test]
fn a_flush_of_the_file_does_not_keep_its_name() {
    let changes = [root(), create(), write(0, b"one"), flush(FILE)];
    assert_eq!(left(&changes, "a"), BTreeSet::from([None, Some(b"one".to_vec())]));
}

#[test]
fn a_flush_of_the_directory_does_not_keep_the_content() {
    let changes = [root(), create(), write(0, b"one"), flush(ROOT)];
    let left = left(&changes, "a");
    assert!(left.contains(&Some(Vec::new())) && left.contains(&Some(b"one".to_vec())), "{left:?}");
    assert!(left.contains(&Some(vec![0; 3])), "the length may be durable before the bytes");
    assert!(!left.contains(&None));
}

#[test]
fn an_unflushed_rename_leaves_the_old_or_the_new_file() {
    let rename = Change::Rename { directory: ROOT, from: "b", to: "a" };
    let other = Change::Create { directory: ROOT, name: "b", inode: 3 };
    let new = Change::Write { inode: 3, offset: 0, data: b"new" };
    let changes =
        [root(), create(), write(0, b"old"), flush(FILE), flush(ROOT), other, new, flush(3), rename];
    let expected = BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]);
    assert_eq!(left(&changes, "a"), expected);
}

#[test]
fn a_removed_name_may_come_back_until_the_directory_is_flushed() {
    let remove = Change::Remove { directory: ROOT, name: "a" };
    let before = [root(), create(), write(0, b"one"), flush(FILE), flush(ROOT), remove];
    assert_eq!(left(&before, "a"), BTreeSet::from([None, Some(b"one".to_vec())]));
    let after = [root(), create(), write(0, b"one"), flush(FILE), flush(ROOT), remove, flush(ROOT)];
    assert_eq!(left(&after, "a"), BTreeSet::from([None]));
}

#[test]
fn sectors_are_torn_apart_and_bytes_beside_a_write_stay() {
    let (old, new) = (vec![b'o'; 2048], vec![b'n'; 1024]);
    let changes = [root(), create(), write(0, &old), flush(FILE), flush(ROOT), write(512, &new)];
    let left: Vec<Vec<u8>> = left(&changes, "a").into_iter().flatten().collect();
    for content in &left {
        assert_eq!((&content[..512], &content[1536..]), (&old[..512], &old[1536..]));
    }
    let has = |first: u8, second: u8| {
        let whole = |sector: &[u8], byte| sector.iter().all(|b| *b == byte);
        left.iter().any(|c| whole(&c[512..1024], first) && whole(&c[1024..1536], second))
    };
    assert!(has(b'o', b'o') && has(b'n', b'n') && has(b'o', b'n') && has(b'n', b'o'));
    let garbage = |c: &Vec<u8>| c[512..1536].iter().any(|b| *b != b'o' && *b != b'n');
    assert!(left.iter().any(garbage));
}

#[test]
fn later_writes_survive_without_earlier_ones() {
    let zeros = vec![0; 2048];
    let changes =
        [root(), create(), write(0, &zeros), flush(FILE), flush(ROOT), write(0, b"1"), write(1024, b"2")];
    let left = left(&changes, "a");
    assert!(left.iter().flatten().any(|content| content[0] == 0 && content[1024] == b'2'));
}

#[test]
fn a_device_that_ignores_flushes_loses_everything() {
    let mut disk = Disk::new(Device::IgnoresFlushes);
    for change in [root(), create(), write(0, b"one"), flush(FILE), flush(ROOT)] {
        disk.apply(&change);
    }
    assert!(disk.cut(&mut Loss::always(Extent::Everything)).is_empty());
}

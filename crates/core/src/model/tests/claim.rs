//! Claim order: by priority, with a share for the oldest.

use super::super::claim::{Candidate, choose};
use super::*;
use crate::id::Priority;

fn candidate(name: &str, level: u8, ready: i64, seq: u64) -> Candidate {
    in_queue("queue", name, level, ready, seq)
}

fn in_queue(queue: &str, name: &str, level: u8, ready: i64, seq: u64) -> Candidate {
    let (queue, priority) = (queue.parse().unwrap(), Priority::new(level).unwrap());
    Candidate { key: key(name), queue, priority, ready_at: at(ready), seq }
}

fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::to_string).collect()
}

#[test]
fn urgent_first_then_oldest_then_first_created() {
    let all = vec![
        candidate("b", 5, 10, 2),
        candidate("a", 5, 10, 1),
        candidate("late-urgent", 9, 20, 3),
        candidate("old", 5, 1, 4),
    ];
    let chosen = choose(all, 3, Fence(1));
    assert_eq!(names(&chosen), ["late-urgent", "old", "a"]);
}

#[test]
fn a_quarter_goes_by_age_so_that_urgent_work_starves_no_row() {
    let mut all: Vec<Candidate> = (0..8).map(|i| candidate(&format!("u{i}"), 9, 100 + i, i as u64)).collect();
    all.push(candidate("patient", 0, 1, 99));
    assert!(names(&choose(all.clone(), 4, Fence(1))).contains(&"patient".to_owned()));
    // A worker that claims one row at a time gets the oldest about every fourth time.
    let turns = (0..1_000).filter(|turn| names(&choose(all.clone(), 1, Fence(*turn))) == ["patient"]);
    let turns = turns.count();
    assert!((200..300).contains(&turns), "{turns} of 1000 claims went by age");
}

/// A small claim reaches the oldest row, however fast other workers raise the fences between claims, and wherever the
/// fences start.
#[test]
fn no_rhythm_of_small_claims_starves_the_oldest() {
    let mut all: Vec<Candidate> = (0..4).map(|i| candidate(&format!("u{i}"), 9, 100 + i, i as u64)).collect();
    all.push(candidate("patient", 0, 1, 99));
    let patient = key("patient");
    let starts = (0..200).chain([1 << 32, u64::MAX / 2, u64::MAX - 10_000]);
    for (start, limit, stride) in
        starts.flat_map(|s| (1..=3).flat_map(move |l| (1..=8).map(move |r| (s, l, r))))
    {
        let reached =
            (0..64).any(|i| choose(all.clone(), limit, Fence(start + i * stride)).contains(&patient));
        assert!(reached, "claims of {limit}, {stride} fences apart from {start} on");
    }
}

#[test]
fn never_more_than_asked_for_and_never_twice() {
    let all: Vec<Candidate> =
        (0..20).map(|i| candidate(&format!("k{i}"), (i % 10) as u8, i, i as u64)).collect();
    for limit in 0..25 {
        for turn in 0..5 {
            let chosen = choose(all.clone(), limit, Fence(turn));
            let mut unique = chosen.clone();
            unique.sort();
            unique.dedup();
            assert_eq!((chosen.len(), unique.len()), (limit.min(20), limit.min(20)));
        }
    }
}

#[test]
fn a_lane_with_much_in_it_leaves_the_others_their_turn() {
    let mut all: Vec<Candidate> =
        (0..100).map(|i| in_queue("flood", &format!("f{i}"), 5, i, i as u64)).collect();
    all.push(in_queue("small", "s", 5, 1_000, 200));
    all.push(in_queue("other", "o", 5, 1_001, 201));
    all.push(in_queue("urgent", "u", 9, 1_002, 202));
    // One row goes by age, then the urgent one, then one of each queue.
    let chosen = names(&choose(all.clone(), 5, Fence(1)));
    assert_eq!(chosen[..2], ["f0", "u"]);
    assert!(["f1", "s", "o"].iter().all(|name| chosen.contains(&(*name).to_owned())), "{chosen:?}");
    // With one row at a time, every queue gets its share.
    all.pop();
    let counted = |prefix: &str| {
        let first = |turn| names(&choose(all.clone(), 1, Fence(turn))).concat();
        (0..1_000).filter(|turn| first(*turn).starts_with(prefix)).count()
    };
    let (flood, small, other) = (counted("f"), counted("s"), counted("o"));
    assert!(small > 180 && other > 180 && flood < 640, "{flood} {small} {other}");
}

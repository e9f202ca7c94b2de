//! Truncates: only a prefix of a stream is removed, entirely or not at all, and no number is ever assigned again.

use super::super::batch::{Batch, Expect, NewEvent};
use super::super::limits::TRUNCATE_EVENTS;
use super::super::refusal::Refusal;
use super::super::rows::StreamRow;
use super::super::working_set::Truncated;
use super::*;
use crate::error::{Explain as _, Retry};
use crate::id::{EventType, StreamVersion};
use crate::payload::Payload;

fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|_| NewEvent::new(EventType::new("E").unwrap(), Payload::null())).collect()
}

fn append(count: usize) -> Batch {
    Batch::new().append(&key("s"), Expect::Any, events(count))
}

fn truncate(before: u64) -> Batch {
    Batch::new().truncate(&key("s"), StreamVersion(before))
}

/// Returns the first and the last version that are left.
fn ends(desk: &Desk) -> (Option<u64>, Option<u64>) {
    let row = desk.facts.stream(&key("s")).unwrap();
    (row.oldest().map(|v| v.0), row.head.map(|v| v.0))
}

fn removed(desk: &mut Desk) -> Vec<(u64, u64)> {
    let truncated = desk.facts.take_changes().truncated;
    truncated.into_iter().map(|Truncated { from, before, .. }| (from.0, before.0)).collect()
}

#[test]
fn e7_the_head_stays_whatever_is_removed() {
    let mut desk = Desk::new();
    desk.apply(&append(5), NOW).unwrap();
    assert_eq!(ends(&desk), (Some(0), Some(4)));
    for (before, count, first) in
        [(0, 0, Some(0)), (2, 2, Some(2)), (1, 0, Some(2)), (5, 3, None), (5, 0, None)]
    {
        assert_eq!(desk.apply(&truncate(before), NOW).unwrap().truncated, [count], "before {before}");
        assert_eq!(ends(&desk), (first, Some(4)), "before {before}");
    }
    let receipt = desk.apply(&append(1), NOW).unwrap();
    assert_eq!((receipt.appended[0].first_version.0, receipt.appended[0].first_position.0), (5, 6));
    assert_eq!(ends(&desk), (Some(5), Some(5)));
    assert_eq!(removed(&mut desk), [(0, 5)], "one stream is one removal");
}

#[test]
fn e7_a_truncate_sees_earlier_operations_of_its_batch() {
    let mut desk = Desk::new();
    let batch = append(3).truncate(&key("s"), StreamVersion(2)).append(&key("s"), Expect::Any, events(1));
    let batch = batch.truncate(&key("s"), StreamVersion(4)).truncate(&key("t"), StreamVersion(9));
    assert_eq!(desk.apply(&batch, NOW).unwrap().truncated, [2, 2, 0]);
    assert_eq!(ends(&desk), (None, Some(3)));
    assert!(desk.facts.stream(&key("t")).is_none(), "a stream that is not there is not made");
    let changes = desk.facts.take_changes();
    assert_eq!(changes.events.len(), 4, "events are written before they are removed");
    assert_eq!(changes.truncated.len(), 1);
}

#[test]
fn e7_a_stream_without_events_has_nothing_to_lose() {
    let mut desk = Desk::new();
    desk.apply(&Batch::new().close(&key("s"), Expect::Any), NOW).unwrap();
    assert_eq!(desk.apply(&truncate(7), NOW).unwrap().truncated, [0]);
    assert_eq!(ends(&desk), (None, None));
    assert!(removed(&mut desk).is_empty());
}

#[test]
fn e7_a_closed_stream_can_be_truncated_and_stays_closed() {
    let mut desk = Desk::new();
    desk.apply(&append(2).close(&key("s"), Expect::Any), NOW).unwrap();
    assert_eq!(desk.apply(&truncate(2), at(2_000_000)).unwrap().truncated, [2]);
    let row = desk.facts.stream(&key("s")).unwrap();
    let wanted = StreamRow { head: Some(StreamVersion(1)), first: StreamVersion(2), closed_at: Some(NOW) };
    assert_eq!(*row, wanted);
}

#[test]
fn e7_a_truncate_beyond_the_end_is_refused() {
    let mut desk = Desk::new();
    desk.apply(&append(3), NOW).unwrap();
    let refusal = desk.apply(&truncate(2).truncate(&key("s"), StreamVersion(4)), NOW).unwrap_err();
    let (before, head) = (StreamVersion(4), StreamVersion(2));
    assert_eq!(refusal, Refusal::TruncateBeyond { index: 1, stream: key("s"), before, head });
    assert_eq!((refusal.code().as_str(), refusal.retry()), ("TL0209", Retry::Never));
    assert_eq!(ends(&desk), (Some(0), Some(2)), "nothing of the batch was applied");
    assert!(removed(&mut desk).is_empty());
}

#[test]
fn e7_a_batch_removes_so_many_events_and_no_more() {
    let mut desk = Desk::new();
    let most = usize::try_from(TRUNCATE_EVENTS).unwrap();
    for stream in ["s", "t"] {
        desk.apply(&Batch::new().append(&key(stream), Expect::Any, events(most)), NOW).unwrap();
    }
    desk.apply(&append(5), NOW).unwrap();
    desk.apply(&truncate(3), NOW).unwrap();
    let refusal = desk.apply(&truncate(TRUNCATE_EVENTS + 4), NOW).unwrap_err();
    let (before, step_to) = (StreamVersion(TRUNCATE_EVENTS + 4), StreamVersion(TRUNCATE_EVENTS + 3));
    let found = TRUNCATE_EVENTS + 1;
    assert_eq!(refusal, Refusal::TruncateTooMuch { index: 0, stream: key("s"), before, found, step_to });
    assert_eq!((refusal.code().as_str(), refusal.retry()), ("TL0210", Retry::Never));
    // Removed events of other streams count as well.
    let both = Batch::new().truncate(&key("t"), StreamVersion(1)).truncate(&key("s"), step_to);
    let refusal = desk.apply(&both, NOW).unwrap_err();
    assert!(
        matches!(refusal, Refusal::TruncateTooMuch { index: 1, found, .. } if found == TRUNCATE_EVENTS + 1)
    );
    assert_eq!(desk.apply(&truncate(step_to.0), NOW).unwrap().truncated, [TRUNCATE_EVENTS]);
    assert_eq!(desk.apply(&truncate(before.0), NOW).unwrap().truncated, [1]);
}

#[test]
fn removals_of_a_batch_are_bounded_before_any_read() {
    assert_eq!(append(3).removes_at_most(), 0);
    assert_eq!(truncate(7).truncate(&key("t"), StreamVersion(5)).removes_at_most(), 12);
    assert_eq!(truncate(u64::MAX).truncate(&key("t"), StreamVersion(5)).removes_at_most(), TRUNCATE_EVENTS);
}

#[test]
fn receipts_and_rows_of_older_programs_read_back() {
    let receipt: Receipt = serde_json::from_str(r#"{"at":"1970-01-01T00:00:01Z"}"#).unwrap();
    assert_eq!(receipt.truncated, [0; 0]);
    let row: StreamRow = serde_json::from_str(r#"{"head":4,"closed_at":null}"#).unwrap();
    assert_eq!(row.oldest(), Some(StreamVersion(0)));
    let text = serde_json::to_string(&receipt).unwrap();
    assert!(!text.contains("truncated"), "older programs read it, too: {text}");
}

//! Stored form of records: the text is stable, and the times of the seed are human-readable.

use std::time::Duration;

use super::definition::Schedule;
use super::record::Record;
use super::transition::{self, Ended, Next};
use crate::clock::Timestamp;
use crate::failure::Failure;
use crate::payload::Payload;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn record() -> Record {
    let task = Schedule::new("report").cron("30 2 * * *").zone("Europe/Berlin").retry(Duration::from_mins(5));
    task.run(async |_| Ok(())).check("default", at("2026-01-05T01:30:10Z")).unwrap()
}

#[test]
fn a_record_is_the_same_text_every_time() {
    let mut record = record();
    let now = at("2026-01-05T01:30:10Z");
    let timetable = record.timetable().unwrap();
    let (Next::Run(run), None) = transition::next(&mut record, &timetable, now) else { panic!("it is due") };
    let begun = transition::begin(&mut record, run, "here/1", now);
    transition::end(
        &mut record,
        &begun,
        &Ended::Failed(Failure::new("no paper")),
        at("2026-01-05T01:30:20Z"),
    );
    let text = Payload::of(&record).unwrap();
    let task = r#"{"name":"report","cron_expression":"30 2 * * *","retry_delay_ms":300000,"#.to_owned()
        + r#""last_failure_time":"2026-01-05T01:30:20Z","last_attempt_time":"2026-01-05T01:30:10Z","#
        + r#""pending_retry_until":"2026-01-05T01:35:20Z","scheduler_identifier":"here/1","#;
    assert!(text.as_str().starts_with(&task), "{}", text.as_str());
    let read: Record = text.parse().unwrap();
    assert_eq!(read, record);
    assert_eq!(Payload::of(&read).unwrap(), text);
}

#[test]
fn an_interrupted_run_repeats_under_the_same_firing() {
    let mut record = record();
    let (now, later) = (at("2026-01-05T01:30:10Z"), at("2026-01-05T01:40:00Z"));
    let timetable = record.timetable().unwrap();
    let (Next::Run(first), None) = transition::next(&mut record, &timetable, now) else {
        panic!("it is due")
    };
    record.running = Some(transition::begin(&mut record, first, "here/1", now));
    let (next, lost) = transition::next(&mut record, &timetable, later);
    let Next::Run(second) = next else { panic!("it is due again") };
    assert_eq!((second.fire, second.attempt, second.lost), (first.fire, 2, 1));
    assert_eq!(lost.map(|entry| entry.outcome.word()), Some("lost"));
    assert_eq!(transition::wake(&record, &timetable, later), Some(at("2026-01-06T01:30:00Z")));
}

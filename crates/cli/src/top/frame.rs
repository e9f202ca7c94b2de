//! The screen layout of `top`: a pure function of the snapshot, the view state, and the size.

use std::time::Duration;

use super::snapshot::{Counts, Snapshot};
use crate::output;

/// The panels, in tab order.
const PANELS: [&str; 4] = ["queues", "blocked", "leases", "schedules"];

/// The help text for the keys.
const KEYS: [&str; 5] = [
    "q, Esc, Ctrl-C   ends it",
    "p                pauses and resumes",
    "tab, arrows      the next panel, the one before",
    "up, down         scrolls; PgUp and PgDn by pages",
    "?                shows and hides this",
];

/// The view state of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) panel: usize,
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// The error of the last failed refresh.
    pub(crate) trouble: Option<String>,
}

impl View {
    /// Moves forward by the given number of panels.
    pub(crate) fn turn(&mut self, by: usize) {
        self.panel = (self.panel + by) % PANELS.len();
        self.scroll = 0;
    }

    /// Moves back by one panel.
    pub(crate) fn turn_back(&mut self) {
        self.turn(PANELS.len() - 1);
    }
}

/// Returns the lines of a screen with the given number of columns and rows.
pub(crate) fn frame(seen: &Snapshot, view: &View, (columns, rows): (usize, usize)) -> Vec<String> {
    let mut lines =
        vec![heading(seen, view, columns), events(seen), work(seen), runs(seen), tabs(view, columns)];
    let body = if view.help {
        KEYS.iter().map(|line| (*line).to_owned()).collect()
    } else {
        body(seen, view, columns)
    };
    let foot = usize::from(view.trouble.is_some());
    let room = rows.saturating_sub(lines.len() + foot);
    let mut body = body.into_iter();
    // The column names stay while the rest scrolls.
    let head = if view.help { None } else { body.next() };
    let rest: Vec<String> = body.collect();
    let room = room.saturating_sub(usize::from(head.is_some()));
    let skipped = view.scroll.min(rest.len().saturating_sub(room));
    lines.extend(head);
    lines.extend(rest.into_iter().skip(skipped).take(room));
    lines.extend(view.trouble.clone());
    lines.iter().take(rows).map(|line| fitted(line, columns)).collect()
}

/// Returns all panels as text, one below the other.
pub(crate) fn text(seen: &Snapshot) -> String {
    let mut lines = vec![heading(seen, &View::default(), 80), events(seen), work(seen), runs(seen)];
    for (panel, name) in PANELS.iter().enumerate() {
        lines.extend([String::new(), (*name).to_owned()]);
        lines.extend(body(seen, &View { panel, ..View::default() }, usize::MAX));
    }
    lines.join("\n")
}

fn heading(seen: &Snapshot, view: &View, columns: usize) -> String {
    let left =
        format!("tidelock top  {}{}", output::flat(&seen.store), if view.paused { "  PAUSED" } else { "" });
    apart(&left, &output::instant(seen.at), columns)
}

fn events(seen: &Snapshot) -> String {
    let rate = seen.events_per_second.map(|rate| format!("  {rate:.1}/s")).unwrap_or_default();
    format!("events  {}{rate}", output::number(seen.position))
}

fn work(seen: &Snapshot) -> String {
    let Counts { ready, leased, waiting, blocked, overdue, oldest_seconds } = &seen.work;
    let more = if seen.more_work { "+" } else { "" };
    let oldest = match ready {
        0 => String::new(),
        _ => format!(", oldest {}", output::span(Duration::from_secs(*oldest_seconds))),
    };
    format!(
        "work    {blocked} blocked, {ready}{more} ready, {leased}{more} leased, {waiting}{more} waiting, {overdue}{more} overdue{oldest}"
    )
}

fn runs(seen: &Snapshot) -> String {
    let counts: Vec<String> = seen.runs.iter().map(|(status, count)| format!("{count} {status}")).collect();
    format!("runs    {}", if counts.is_empty() { "none".to_owned() } else { counts.join(", ") })
}

fn tabs(view: &View, columns: usize) -> String {
    let tab =
        |(i, name): (usize, &&str)| if i == view.panel { format!("[{name}]") } else { format!(" {name} ") };
    let tabs: Vec<String> = PANELS.iter().enumerate().map(tab).collect();
    apart(&tabs.join(" "), "? keys", columns)
}

/// Returns the lines of the panel, column names first.
fn body(seen: &Snapshot, view: &View, columns: usize) -> Vec<String> {
    match view.panel {
        1 => stuck(seen, columns),
        2 => leases(seen, columns),
        3 => schedules(seen, columns),
        _ => queues(seen, columns),
    }
}

fn queues(seen: &Snapshot, columns: usize) -> Vec<String> {
    let name = columns.saturating_sub(40).clamp(10, 30);
    let mut lines = vec![format!(
        "{:<name$} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "queue", "blocked", "ready", "leased", "waiting", "oldest"
    )];
    lines.extend(seen.queues.iter().map(|(queue, counts)| {
        let oldest = if counts.ready == 0 {
            String::new()
        } else {
            output::span(Duration::from_secs(counts.oldest_seconds))
        };
        let queue = fitted(&output::flat(queue), name);
        format!(
            "{queue:<name$} {:>7} {:>7} {:>7} {:>7} {oldest:>7}",
            counts.blocked, counts.ready, counts.leased, counts.waiting
        )
    }));
    lines
}

fn stuck(seen: &Snapshot, columns: usize) -> Vec<String> {
    let key = columns.saturating_sub(40).clamp(12, 40);
    let mut lines = vec![format!("{:<key$} {:>8}  reason", "key", "blocked")];
    lines.extend(seen.stuck.iter().map(|stuck| {
        let since = output::span(seen.at.since(stuck.since));
        format!(
            "{:<key$} {since:>8}  {}",
            fitted(&output::harmless(&stuck.key), key),
            output::flat(&stuck.reason)
        )
    }));
    lines
}

fn leases(seen: &Snapshot, columns: usize) -> Vec<String> {
    let key = columns.saturating_sub(44).clamp(12, 40);
    let mut lines = vec![format!("{:<key$} {:>8} {:>7}  owner", "key", "left", "fence")];
    lines.extend(seen.leases.iter().map(|lease| {
        let left = if lease.until.has_come(seen.at) {
            "expired".to_owned()
        } else {
            output::span(lease.until.since(seen.at))
        };
        format!(
            "{:<key$} {left:>8} {:>7}  {}",
            fitted(&output::harmless(&lease.key), key),
            lease.fence,
            output::flat(&lease.owner)
        )
    }));
    lines
}

fn schedules(seen: &Snapshot, columns: usize) -> Vec<String> {
    let name = columns.saturating_sub(42).clamp(10, 30);
    let mut lines = vec![format!("{:<name$} {:<20} {:>7} {:>8}", "task", "next", "runs", "failures")];
    lines.extend(seen.schedules.iter().map(|task| {
        let next = task.next.map_or_else(|| "-".to_owned(), output::instant);
        format!(
            "{:<name$} {next:<20} {:>7} {:>8}",
            fitted(&output::flat(&task.name), name),
            task.runs,
            task.failures
        )
    }));
    lines
}

/// Aligns two texts to the two ends of a line, if both have room.
fn apart(left: &str, right: &str, columns: usize) -> String {
    let room = columns.saturating_sub(left.chars().count() + right.chars().count());
    if room < 2 { left.to_owned() } else { format!("{left}{}{right}", " ".repeat(room)) }
}

/// Truncates a line to this number of columns.
fn fitted(line: &str, columns: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() <= columns {
        line.to_owned()
    } else {
        output::cut(line, columns.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidelock::prelude::*;

    use super::super::snapshot::{Lease, Stuck, Task};
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_000_000_000 + seconds) * 1_000_000)
    }

    fn seen() -> Snapshot {
        let mails = Counts { ready: 5, leased: 3, waiting: 2, blocked: 1, overdue: 1, oldest_seconds: 75 };
        let queues = (0..30).map(|n| (format!("queue-{n:02}"), Counts { waiting: n, ..Counts::default() }));
        let queues: BTreeMap<String, Counts> =
            queues.chain([("a-mails".to_owned(), mails.clone())]).collect();
        let stuck = Stuck {
            key: r#"mail("o-1")"#.to_owned(),
            queue: "a-mails".to_owned(),
            since: at(-300),
            reason: "bad\u{1b}[31m\naddress".to_owned(),
        };
        let lease = |key: &str, until| Lease {
            key: key.to_owned(),
            owner: "worker\u{202e}-1".to_owned(),
            fence: 17,
            until: at(until),
        };
        let task = Task { name: "report".to_owned(), next: Some(at(3_600)), runs: 12, failures: 1 };
        Snapshot {
            store: "sqlite".to_owned(),
            at: at(0),
            position: 1_234_567,
            events_per_second: Some(42.0),
            work: mails,
            more_work: false,
            queues,
            runs: BTreeMap::from([("completed", 200), ("running", 10)]),
            leases: vec![lease(r#"mail("o-2")"#, -5), lease(r#"mail("o-3")"#, 20)],
            stuck: vec![stuck],
            schedules: vec![task],
        }
    }

    fn drawn(view: &View, size: (usize, usize)) -> String {
        let lines = frame(&seen(), view, size);
        assert!(lines.len() <= size.1, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{lines:#?}");
        lines.join("\n")
    }

    /// Compares with the file of this name; with `BLESS` in the environment, writes it.
    fn golden(name: &str, view: &View, size: (usize, usize)) {
        let path = format!("{}/src/top/frames/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let drawn = drawn(view, size) + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &drawn).unwrap();
        }
        assert_eq!(
            drawn,
            std::fs::read_to_string(&path).unwrap(),
            "{name}: look at it, and set BLESS if it is right"
        );
    }

    #[test]
    fn a_screen_of_80_by_24() {
        golden("80x24", &View::default(), (80, 24));
        golden("80x24-stuck", &View { panel: 1, paused: true, ..View::default() }, (80, 24));
    }

    #[test]
    fn a_screen_of_40_by_12() {
        let trouble = Some("warning[TL0308]: the server is away".to_owned());
        golden("40x12", &View { panel: 2, trouble, ..View::default() }, (40, 12));
    }

    #[test]
    fn scrolling_ends_with_the_last_line_and_keeps_the_names_of_the_columns() {
        let far = drawn(&View { scroll: 1_000, ..View::default() }, (80, 24));
        assert!(far.contains("queue-29") && far.contains("blocked   ready"), "{far}");
        assert!(!far.contains("a-mails"));
    }

    #[test]
    fn every_size_is_drawn_and_nothing_plays_tricks() {
        for panel in 0..PANELS.len() {
            for size in [(0, 0), (1, 1), (10, 3), (200, 60)] {
                let drawn = drawn(&View { panel, ..View::default() }, size);
                assert!(!drawn.contains(['\u{1b}', '\u{202e}']), "{drawn:?}");
            }
        }
        assert!(drawn(&View { help: true, ..View::default() }, (80, 24)).contains("ends it"));
        assert!(text(&seen()).contains("schedules") && text(&seen()).contains("queue-29"));
    }

    #[test]
    fn panels_go_round() {
        let mut view = View { scroll: 3, ..View::default() };
        view.turn_back();
        assert_eq!((view.panel, view.scroll), (3, 0));
        view.turn(1);
        assert_eq!(view.panel, 0);
    }
}

//! The process table: running processes, their parents, and signals to them.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// One row of the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
    state: char,
}

impl Process {
    /// Returns whether the process runs. A zombie does not count.
    fn runs(self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    fn is_halted(self) -> bool {
        matches!(self.state, 'T' | 't' | 'Z' | 'X')
    }
}

/// The time a process may take to be suspended or to exit.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);

/// Sends a signal. A process that has exited is ignored.
pub(crate) fn signal(id: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(id).filter(|pid| !pid.is_init()) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Kills a process and all its descendants. The parent is suspended first, so that it cannot start another
/// child. Returns the processes that should exit soon.
pub(crate) fn kill_family(id: i32) -> Vec<i32> {
    let family = halt(id);
    family.iter().for_each(|member| signal(*member, Signal::KILL));
    family
}

/// Suspends a process and all its descendants, the parent first. They keep their connections and respond to
/// none.
pub(crate) fn halt_family(id: i32) {
    halt(id).iter().for_each(|member| signal(*member, Signal::STOP));
}

/// Resumes a suspended process and all its descendants.
pub(crate) fn resume_family(id: i32) {
    family(&table(), id).iter().for_each(|member| signal(*member, Signal::CONT));
}

/// Suspends a process and returns it with all its descendants.
fn halt(id: i32) -> Vec<i32> {
    signal(id, Signal::STOP);
    until(|| table().iter().all(|process| process.id != id || process.is_halted()));
    family(&table(), id)
}

/// Waits until all of them have exited, and returns those that still run at the time limit.
pub(crate) fn wait_until_gone(ids: &[i32]) -> Vec<i32> {
    let mut left = ids.to_vec();
    until(|| {
        let table = table();
        left.retain(|id| table.iter().any(|process| process.id == *id && process.runs()));
        left.is_empty()
    });
    left
}

/// Polls until the condition holds or the time limit is reached.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < LIMIT {
        std::thread::sleep(POLL);
    }
}

/// Returns a process and all its descendants.
fn family(table: &[Process], id: i32) -> Vec<i32> {
    let mut family = vec![id];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let children = table.iter().filter(|process| process.parent == parent).map(|process| process.id);
        let new: Vec<i32> = children.filter(|child| !family.contains(child)).collect();
        family.extend(new);
        next += 1;
    }
    family
}

/// Returns all processes: from `/proc`, or from `ps` where there is none.
fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return listed() };
    let processes = entries.filter_map(Result::ok).filter_map(|entry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)
    });
    processes.collect()
}

/// Parses `17 (name with (any) text) S 1 …`.
fn parse_stat(line: &str) -> Option<Process> {
    let (id, _) = line.split_once(" (")?;
    let (_, rest) = line.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    Some(Process { id: id.parse().ok()?, parent: fields.next()?.parse().ok()?, state })
}

fn listed() -> Vec<Process> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(parse_listed).collect()
}

/// Parses `17 1 Ss+`.
fn parse_listed(line: &str) -> Option<Process> {
    let mut fields = line.split_whitespace();
    let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Process { id, parent, state: fields.next()?.chars().next()? })
}

#[cfg(test)]
mod tests {
    use super::{Process, family, listed, parse_listed, parse_stat, table};

    #[test]
    fn rows_are_read_whatever_a_process_is_called() {
        let process = Process { id: 17, parent: 1, state: 'S' };
        assert_eq!(parse_stat("17 (a) b (c)) S 1 17 17 0 -1"), Some(process));
        assert_eq!(parse_listed("   17     1 Ss+"), Some(process));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_family_is_found_whatever_the_order_of_the_rows() {
        let row = |id, parent| Process { id, parent, state: 'S' };
        let rows = [row(5, 4), row(4, 2), row(3, 1), row(2, 1), row(9, 3)];
        let mut found = family(&rows, 2);
        found.sort_unstable();
        assert_eq!(found, [2, 4, 5]);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(table().iter().any(|process| process.id == own && process.runs()));
        let listed = listed();
        assert!(listed.is_empty() || listed.iter().any(|process| process.id == own));
    }
}

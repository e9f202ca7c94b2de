//! Trace of a history: one file to which all clients of all processes append.
//!
//! Each line is one write to a file that is open for appending, so the order of the lines is an order of real time: a line
//! before a call, a line after an end. Lines of a killed process stay.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidelock_core::id::OpId;

use crate::history::list_append::{Executed, Reading, Transaction};
use crate::history::{Operation, Outcome};

/// The trace. It is removed with the value that created it.
#[derive(Debug)]
pub(super) struct Trace {
    path: PathBuf,
    file: File,
    owned: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: OpId,
    entry: Entry,
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Call {
        client: usize,
        asked: Transaction,
    },
    Ok(Vec<Reading>),
    Failed,
    /// The client does not know the outcome, and may ask for it later.
    Unknown,
}

impl Trace {
    /// Creates an empty trace in the directory for temporary files.
    pub(super) fn create() -> Self {
        let path = std::env::temp_dir().join(format!("tidelock-trace-{}.jsonl", OpId::new()));
        File::create(&path).expect("the directory for temporary files can be written");
        let mut trace = Self::open(&path);
        trace.owned = true;
        trace
    }

    /// Opens the trace of another process.
    pub(super) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).open(path).expect("the trace exists");
        Self { path: path.to_owned(), file, owned: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records the call of a transaction, just before it.
    pub(super) fn call(&self, client: usize, asked: Transaction) -> OpId {
        let id = OpId::new();
        self.write(id, Entry::Call { client, asked });
        id
    }

    /// Records the end of a transaction, just after it or when the outcome becomes known.
    pub(super) fn end(&self, id: OpId, outcome: Outcome<Vec<Reading>>) {
        self.write(
            id,
            match outcome {
                Outcome::Ok(readings) => Entry::Ok(readings),
                Outcome::Failed => Entry::Failed,
                Outcome::Unknown => Entry::Unknown,
            },
        );
    }

    fn write(&self, id: OpId, entry: Entry) {
        let mut line = serde_json::to_string(&Line { id, entry }).expect("a line is JSON");
        line.push('\n');
        (&self.file).write_all(line.as_bytes()).expect("the trace can be written");
    }

    /// Returns the transactions in the order of their calls.
    pub(super) fn history(&self) -> Vec<Executed> {
        let (mut at, mut history): (BTreeMap<OpId, usize>, Vec<Executed>) = (BTreeMap::new(), Vec::new());
        for (now, Line { id, entry }) in (1..).zip(self.lines()) {
            let outcome = match entry {
                Entry::Call { client, asked } => {
                    at.insert(id, history.len());
                    let (key, outcome) = (String::new(), Outcome::Unknown);
                    history.push(Operation { client, key, asked, call: now, end: u64::MAX, outcome });
                    continue;
                }
                Entry::Ok(readings) => Outcome::Ok(readings),
                Entry::Failed => Outcome::Failed,
                Entry::Unknown => continue,
            };
            if let Some(transaction) = at.get(&id).and_then(|at| history.get_mut(*at)) {
                (transaction.end, transaction.outcome) = (now, outcome);
            }
        }
        history
    }

    /// Returns the transactions without a known outcome.
    pub(super) fn in_doubt(&self) -> Vec<OpId> {
        let mut doubts = BTreeMap::new();
        for Line { id, entry } in self.lines() {
            doubts.insert(id, matches!(entry, Entry::Call { .. } | Entry::Unknown));
        }
        doubts.into_iter().filter_map(|(id, doubt)| doubt.then_some(id)).collect()
    }

    /// Returns how many transactions in doubt were resolved as applied, and as not applied.
    pub(super) fn resolved(&self) -> (usize, usize) {
        let (mut doubts, mut counts) = (BTreeMap::new(), (0, 0));
        for Line { id, entry } in self.lines() {
            let doubted = doubts.insert(id, matches!(entry, Entry::Unknown)).unwrap_or_default();
            match entry {
                Entry::Ok(_) if doubted => counts.0 += 1,
                Entry::Failed if doubted => counts.1 += 1,
                _ => {}
            }
        }
        counts
    }

    fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.path).expect("the trace can be read");
        // A kill may have cut a line short.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.owned {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

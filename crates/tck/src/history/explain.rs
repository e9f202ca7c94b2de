//! Why a history has no order, in as few operations as tell it.
//!
//! A broken history stays broken whatever comes later, so its shortest broken beginning is found by halving. That
//! beginning ends with the one answer without which all before it could still be explained.

use std::error::Error;
use std::fmt::{self, Debug, Write as _};

use super::search::{self, Deepest, Found};
use super::{Model, Operation, OperationOf, Outcome};

/// How many operations of each kind a message shows.
const SHOWN: usize = 8;

/// Why there is no order.
#[derive(Clone, Debug)]
pub enum Trouble<S> {
    /// There is none.
    Broken(Box<Broken<S>>),
    /// The steps were used up before one was found or ruled out. Record fewer operations whose outcome nobody knows, or
    /// allow more steps.
    Undecided {
        /// Of which key.
        key: String,
        /// How many operations the key has.
        operations: usize,
        /// How many of those that were answered had a place, at most.
        placed: usize,
        /// How many steps were allowed.
        most_steps: u64,
    },
}

/// A key whose history has no order. Operations are numbers among those of this key, in the order of the history.
#[derive(Clone, Debug)]
pub struct Broken<S> {
    /// The key.
    pub key: String,
    /// The operation whose answer is the first that cannot be explained any more.
    pub answer: usize,
    /// The longest order that was found for what was answered up to then.
    pub placed: Vec<usize>,
    /// What the key is after it, as the model says.
    pub state: S,
    /// The operations that would have to come next, of which none fits.
    pub stuck: Vec<usize>,
    text: String,
}

impl<S: Debug> fmt::Display for Trouble<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(broken) => f.write_str(&broken.text),
            Self::Undecided { key, operations, placed, most_steps } => write!(
                f,
                "key {key:?}: {most_steps} steps did not decide whether its {operations} operations have an order; \
                 at most {placed} had a place. Record fewer operations with unknown outcomes, or allow more steps"
            ),
        }
    }
}

impl<S: Debug> Error for Trouble<S> {}

/// The shortest beginning of the history that has no order, or that nobody knows.
pub(super) fn trouble<M: Model>(
    model: &M,
    key: &str,
    history: &[&OperationOf<M>],
    whole: Found<M::State>,
    most_steps: u64,
) -> Trouble<M::State> {
    let answered = |o: &&OperationOf<M>| matches!(o.outcome, Outcome::Ok(_)).then_some(o.end);
    let mut ends: Vec<u64> = history.iter().filter_map(answered).collect();
    ends.sort_unstable();
    let (mut placed, mut broken) = (0, None);
    // Every beginning before `low` has an order. One that takes too long may have a shorter one that is broken.
    let (mut low, mut high) = (0, ends.len());
    let mut middle = high / 2;
    match whole {
        Found::None(deepest) => {
            // Where the longest order ends is a good guess.
            let next = deepest.stuck.iter().map(|n| history[*n].end).min().unwrap_or_default();
            middle = ends.partition_point(|end| *end < next);
            broken = ends.last().map(|end| (*end, deepest));
        }
        Found::TooLong { placed: most } => placed = most,
        Found::Order { .. } => {}
    }
    while low < high {
        match search::run(model, history, ends[middle], most_steps) {
            Found::Order { .. } => low = middle + 1,
            Found::TooLong { .. } => high = middle,
            Found::None(deepest) => {
                broken = Some((ends[middle], deepest));
                high = middle;
            }
        }
        middle = usize::midpoint(low, high);
    }
    let Some((end, deepest)) = broken else {
        return Trouble::Undecided { key: key.to_owned(), operations: history.len(), placed, most_steps };
    };
    let answer = history.iter().position(|o| o.end == end).unwrap_or_default();
    let text = tell(key, history, answer, &deepest);
    let Deepest { placed, state, stuck } = deepest;
    Trouble::Broken(Box::new(Broken { key: key.to_owned(), answer, placed, state, stuck, text }))
}

fn tell<Q: Debug, A: Debug, S: Debug>(
    key: &str,
    history: &[&Operation<Q, A>],
    answer: usize,
    deepest: &Deepest<S>,
) -> String {
    let Deepest { placed, state, stuck } = deepest;
    let begun = stuck.iter().map(|n| history[*n].call).min().unwrap_or_default();
    let end = history[answer].end;
    let mut text = format!("key {key:?} has no order that explains its answers.");
    let mut list = |title: &str, which: Vec<usize>| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{title}");
        for n in which {
            let _ = write!(text, "\n  {}", line(history[n], end));
        }
    };
    list("All can be explained until this answer:", vec![answer]);
    let left = placed.len().saturating_sub(SHOWN);
    let title = format!("The longest order has {} operations; its last are:", placed.len());
    list(&title, placed[left..].to_vec());
    list(&format!("Then the key is {state:?}, and none of these can come next:"), stuck.clone());
    let about = |n: usize| history[n].call < end && history[n].end > begun && !placed.contains(&n);
    let all = 0..history.len();
    let unknown: Vec<usize> =
        all.clone().filter(|n| about(*n) && matches!(history[*n].outcome, Outcome::Unknown)).collect();
    let failed: Vec<usize> =
        all.filter(|n| about(*n) && matches!(history[*n].outcome, Outcome::Failed)).collect();
    let latest = |which: Vec<usize>| which[which.len().saturating_sub(SHOWN)..].to_vec();
    if !unknown.is_empty() {
        list(&format!("Nobody knows whether {} others happened:", unknown.len()), latest(unknown));
    }
    if !failed.is_empty() {
        list(&format!("These {} did not happen, as they were told:", failed.len()), latest(failed));
    }
    text
}

/// An operation, with its answer if it had one by then.
fn line<Q: Debug, A: Debug>(operation: &Operation<Q, A>, until: u64) -> String {
    let Operation { client, asked, call, end, outcome, .. } = operation;
    let head = |end: String| format!("client {client} [{call}..{end}] {asked:?} ->");
    match outcome {
        Outcome::Ok(answer) if *end <= until => format!("{} {answer:?}", head(end.to_string())),
        Outcome::Ok(_) => format!("{} not answered yet", head(String::new())),
        Outcome::Failed => format!("{} failed", head(end.to_string())),
        Outcome::Unknown if *end == u64::MAX => format!("{} unknown", head(String::new())),
        Outcome::Unknown => format!("{} unknown", head(end.to_string())),
    }
}

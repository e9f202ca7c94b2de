//! Explanation of a broken history, in the fewest operations that show it.
//!
//! A broken history stays broken whatever follows. The module therefore finds the shortest broken prefix by bisection.
//! That prefix ends with the one answer without which all earlier answers could still be explained.

use std::error::Error;
use std::fmt::{self, Debug, Write as _};

use super::search::{self, Deepest, Found};
use super::{Model, Operation, OperationOf, Outcome};

/// Maximum number of operations of each kind in a message.
const SHOWN: usize = 8;

/// The reason why the search found no order.
#[derive(Clone, Debug)]
pub enum Trouble<S> {
    /// No order exists.
    Broken(Box<Counterexample<S>>),
    /// The step limit was reached before the search found an order or ruled one out. Record fewer operations with
    /// unknown outcomes, or allow more steps.
    Undecided {
        /// The key.
        key: String,
        /// Number of operations on the key.
        operations: usize,
        /// The greatest number of answered operations that the search placed.
        placed: usize,
        /// The step limit.
        most_steps: u64,
    },
}

/// A key whose history has no order. Operations are identified by their index among those of this key, in history
/// order.
#[derive(Clone, Debug)]
pub struct Counterexample<S> {
    /// The key.
    pub key: String,
    /// The first operation whose answer no order can explain.
    pub answer: usize,
    /// The longest order found for the operations answered up to then.
    pub placed: Vec<usize>,
    /// The state of the key after this order, according to the model.
    pub state: S,
    /// The candidates for the next operation, none of which fits.
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

/// Finds the shortest prefix of the history that has no order, or that the search could not decide.
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
    // Every prefix before `low` has an order. A prefix that exceeds the step limit may have a shorter, broken prefix.
    let (mut low, mut high) = (0, ends.len());
    let mut middle = high / 2;
    match whole {
        Found::None(deepest) => {
            // The end of the longest order is a good first guess.
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
    let text = render(key, history, answer, &deepest);
    let Deepest { placed, state, stuck } = deepest;
    Trouble::Broken(Box::new(Counterexample { key: key.to_owned(), answer, placed, state, stuck, text }))
}

fn render<Q: Debug, A: Debug, S: Debug>(
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
        list(&format!("{} others have an unknown outcome:", unknown.len()), latest(unknown));
    }
    if !failed.is_empty() {
        list(&format!("{} others were rejected:", failed.len()), latest(failed));
    }
    text
}

/// Formats an operation, with its answer if it had one by `until`.
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

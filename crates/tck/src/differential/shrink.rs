//! Shrinking of a failing history: it removes chunks, then single effects, while the history still fails.

use super::command::{Act, Command, Step};

/// Upper bound of attempts, because each attempt needs a new database.
const MOST_RUNS: usize = 400;

/// Returns the shortest failing history that was found.
pub(super) async fn shorten(steps: Vec<Step>, fails: impl AsyncFn(&[Step]) -> bool) -> Vec<Step> {
    let mut patience = MOST_RUNS;
    let steps = shorten_list(steps, &mut patience, async |list: &[Step]| fails(list).await).await;
    shorten_batches(steps, &mut patience, fails).await
}

/// Removes chunks, halving their size until they are single items.
async fn shorten_list<T: Clone>(
    mut list: Vec<T>,
    patience: &mut usize,
    fails: impl AsyncFn(&[T]) -> bool,
) -> Vec<T> {
    let mut chunk = list.len().div_ceil(2);
    while chunk > 0 && *patience > 0 {
        let mut removed = false;
        let mut at = 0;
        while at < list.len() && *patience > 0 {
            let mut shorter = list.clone();
            shorter.drain(at..(at + chunk).min(list.len()));
            *patience -= 1;
            if fails(&shorter).await {
                list = shorter;
                removed = true;
            } else {
                at += chunk;
            }
        }
        // A round of single items that removed something may have made other items superfluous.
        if !(chunk == 1 && removed) {
            chunk /= 2;
        }
    }
    list
}

async fn shorten_batches(
    mut steps: Vec<Step>,
    patience: &mut usize,
    fails: impl AsyncFn(&[Step]) -> bool,
) -> Vec<Step> {
    for i in 0..steps.len() {
        let Command::Apply { op, acts } = steps[i].command.clone() else { continue };
        let with = |acts: &[Act]| {
            let mut all = steps.clone();
            all[i].command = Command::Apply { op, acts: acts.to_vec() };
            all
        };
        let acts = shorten_list(acts, patience, async |acts| fails(&with(acts)).await).await;
        steps = with(&acts);
    }
    steps
}

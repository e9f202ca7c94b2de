//! Load generator that writes through every connection path, keeps a ledger, and compares it with the store at the end.
//!
//! It is the example `ha_load` of `tidelock-postgres`. It reads commands from its standard input and prints lines: `ready`,
//! `counts NAME=N …` several times a second, and one `result NAME=N …` at the end.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use super::cluster::{Cluster, until};

/// Numbers by name.
pub(crate) type Numbers = BTreeMap<String, i64>;

/// The maximum time from a healthy cluster to acknowledged writes on every connection path, and to a result.
const FLOW_LIMIT: Duration = Duration::from_secs(60);
const RESULT_LIMIT: Duration = Duration::from_secs(180);
/// The number of acknowledgements after which a connection path counts as working.
const FLOWING: i64 = 10;

/// The state that the program has printed.
#[derive(Default)]
struct LoadState {
    ready: bool,
    counts: Numbers,
    result: Option<Numbers>,
    ended: bool,
}

/// A running load.
pub(crate) struct Load {
    child: Child,
    input: ChildStdin,
    heard: Arc<Mutex<LoadState>>,
}

impl Load {
    /// Starts the program on a separate schema, and waits until it writes.
    pub(crate) fn start(program: &Path, cluster: &Cluster, schema: &str, seed: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([schema, &seed.to_string()]).current_dir(cluster.home());
        // The addresses contain a password. Arguments would show it to all users of the machine.
        for (name, address) in cluster.addresses() {
            command.env(format!("TIDELOCK_HA_{}", name.to_uppercase()), address);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("the load has no input")?;
        let output = child.stdout.take().context("the load has no output")?;
        let heard = Arc::new(Mutex::new(LoadState::default()));
        let shared = Arc::clone(&heard);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                hear(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), &line);
            }
            shared.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        });
        let load = Self { child, input, heard };
        load.wait(FLOW_LIMIT, |heard| heard.ready.then_some(())).context("the load does not start")?;
        Ok(load)
    }

    /// Waits for output of the program. Returns `None` after the time limit, or when the program has ended.
    fn wait<T>(&self, limit: Duration, mut look: impl FnMut(&mut LoadState) -> Option<T>) -> Option<T> {
        let found = until(limit, || {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            match look(&mut heard) {
                Some(found) => Some(Some(found)),
                None => heard.ended.then_some(None),
            }
        });
        found.flatten()
    }

    fn counts(&self) -> Numbers {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).counts.clone()
    }

    /// Waits until every connection path acknowledges writes again. Returns the paths that do not.
    pub(crate) fn flows(&self) -> Vec<String> {
        let before = self.counts();
        let stuck = |counts: &Numbers| -> Vec<String> {
            let more =
                |name: &str| counts.get(name).zip(before.get(name)).map_or(0, |(now, then)| now - then);
            before.keys().filter(|name| more(name) < FLOWING).cloned().collect()
        };
        self.wait(FLOW_LIMIT, |heard| stuck(&heard.counts).is_empty().then_some(()));
        stuck(&self.counts())
    }

    /// Notifies the program that a new primary was promoted now.
    pub(crate) fn promoted(&mut self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        Ok(writeln!(self.input, "promoted {now}")?)
    }

    /// Stops the load and returns the result of the comparison.
    pub(crate) fn end(mut self) -> Result<Numbers> {
        writeln!(self.input, "stop")?;
        match self.wait(RESULT_LIMIT, |heard| heard.result.take()) {
            Some(result) => Ok(result),
            None => bail!("the load has no result"),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn hear(heard: &mut LoadState, line: &str) {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("ready", _) => heard.ready = true,
        ("counts", rest) => heard.counts = numbers(rest),
        ("result", rest) => heard.result = Some(numbers(rest)),
        _ => println!("    {line}"),
    }
}

/// Reads `a=1 b=2`.
fn numbers(text: &str) -> Numbers {
    let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::{LoadState, hear, numbers};

    #[test]
    fn the_lines_of_the_load_are_read() {
        let mut heard = LoadState::default();
        hear(&mut heard, "counts hosts=3 haproxy=4");
        assert!(heard.result.is_none() && !heard.ready);
        hear(&mut heard, "ready");
        hear(&mut heard, "result lost=-1");
        assert_eq!(heard.counts, numbers("haproxy=4 hosts=3"));
        assert!(heard.ready && heard.result == Some(numbers("lost=-1")));
    }
}

//! Differential test: one seeded history runs on the reference store and on the backend, and every answer is compared.
//!
//! A history is a list of symbolic commands ("the lease of the third grant", "one version behind"). It therefore means
//! the same on both sides, although positions and fences may be different numbers. A backend may leave gaps in both, so
//! only their order is compared. When an answer differs, the history is shortened while it still fails, and printed
//! with its seed.
//!
//! `TIDELOCK_SEED` replays one history. `TIDELOCK_SEQUENCES` and `TIDELOCK_STEPS` set the number of histories and their
//! length.

mod command;
mod generate;
mod resolve;
mod show;
mod shrink;
mod side;

use std::fmt;
use std::sync::Arc;

use tidelock_core::clock::ManualClock;
use tidelock_core::store::MemoryStore;

use self::command::Step;
use self::resolve::SharedFacts;
use self::side::Side;
use crate::Backend;
use crate::conn::Conn;
use crate::run;

const SEQUENCES: u64 = 12;
const STEPS: u64 = 80;

/// Two answers that differ.
#[derive(Debug)]
struct Difference {
    step: usize,
    what: String,
    expected: String,
    found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, what, expected, found } = self;
        write!(f, "step {step}: {what}\n  the reference says: {expected}\n  the backend says:   {found}")
    }
}

/// Runs the number of histories that the environment sets, or the default.
///
/// # Panics
/// If an answer differs. The message contains the seed, the shortened history and both answers.
pub async fn check(backend: &dyn Backend) {
    let base = run::seed();
    let replay = std::env::var_os("TIDELOCK_SEED").is_some();
    let sequences = if replay { 1 } else { run::setting("TIDELOCK_SEQUENCES", SEQUENCES) };
    for i in 0..sequences {
        check_seed(backend, base.wrapping_add(i)).await;
    }
    run::say(&format!("tck: {sequences} histories from seed {base} agree on {}", backend.name()));
}

/// Runs the history of one seed.
///
/// # Panics
/// If an answer differs. The message contains the seed, the shortened history and both answers.
pub async fn check_seed(backend: &dyn Backend, seed: u64) {
    let steps = run::setting("TIDELOCK_STEPS", STEPS);
    let history = generate::history(seed, usize::try_from(steps).unwrap_or(usize::MAX));
    let Err(first) = compare(backend, &history).await else { return };
    let short = shrink::shorten(history, async |history| compare(backend, history).await.is_err()).await;
    // The shortened history may fail for another reason, but usually for the same one.
    let last = compare(backend, &short).await.err().unwrap_or(first);
    let listed: Vec<String> = short.iter().enumerate().map(|(i, c)| format!("  {i}: {c:?}")).collect();
    let name = backend.name();
    panic!(
        "{name} differs from the reference; replay with TIDELOCK_SEED={seed} TIDELOCK_STEPS={steps}\n\
         shortened to {} commands:\n{}\n{last}",
        short.len(),
        listed.join("\n"),
    );
}

/// Runs a history on both sides. The backend receives it over two connections, so that neither can rely on cached rows
/// that the other has changed.
async fn compare(backend: &dyn Backend, history: &[Step]) -> Result<(), Box<Difference>> {
    let clock = Arc::new(ManualClock::default());
    let memory = Conn(Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _)));
    let mut reference = Side::new([memory.clone(), memory], clock);
    let clock = Arc::new(ManualClock::default());
    let database = backend.fresh(Arc::clone(&clock)).await;
    let mut tested = Side::new([Conn(database.connect().await), Conn(database.connect().await)], clock);
    for (step, what) in history.iter().enumerate() {
        let facts = SharedFacts::of(&reference, tested.turn()).await;
        let expected = reference.perform(what, &facts).await;
        let found = tested.perform(what, &facts).await;
        if expected != found {
            return Err(Box::new(Difference { step, what: format!("{what:?}"), expected, found }));
        }
    }
    let (expected, found) = (reference.everything(history).await, tested.everything(history).await);
    if let Some((expected, found)) =
        expected.into_iter().zip(found).find(|(expected, found)| expected != found)
    {
        let (step, what) = (history.len(), "everything that can be read at the end".to_owned());
        return Err(Box::new(Difference { step, what, expected, found }));
    }
    Ok(())
}

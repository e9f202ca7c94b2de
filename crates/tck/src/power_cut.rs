//! Power-cut test for stores on files: everything that was not flushed may be lost, reordered or torn.
//!
//! ```text
//!  child process ── file system calls ──> recorder.c (LD_PRELOAD) ── changes and notes in one order ──> log
//!                                                                                                       │ first k changes
//!  check, continue, check again <── real directory <── content after the cut <── loss (seed) <── disk model
//! ```
//!
//! A child process works with a recorder preloaded. It notes each acknowledgement in a file of the same directory, so the log
//! holds changes and acknowledgements in one order. A cut is a moment in that log. The model of the disk knows
//! which changes were flushed by then. The seed decides about the others. The store is then opened on the result: each
//! acknowledged batch must be there, none in part, and all numbers must continue.
//!
//! One recording serves many cuts. Some recordings consist of several processes, of which the first was killed at some
//! change, as unflushed changes outlive a process. Some cuts are followed by a second one, in a recording of the recovery.
//!
//! The recorder needs Linux and a C compiler. Without them the tests are skipped, and fail if `CI` is set.

mod disk;
mod log;
mod loss;
mod recorder;
mod storage;
mod verify;
mod workload;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use tidelock_core::clock::SystemClock;

use self::disk::{Disk, Image};
use self::log::Change;
use self::loss::{Extent, Loss};
use self::recorder::{Life, Recording};
use self::storage::Storage;
use self::workload::Notes;
use crate::Backend;
use crate::conn::Conn;
use crate::rng::Rng;
use crate::run::say;

pub(crate) use self::workload::{Work, live};

/// Number of cuts in each recording.
const CUTS: u64 = 10;
/// The variable that names the log of a failed cut.
const REPLAY: &str = "TIDELOCK_POWER_CUT_REPLAY";
/// The end of the names of logs that show a recovery.
const SECOND: &str = ".second";
/// Number of steps of each task after a cut.
const STEPS_AFTER: u64 = 2;

/// The result of a series of cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of cuts, second cuts during the recovery included.
    pub cuts: u64,
    /// The number of second cuts.
    pub second: u64,
    /// Notes of acknowledgements that were checked, over all cuts.
    pub acknowledged: usize,
    /// The number of cuts that lost or tore an unflushed change.
    pub lossy: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuts, second, acknowledged, lossy } = self;
        write!(f, "{cuts} power cuts, {second} of them during recovery, {lossy} with losses: ")?;
        write!(f, "{acknowledged} acknowledgements checked, lost 0")
    }
}

/// The promises that a store keeps over a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Acknowledged writes survive, and batches are whole.
    Durable,
    /// Batches are whole. The last acknowledged writes may be missing.
    Atomic,
}

/// A device that acknowledges flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// It carries them out.
    Honest,
    /// It does nothing. No store survives a power cut on such a device, so checks that pass are blind.
    IgnoresFlushes,
}

/// A rig that cuts the power of stores on files.
#[derive(Debug)]
pub struct PowerCuts {
    library: PathBuf,
    scratch: PathBuf,
    /// The directory of the store. In memory where possible: its real flushes would only take time.
    disk: PathBuf,
}

impl PowerCuts {
    /// Prepares the rig in an empty directory. Returns `None`, and prints why, where it cannot run.
    ///
    /// # Panics
    /// If it cannot run and the environment has `CI`.
    #[must_use]
    pub fn prepare(scratch: &Path) -> Option<Self> {
        match recorder::compile(scratch) {
            Ok(library) => Some(Self { library, scratch: scratch.to_owned(), disk: disk(scratch) }),
            Err(reason) => {
                say(&format!("tck: power cuts are skipped: {reason}"));
                assert!(std::env::var_os("CI").is_none(), "power cuts cannot be tested: {reason}");
                None
            }
        }
    }

    /// Cuts the power once for each seed, and checks the store after each cut. The test program must contain
    /// [`conformance!`](crate::conformance) or [`child!`](crate::child).
    ///
    /// `TIDELOCK_POWER_CUT_REPLAY` names the log of a failed cut; its seed then fails in the same way.
    ///
    /// # Panics
    /// If the store broke a promise. The message names the seed and the log.
    pub async fn rounds(&self, backend: &dyn Backend, promise: Promise, seeds: Range<u64>) -> Report {
        let mut report = Report::default();
        let mut current: Option<(u64, Recording, Storage)> = None;
        for seed in seeds {
            let group = seed / CUTS;
            let (recording, storage) = match current.take() {
                Some((known, recording, storage)) if known == group => (recording, storage),
                _ => {
                    let failure = Failure::of_seed(seed, &self.scratch.join("log"));
                    let made = self.recording(backend, group).await;
                    drop(failure);
                    made
                }
            };
            let stage = if replayed().is_some_and(|log| log.ends_with(SECOND)) {
                Stage::Second
            } else {
                Stage::First
            };
            let cut = Cut { backend, promise, seed, stage, recording: &recording, storage: &storage };
            self.cut(cut, &mut report).await;
            current = Some((group, recording, storage));
        }
        report
    }

    /// Kills a process at each of the first changes of a new database, lets the next process continue, and cuts its power
    /// after the first acknowledgements. Changes of a killed process are visible to the next one, and not yet durable.
    /// `every` is the distance between two kills.
    ///
    /// # Panics
    /// If the store broke a promise.
    pub async fn creation(&self, backend: &dyn Backend, every: usize) -> Report {
        let (promise, stage, seed) = (Promise::Durable, Stage::First, 0);
        let mut report = Report::default();
        for kill_after in (1..).step_by(every) {
            let mut storage = Storage::create(&self.disk, &self.scratch);
            let work = work(backend, &storage, 0, 1);
            let lives = [Some(kill_after), None].map(|kill_after| Life { work: work.clone(), kill_after });
            let recording = recorder::record(&self.library, backend, &storage, &lives).await;
            storage.remember(recorder::object_at_end(&recording));
            let notes: Vec<usize> = notes(&recording).collect();
            for moment in notes.iter().take(3).map(|note| note + 1) {
                let disk = recording.disk(moment, Device::Honest);
                let image = disk.cut(&mut Loss::always(Extent::Everything));
                report.lossy += u64::from(image != disk.cut(&mut Loss::always(Extent::Nothing)));
                let cut = Cut { backend, promise, seed, stage, recording: &recording, storage: &storage };
                let killed = Failure::of_kill(kill_after, storage.log());
                report.acknowledged += cut.check(moment, &image).await;
                report.cuts += 1;
                drop(killed);
            }
            // The kill came after the first acknowledgement: the database exists.
            if notes.first().is_some_and(|note| note - recording.prelude < kill_after as usize) {
                break;
            }
        }
        report
    }

    /// Cuts the power after most acknowledgements without a flush, and loses everything that was not flushed.
    ///
    /// # Errors
    /// The message of the check that failed.
    pub async fn survives_the_worst(&self, backend: &dyn Backend, device: Device) -> Result<(), String> {
        let (recording, storage) = self.recording(backend, 0).await;
        let moment = most_notes(&recording);
        let image = recording.disk(moment, device).cut(&mut Loss::always(Extent::Everything));
        let (promise, stage, seed) = (Promise::Durable, Stage::First, 0);
        let cut = Cut { backend, promise, seed, stage, recording: &recording, storage: &storage };
        let checked = std::panic::AssertUnwindSafe(cut.check(moment, &image)).catch_unwind().await;
        let message = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
            Ok(message) => *message,
            Err(_) => "a check failed without a message".to_owned(),
        };
        checked.map(drop).map_err(message)
    }

    async fn recording(&self, backend: &dyn Backend, group: u64) -> (Recording, Storage) {
        let mut storage = Storage::create(&self.disk, &self.scratch);
        if let Some(log) = replayed() {
            return (Recording::read(Path::new(&log)), storage);
        }
        let lives = lives(backend, &storage, group);
        let recording = recorder::record(&self.library, backend, &storage, &lives).await;
        storage.remember(recorder::object_at_end(&recording));
        (recording, storage)
    }

    async fn cut(&self, cut: Cut<'_>, report: &mut Report) {
        let failure = Failure::of_seed(cut.seed, cut.storage.log());
        let (moment, disk) = (cut.moment(), cut.disk());
        let image = disk.cut(&mut cut.loss());
        report.cuts += 1;
        report.lossy += u64::from(image != disk.cut(&mut Loss::always(Extent::Nothing)));
        if cut.stage == Stage::First && Rng::new(!cut.seed).one_in(5) {
            self.cut_again(&cut, moment, &image, report).await;
        } else {
            report.acknowledged += cut.check(moment, &image).await;
        }
        drop(failure);
    }

    /// Records a process that recovers from a cut, and cuts its power.
    async fn cut_again(&self, first: &Cut<'_>, moment: usize, image: &Image, report: &mut Report) {
        first.place(moment, image);
        let mut storage = first.storage.next();
        let life = Life { work: first.work(), kill_after: None };
        let recording = recorder::record(&self.library, first.backend, &storage, &[life]).await;
        storage.remember(recorder::object_at_end(&recording));
        let second = Cut { stage: Stage::Second, recording: &recording, storage: &storage, ..*first };
        report.second += 1;
        Box::pin(self.cut(second, report)).await;
        storage.give_back(first.storage);
    }
}

impl Drop for PowerCuts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.disk);
    }
}

/// Creates a directory for a store, in memory if the system has a file system there.
fn disk(scratch: &Path) -> PathBuf {
    let name = format!("tidelock-power-cut-{}", uuid::Uuid::now_v7());
    let in_memory = Path::new("/dev/shm").join(&name);
    let path = if std::fs::create_dir(&in_memory).is_ok() { in_memory } else { scratch.join(name) };
    std::fs::create_dir_all(&path).expect("the scratch directory is writable");
    path
}

/// Whether a recording shows the work of a store or its recovery from a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    First,
    Second,
}

/// One cut of one recording.
#[derive(Clone, Copy)]
struct Cut<'a> {
    backend: &'a dyn Backend,
    promise: Promise,
    seed: u64,
    stage: Stage,
    recording: &'a Recording,
    storage: &'a Storage,
}

impl Cut<'_> {
    /// Returns a generator for one of the decisions about this cut.
    fn rng(&self, decision: u64) -> Rng {
        Rng::new(self.seed ^ (decision << 32) ^ (u64::from(self.stage == Stage::Second) << 48))
    }

    /// Returns the number of changes before the cut.
    fn moment(&self) -> usize {
        moment(self.recording, &mut self.rng(1))
    }

    fn disk(&self) -> Disk<'_> {
        self.recording.disk(self.moment(), Device::Honest)
    }

    fn loss(&self) -> Loss {
        Loss::seeded(self.rng(2))
    }

    fn work(&self) -> Work {
        work(self.backend, self.storage, self.seed / CUTS, STEPS_AFTER)
    }

    fn place(&self, moment: usize, image: &Image) {
        let mut ledger = Vec::new();
        for entry in self.recording.ledger(moment) {
            ledger.extend(serde_json::to_vec(&entry).expect("an entry is JSON"));
            ledger.push(b'\n');
        }
        self.storage.place(image, &ledger, &mut self.rng(3));
    }

    /// Opens the store on what the cut left, checks it, lets it continue, and checks it again. Returns the number of notes
    /// of acknowledgements.
    async fn check(&self, moment: usize, image: &Image) -> usize {
        self.place(moment, image);
        let mut ledger = self.recording.ledger(moment);
        if self.promise == Promise::Atomic {
            ledger.clear();
        }
        let (notes, address, work) = (ledger.len(), self.storage.address(), self.work());
        let conn = Conn(self.backend.attach(&address, SystemClock::shared()).await);
        verify::check(&conn, &work, &ledger).await;
        if self.storage.keeps_inodes() {
            verify::check_epoch(&conn, &ledger);
        }
        verify::check_numbers(&conn, &work, &ledger).await;
        let later = Arc::new(Mutex::new(Vec::new()));
        workload::run(&conn, &work, &Notes::Memory(Arc::clone(&later))).await;
        ledger.append(&mut later.lock().unwrap());
        verify::check(&conn, &work, &ledger).await;
        self.backend.detach(conn.0).await;
        self.backend.inspect(&address).await;
        notes
    }
}

fn replayed() -> Option<String> {
    std::env::var(REPLAY).ok()
}

/// Reports a cut when its check panics, and keeps its log.
struct Failure {
    message: String,
    log: PathBuf,
    kept: PathBuf,
}

impl Failure {
    /// A cut that its seed and its log replay.
    fn of_seed(seed: u64, log: &Path) -> Self {
        let suffix = if log.extension().is_some() { SECOND } else { "" };
        let kept = std::env::temp_dir().join(format!("tidelock-power-cut-{seed}{suffix}"));
        let message = format!(
            "power cut {seed} failed; replay: TIDELOCK_SEED={seed} TIDELOCK_ROUNDS=1 {REPLAY}={}",
            kept.display()
        );
        Self { message, log: log.to_owned(), kept }
    }

    /// A cut after a kill during the creation.
    fn of_kill(kill_after: u64, log: &Path) -> Self {
        let kept = std::env::temp_dir().join(format!("tidelock-power-cut-kill-{kill_after}"));
        let message = format!(
            "the power cut after a kill at change {kill_after} failed; its log is {}",
            kept.display()
        );
        Self { message, log: log.to_owned(), kept }
    }
}

impl Drop for Failure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&self.message);
            // A replayed log is there already.
            if replayed().is_none()
                && let Err(e) = std::fs::copy(&self.log, &self.kept)
            {
                say(&format!("the log could not be kept: {e}"));
            }
        }
    }
}

/// Chooses the processes of a recording.
fn lives(backend: &dyn Backend, storage: &Storage, group: u64) -> Vec<Life> {
    let mut rng = Rng::new(group);
    let mut lives = Vec::new();
    // Half of the recordings begin with a process that is killed early, often while it creates the store.
    if group % 2 == 1 {
        let kill_after = Some(rng.within(1..120));
        lives.push(Life { work: work(backend, storage, group, 4), kill_after });
    }
    let kill_after = rng.one_in(2).then(|| rng.within(200..6_000));
    lives.push(Life { work: work(backend, storage, group, rng.within(20..80)), kill_after });
    if rng.one_in(2) {
        lives.push(Life { work: work(backend, storage, group, rng.within(4..12)), kill_after: None });
    }
    lives
}

fn work(backend: &dyn Backend, storage: &Storage, seed: u64, steps: u64) -> Work {
    let documents_only = backend.capabilities().documents_only;
    Work { ledger: storage.ledger(), seed, steps, documents_only }
}

/// Chooses the moment of a cut: anywhere, early, at a flush, at the beginning of a file, or just after a note.
fn moment(recording: &Recording, rng: &mut Rng) -> usize {
    let (changes, first) = (recording.changes(), recording.prelude);
    let own = changes.len() - first;
    let anywhere = first + rng.below(own + 1);
    let next = |wanted: &dyn Fn(&Change<'_>) -> bool| {
        let found = changes.iter().skip(anywhere).position(wanted);
        found.map_or(changes.len(), |i| anywhere + i)
    };
    let flush = |change: &Change<'_>| matches!(change, Change::Flush { .. });
    match rng.below(7) {
        0 | 1 => anywhere,
        2 => first + rng.below(own.min(100) + 1),
        3 => next(&flush),
        4 => (next(&flush) + 1).min(changes.len()),
        // A log that starts over writes its beginning, and soon replaces what a checkpoint has moved.
        5 => (next(&|change| matches!(change, Change::Write { offset: 0, .. })) + rng.below(8))
            .min(changes.len()),
        _ => (next(&is_note) + 1).min(changes.len()),
    }
}

/// Returns the moment with the most notes since the last flush.
fn most_notes(recording: &Recording) -> usize {
    let (mut notes, mut most) = (0, (0, 0));
    for (i, change) in recording.changes().iter().enumerate().skip(recording.prelude) {
        match change {
            Change::Flush { .. } => notes = 0,
            change if is_note(change) => notes += 1,
            _ => {}
        }
        most = most.max((notes, i + 1));
    }
    most.1
}

/// Returns where the notes are among the changes.
fn notes(recording: &Recording) -> impl Iterator<Item = usize> {
    let changes = recording.changes();
    (recording.prelude..changes.len()).filter(move |i| is_note(&changes[*i]))
}

/// Returns whether a change is a note in the ledger. No store writes such short lines of JSON with a write of their own.
fn is_note(change: &Change<'_>) -> bool {
    matches!(change, Change::Write { data, .. } if data.starts_with(b"{\"") && data.ends_with(b"}\n") && data.len() < 80)
}

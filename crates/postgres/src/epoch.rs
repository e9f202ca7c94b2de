//! Epochs: the generation of the database's history, as this process knows it.
//!
//! Every new connection confirms the epoch, and every write and every read of the log sends it to the server. A server
//! that was promoted, restored or copied returns another epoch, or begins one. The process's cached rows belong to an
//! epoch, so a new epoch drops them. SQLite detects a new epoch from its file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Epoch, Fence, Position};
use tidelock_core::model::epoch::HistoryCut;
use tidelock_core::store::{StoreError, StoreErrorKind};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::db::{Call, Row};
use crate::error::{Failure, Meaning};
use crate::rows::{get, uint};
use crate::writer::{Engine, pause};

const WHAT: &str = "confirming the epoch of the database";
/// Attempts to begin a new epoch while a writer holds the old one.
const ATTEMPTS: u32 = 12;

/// The columns of a cut, as [`cut`] reads them.
pub(crate) const CUT_COLUMNS: &str = "epoch, previous, cut_after, resumes_at, fence, declared_at, reason";

/// The epoch and the highest numbers that this process knows.
#[derive(Debug)]
pub(crate) struct Epochs {
    schema: String,
    current: AtomicU64,
    /// The highest numbers that this process received. A database that lacks them was set back.
    position: AtomicU64,
    fence: AtomicU64,
    /// The database that the epoch belongs to, as the function `identity` returns it.
    identity: Mutex<String>,
}

impl Epochs {
    pub(crate) fn new(schema: &str) -> Self {
        let [current, position, fence] = [const { AtomicU64::new(0) }; 3];
        Self { schema: schema.to_owned(), current, position, fence, identity: Mutex::default() }
    }

    /// Returns the last confirmed epoch.
    pub(crate) fn current(&self) -> Epoch {
        Epoch(self.current.load(Ordering::Acquire))
    }

    /// Returns whether an identity is the one of the store's database. A user without the right to read it does not learn
    /// the identity of the cluster, so a missing one matches any.
    pub(crate) fn is_identity(&self, found: &str) -> bool {
        let ours = self.identity.lock();
        let (Some((cluster, table)), Some((their_cluster, their_table))) =
            (ours.split_once('/'), found.split_once('/'))
        else {
            return *ours == found;
        };
        let same_cluster = cluster == their_cluster || cluster.is_empty() || their_cluster.is_empty();
        same_cluster && table == their_table
    }

    /// Remembers numbers that were committed.
    pub(crate) fn saw(&self, position: Option<i64>, fence: Option<i64>) {
        for (known, seen) in [(&self.position, position), (&self.fence, fence)] {
            if let Some(seen) = seen {
                known.fetch_max(uint(seen), Ordering::Relaxed);
            }
        }
    }

    /// Asks the server for its epoch. The server begins a new one if the history was cut.
    pub(crate) async fn confirm(&self, client: &Client) -> Result<(), Failure> {
        let (position, fence) = (self.position.load(Ordering::Relaxed), self.fence.load(Ordering::Relaxed));
        // One implicit transaction. At read committed it sees the rows that were committed while it waited.
        let sql = format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT {s}.confirm_epoch({position}, {fence}), {s}.identity()",
            s = self.schema
        );
        let mut attempts = 0;
        let answer = loop {
            match client.simple_query(&sql).await.map_err(Failure::from) {
                Err(failure) if is_held(&failure) && attempts < ATTEMPTS => attempts += 1,
                answer => break answer?,
            }
            pause(attempts).await;
        };
        let found = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse::<u64>().ok()?, row.get(1)?.to_owned())),
            _ => None,
        });
        let (found, identity) =
            found.ok_or_else(|| Failure::new(StoreErrorKind::Bug, WHAT, "no epoch is recorded"))?;
        *self.identity.lock() = identity;
        let before = self.current.fetch_max(found, Ordering::AcqRel);
        if before != 0 && found > before {
            tracing::warn!(epoch = found, previous = before, "epoch changed");
        }
        Ok(())
    }
}

/// Returns whether another transaction briefly holds the epoch or waits for it.
fn is_held(failure: &Failure) -> bool {
    matches!(failure.meaning, Meaning::Locked | Meaning::Again)
}

impl Engine {
    /// Begins a new epoch because an operator declares that the history was cut.
    pub(crate) async fn declare_cut(&self, reason: &str) -> Result<HistoryCut, StoreError> {
        let give_up = Instant::now() + self.patience;
        let sql = format!("SELECT {CUT_COLUMNS} FROM {}.begin_epoch($1, 0, 0)", self.sql.schema);
        let mut attempts = 0;
        loop {
            let client = self.writer(give_up).await?;
            let call = Call::new(&sql).with(reason, Type::TEXT);
            let answer = self.bounded(&client, self.db(&client).query(call)).await;
            let failure = match answer {
                Ok(rows) => {
                    let row = rows.first().ok_or_else(crate::writer::pessimistic::short_answer)?;
                    let cut = cut(row, 0)?;
                    self.epochs.confirm(&client).await?;
                    self.hints.changed();
                    return Ok(cut);
                }
                Err(failure) => failure,
            };
            if matches!(failure.meaning, Meaning::Lost | Meaning::Unsent) {
                self.lost(client);
            }
            attempts += 1;
            if !is_held(&failure) || Instant::now() + Duration::from_millis(250) >= give_up {
                return Err(failure.into());
            }
            pause(attempts).await;
        }
    }
}

/// Decodes a row with [`CUT_COLUMNS`], starting at a column.
pub(crate) fn cut(row: &Row, from: usize) -> Result<HistoryCut, Failure> {
    let number = |column: usize| get::<i64>(row, from + column).map(uint);
    Ok(HistoryCut {
        epoch: Epoch(number(0)?),
        previous: Epoch(number(1)?),
        cut_after: Position(number(2)?),
        resumes_at: Position(number(3)?),
        fence: Fence(number(4)?),
        declared_at: Timestamp::from_micros(get(row, from + 5)?),
        reason: get(row, from + 6)?,
    })
}

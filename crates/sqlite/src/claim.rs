//! Claims: an index finds the claimable rows, and the model chooses and grants.
//!
//! The cost does not depend on the number of rows: one seek finds each priority level in use, one more its oldest rows.
//! A row that does not decode is skipped, so that it blocks no other.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Position, Priority, QueueName};
use tidelock_core::key::Key;
use tidelock_core::model::claim::{self, Candidate, Granted};
use tidelock_core::model::rows::WorkRow;
use tidelock_core::store::report;
use tidelock_core::store::{Claim, ClaimTarget, Claimed, Direction, Gathering, Grant};

use crate::error::Failure;
use crate::event_locator::Stream;
use crate::read;
use crate::rows::{int, uint};
use crate::session::Session;

/// The next lower priority level in use.
const NEXT_LEVEL: &str = "SELECT priority FROM tidelock_work \
    WHERE queue = ?1 AND priority < ?2 AND ready_at IS NOT NULL ORDER BY priority DESC LIMIT 1";

/// The oldest claimable rows of a level.
const OLDEST: &str = "SELECT key, ready_at, seq FROM tidelock_work \
    WHERE queue = ?1 AND priority = ?2 AND ready_at <= ?3 ORDER BY ready_at, seq LIMIT ?4";

/// The rows of a level that are claimable now or later, by age.
const BY_AGE: &str = "SELECT key, ready_at FROM tidelock_work \
    WHERE queue = ?1 AND priority = ?2 AND ready_at IS NOT NULL ORDER BY ready_at, seq";

/// The time at which the first row of a level becomes claimable.
const FIRST_AFTER: &str = "SELECT ready_at FROM tidelock_work \
    WHERE queue = ?1 AND priority = ?2 AND ready_at > ?3 ORDER BY ready_at LIMIT 1";

/// The rows that a claim gets, with the events gathered for each; or the time at which the next row is ready.
type Choice = (Vec<(Key, Gathering)>, Option<Timestamp>);

impl Session {
    /// Executes a claim inside the open transaction.
    pub(crate) fn claim(
        &mut self,
        db: &Connection,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Claimed, Failure> {
        self.flush(db)?;
        let mut claimed = Claimed::nothing(now);
        let (owner, ttl) = (&claim.owner, claim.ttl);
        match &claim.pick {
            ClaimTarget::Named { key, create } => {
                let events = self.read_with_events(db, key, Gathering::new(claim.events, 1))?;
                match claim::grant_named(&mut self.facts, key, create.as_ref(), owner, ttl, now) {
                    Ok(granted) => claimed.grants.extend(self.grant(granted, events)),
                    Err(denied) => claimed.denied = Some(denied),
                }
            }
            ClaimTarget::Lanes { queues, limit } => {
                let (chosen, next_at) = self.choose(db, queues, *limit, claim.events, now)?;
                claimed.next_at = next_at;
                for (key, events) in chosen {
                    let granted = claim::grant_chosen(&mut self.facts, &key, owner, ttl, now);
                    claimed.grants.extend(granted.and_then(|granted| self.grant(granted, events)));
                }
            }
        }
        self.flush(db)?;
        Ok(claimed)
    }

    /// Chooses claimable rows, and reads them with the events that they follow; or else returns when the next one is
    /// ready.
    fn choose(
        &mut self,
        db: &Connection,
        queues: &[QueueName],
        limit: usize,
        events: usize,
        now: Timestamp,
    ) -> Result<Choice, Failure> {
        loop {
            let passed_over = self.unreadable.len();
            let levels = levels(db, queues)?;
            let open = self.open_rows(db, &levels, limit, now)?;
            let next_at = if open.is_empty() { next_at(db, &levels, now)? } else { None };
            let keys = claim::choose(open, limit, self.facts.counters.fence);
            let grants = keys.len();
            let mut chosen = Vec::with_capacity(grants);
            for key in keys {
                match self.read_with_events(db, &key, Gathering::new(events, grants)) {
                    Ok(events) => chosen.push((key, events)),
                    Err(failure) if failure.is_unreadable() => self.pass_over(key.canonical(), &failure),
                    Err(failure) => return Err(failure),
                }
            }
            // The skipped rows took the place of others.
            if self.unreadable.len() == passed_over {
                return Ok((chosen, next_at));
            }
        }
    }

    /// Returns the oldest claimable rows of each level, without those that do not decode.
    fn open_rows(
        &mut self,
        db: &Connection,
        levels: &[(&QueueName, Priority)],
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Candidate>, Failure> {
        let limit = limit.saturating_add(self.unreadable.len());
        let mut open = Vec::new();
        for (queue, level) in levels {
            for found in oldest(db, queue, *level, limit, now)? {
                match found {
                    Ok(candidate) if !self.unreadable.contains(candidate.key.canonical()) => {
                        open.push(candidate);
                    }
                    Ok(candidate) if self.load_work(db, &candidate.key).is_ok() => {
                        self.unreadable.remove(candidate.key.canonical());
                        open.push(candidate);
                    }
                    Ok(_) => {}
                    Err(key) => self.pass_over(&key, &Failure::unreadable("reading a key", "it is no text")),
                }
            }
        }
        Ok(open)
    }

    /// Records a row that does not decode. It is reported once, and retried by every claim that finds it.
    fn pass_over(&mut self, key: &str, failure: &Failure) {
        if self.unreadable.insert(key.to_owned()) {
            report::unreadable_work(key, &failure.error);
        }
    }

    /// Fills a work row's slot, and gathers the events that it follows, up to the requested number.
    fn read_with_events(
        &mut self,
        db: &Connection,
        key: &Key,
        mut gathering: Gathering,
    ) -> Result<Gathering, Failure> {
        self.load_work(db, key)?;
        if let Some(WorkRow { follow: Some(stream), position, .. }) = self.facts.work(key)
            && gathering.is_open()
        {
            self.following(db, stream, *position, &mut gathering)?;
        }
        Ok(gathering)
    }

    fn grant(&self, Granted { row, taken_over }: Granted, gathering: Gathering) -> Option<Grant> {
        let fence = row.lease.as_ref()?.fence;
        let (events, more) = gathering.end();
        Some(Grant { row, fence, epoch: self.facts.counters.epoch, taken_over, events, more })
    }

    fn following(
        &self,
        db: &Connection,
        stream: &Key,
        position: Option<Position>,
        gathering: &mut Gathering,
    ) -> Result<(), Failure> {
        let Some(stream) = Stream::find(db, stream)? else { return Ok(()) };
        let places = self.places(db, stream)?;
        let seen = match position {
            None => None,
            Some(position) => places.version_at(db, int(position.0))?,
        };
        let from = seen.map_or(0, |version| version + 1);
        places.visit(db, from, Direction::Forward, |event| gathering.add(event))
    }
}

/// Returns when the first row of the queues is ready. Rows that do not decode are skipped, as in claims.
pub(crate) fn next_ready(db: &Connection, queues: &[QueueName]) -> Result<Option<Timestamp>, Failure> {
    let mut statement = db.prepare_cached(BY_AGE)?;
    let mut first = None;
    for (queue, level) in levels(db, queues)? {
        let mut found = statement.query((queue.as_str(), level.level()))?;
        while let Some(row) = found.next()? {
            let Ok(key) = row.get::<_, String>(0) else { continue };
            match read::work(db, &Key::trusted(key)) {
                Ok(_) => {
                    first = [first, Some(Timestamp::from_micros(row.get(1)?))].into_iter().flatten().min();
                    break;
                }
                Err(failure) if failure.is_unreadable() => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(first)
}

/// Returns the priority levels in use, queue by queue.
fn levels<'a>(db: &Connection, queues: &'a [QueueName]) -> Result<Vec<(&'a QueueName, Priority)>, Failure> {
    let mut levels = Vec::new();
    for queue in queues.iter().collect::<BTreeSet<_>>() {
        let mut above = i64::from(Priority::FIRST.level()) + 1;
        while let Some(level) = next_level(db, queue, above)? {
            levels.push((queue, level));
            above = i64::from(level.level());
        }
    }
    Ok(levels)
}

/// Returns the time at which the first further row becomes claimable.
fn next_at(
    db: &Connection,
    levels: &[(&QueueName, Priority)],
    now: Timestamp,
) -> Result<Option<Timestamp>, Failure> {
    let mut next_at: Option<Timestamp> = None;
    for (queue, level) in levels {
        let at: Option<i64> = db
            .prepare_cached(FIRST_AFTER)?
            .query_row((queue.as_str(), level.level(), now.as_micros()), |row| row.get(0))
            .optional()?;
        next_at = [next_at, at.map(Timestamp::from_micros)].into_iter().flatten().min();
    }
    Ok(next_at)
}

/// Returns the next lower level in use. A number that is not a level ends the list: it is below all of them.
fn next_level(db: &Connection, queue: &QueueName, above: i64) -> Result<Option<Priority>, Failure> {
    let mut statement = db.prepare_cached(NEXT_LEVEL)?;
    let level: Option<i64> = statement.query_row((queue.as_str(), above), |row| row.get(0)).optional()?;
    Ok(level.and_then(|level| u8::try_from(level).ok()).and_then(|level| Priority::new(level).ok()))
}

/// Returns the oldest rows of a level. A key that is not valid UTF-8 is an error entry with its lossy text.
fn oldest(
    db: &Connection,
    queue: &QueueName,
    level: Priority,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Result<Candidate, String>>, Failure> {
    let mut statement = db.prepare_cached(OLDEST)?;
    let parameters = (queue.as_str(), level.level(), now.as_micros(), int(limit as u64));
    let found = statement.query_map(parameters, |row| {
        let text = row.get_ref(0)?.as_bytes()?;
        let Ok(key) = std::str::from_utf8(text) else {
            return Ok(Err(String::from_utf8_lossy(text).into_owned()));
        };
        Ok(Ok(Candidate {
            key: Key::trusted(key),
            queue: queue.clone(),
            priority: level,
            ready_at: Timestamp::from_micros(row.get(1)?),
            seq: uint(row.get(2)?),
        }))
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

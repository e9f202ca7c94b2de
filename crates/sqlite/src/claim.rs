//! The claim: an index finds what may be had, the model chooses and grants.
//!
//! The cost does not depend on how many rows there are: one seek finds each level of urgency that is in use, one more
//! its oldest rows.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _};
use tidelock_core::clock::Timestamp;
use tidelock_core::id::{Lane, Position, Priority};
use tidelock_core::key::Key;
use tidelock_core::model::claim::{self, Candidate, Granted};
use tidelock_core::model::rows::Event;
use tidelock_core::store::{Claim, Claimed, Direction, Grant, Pick};

use crate::error::Failure;
use crate::places::Stream;
use crate::rows::{self, int, uint};
use crate::session::Session;

/// The next lower level of urgency that is in use.
const NEXT_LEVEL: &str = "SELECT priority FROM tidelock_work \
    WHERE lane = ?1 AND priority < ?2 AND ready_at IS NOT NULL ORDER BY priority DESC LIMIT 1";

/// The oldest rows of a level that may be had.
const OLDEST: &str = "SELECT key, ready_at, seq FROM tidelock_work \
    WHERE lane = ?1 AND priority = ?2 AND ready_at <= ?3 ORDER BY ready_at, seq LIMIT ?4";

/// When the first row of a level may be had.
const FIRST_AT: &str = "SELECT ready_at FROM tidelock_work \
    WHERE lane = ?1 AND priority = ?2 AND ready_at IS NOT NULL ORDER BY ready_at LIMIT 1";

impl Session {
    /// Carries out a claim inside the open transaction.
    pub(crate) fn claim(
        &mut self,
        db: &Connection,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Claimed, Failure> {
        self.flush(db)?;
        let mut claimed = Claimed::default();
        let granted = match &claim.pick {
            Pick::Named { key, create } => {
                self.load_work(db, key)?;
                let (owner, ttl) = (&claim.owner, claim.ttl);
                match claim::grant_named(&mut self.facts, key, create.as_ref(), owner, ttl, now) {
                    Ok(row) => vec![row],
                    Err(denied) => {
                        claimed.denied = Some(denied);
                        Vec::new()
                    }
                }
            }
            Pick::Lanes { lanes, limit } => {
                let (open, next_at) = candidates(db, lanes, *limit, now)?;
                let since = || open.iter().map(|candidate| candidate.ready_at).min();
                claimed.next_at = if *limit == 0 { next_at.or_else(since) } else { next_at };
                let chosen = claim::choose(open, *limit, self.facts.counters.fence);
                self.grant(db, &chosen, claim, now)?
            }
        };
        self.flush(db)?;
        for row in granted {
            claimed.grants.extend(self.with_events(db, row, claim.events)?);
        }
        Ok(claimed)
    }

    fn grant(
        &mut self,
        db: &Connection,
        chosen: &[Key],
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Vec<Granted>, Failure> {
        let mut granted = Vec::with_capacity(chosen.len());
        for key in chosen {
            self.load_work(db, key)?;
            granted.extend(claim::grant_chosen(&mut self.facts, key, &claim.owner, claim.ttl, now));
        }
        Ok(granted)
    }

    /// Adds the events that a row follows, as many as were asked for.
    fn with_events(
        &self,
        db: &Connection,
        Granted { row, taken_over }: Granted,
        limit: usize,
    ) -> Result<Option<Grant>, Failure> {
        let Some(fence) = row.lease.as_ref().map(|lease| lease.fence) else { return Ok(None) };
        let events = match &row.follow {
            Some(stream) if limit > 0 => self.following(db, stream, row.position, limit)?,
            _ => Vec::new(),
        };
        Ok(Some(Grant { row, fence, taken_over, events }))
    }

    fn following(
        &self,
        db: &Connection,
        stream: &Key,
        position: Option<Position>,
        limit: usize,
    ) -> Result<Vec<Event>, Failure> {
        let Some(stream) = Stream::find(db, stream)? else { return Ok(Vec::new()) };
        let places = self.places(db, stream)?;
        let seen = match position {
            None => None,
            Some(position) => places.version_at(db, int(position.0))?,
        };
        let mut events = Vec::new();
        places.visit(db, seen.map_or(0, |version| version + 1), Direction::Forward, |event| {
            events.push(event);
            events.len() < limit
        })?;
        Ok(events)
    }
}

/// The rows that may be had, or else when the next one can be.
fn candidates(
    db: &Connection,
    lanes: &[Lane],
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<Candidate>, Option<Timestamp>), Failure> {
    let mut open = Vec::new();
    let mut levels = Vec::new();
    for lane in lanes.iter().collect::<BTreeSet<_>>() {
        let mut above = i64::from(Priority::FIRST.level()) + 1;
        while let Some(level) = next_level(db, lane, above)? {
            open.extend(oldest(db, lane, level, limit, now)?);
            levels.push((lane, level));
            above = i64::from(level.level());
        }
    }
    if !open.is_empty() {
        return Ok((open, None));
    }
    let mut next_at: Option<Timestamp> = None;
    for (lane, level) in levels {
        let at: Option<i64> = db
            .prepare_cached(FIRST_AT)?
            .query_row((lane.as_str(), level.level()), |row| row.get(0))
            .optional()?;
        let at = at.map(Timestamp::from_micros);
        next_at = [next_at, at].into_iter().flatten().min();
    }
    Ok((open, next_at))
}

fn next_level(db: &Connection, lane: &Lane, above: i64) -> Result<Option<Priority>, Failure> {
    let mut statement = db.prepare_cached(NEXT_LEVEL)?;
    let level: Option<u8> = statement.query_row((lane.as_str(), above), |row| row.get(0)).optional()?;
    Ok(level.map(Priority::new).transpose()?)
}

fn oldest(
    db: &Connection,
    lane: &Lane,
    level: Priority,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Candidate>, Failure> {
    let mut statement = db.prepare_cached(OLDEST)?;
    // One at least: a claim of nothing still learns whether there is something.
    let parameters = (lane.as_str(), level.level(), now.as_micros(), int(limit.max(1) as u64));
    let found = statement.query_map(parameters, |row| {
        Ok(Candidate {
            key: rows::key(row, 0)?,
            lane: lane.clone(),
            priority: level,
            ready_at: Timestamp::from_micros(row.get(1)?),
            seq: uint(row.get(2)?),
        })
    })?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

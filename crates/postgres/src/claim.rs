//! The claim: an index finds what may be had, the model chooses and grants. Claims that wait together share a
//! transaction.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidelock_core::clock::Timestamp;
use tidelock_core::id::Lane;
use tidelock_core::key::Key;
use tidelock_core::model::claim::{self, Candidate, Granted};
use tidelock_core::model::facts::Footprint;
use tidelock_core::model::lease;
use tidelock_core::model::rows::Event;
use tidelock_core::store::{Claim, Claimed, Denied, Grant, Pick, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::db::{Call, Db, begin};
use crate::error::{Failure, Meaning};
use crate::flush::{Drawn, Flush};
use crate::rows::{self, get, int};
use crate::session::Session;
use crate::writer::settle::{load_rows, short_answer, texts};
use crate::writer::{Claiming, Engine, Strays, pause};

/// Attempts before a claim fails as busy.
const ATTEMPTS: u32 = 20;

/// What a claim was promised before the group was written.
struct Promise {
    granted: Vec<Granted>,
    claimed: Claimed,
    ask: Option<Ask>,
}

/// Lanes of which the server says when there is something.
struct Ask {
    lanes: Vec<String>,
    /// There was nothing at this instant: what could be had then is in somebody's hands.
    now: Option<Timestamp>,
}

/// A read that is sent along with the grants, and whose answer it becomes.
enum Extra {
    /// The events that the grant of a claim follows.
    Events(usize, usize),
    /// When the next row of a claim's lanes can be had.
    Next(usize),
}

impl Engine {
    /// Carries out claims that share a transaction, and answers them. A claim by name whose row somebody holds goes its
    /// own way; its row is then taken out of `rows`.
    pub(crate) async fn claims(self: &Arc<Self>, jobs: Vec<Claiming>, rows: &mut Vec<u64>) {
        self.meter.claims.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let give_up = Instant::now() + self.patience;
        let Some(jobs) = self.claim_together(jobs, give_up, true).await else { return };
        let (named, open): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| matches!(job.claim.pick, Pick::Named { .. }));
        for job in named {
            let mine = crate::writer::rows_of_claim(&job.claim);
            rows.retain(|row| !mine.contains(row));
            let stray = Strays::one_more(self);
            tokio::spawn(async move {
                let engine = &stray.0;
                // The semaphore is never closed.
                let _turn = engine.alone.acquire().await;
                engine.claim_together(vec![job], give_up, false).await;
                engine.queue.done(&mine);
            });
        }
        if !open.is_empty() {
            self.claim_together(open, give_up, false).await;
        }
    }

    /// Carries out claims in one transaction. With `give_back` it tries once, and gives them back when it did not work but
    /// might yet.
    async fn claim_together(
        &self,
        jobs: Vec<Claiming>,
        give_up: Instant,
        give_back: bool,
    ) -> Option<Vec<Claiming>> {
        let claims: Vec<&Claim> = jobs.iter().map(|job| job.claim.as_ref()).collect();
        let mut attempts = 0;
        let answers = loop {
            let failure = match self.grant(&claims, give_up).await {
                Ok(answers) => break Ok(answers),
                Err(failure) => failure,
            };
            attempts += 1;
            let worth = !matches!(failure.meaning, Meaning::Lost | Meaning::Failed);
            if worth && give_back {
                return Some(jobs);
            }
            let spent = attempts >= ATTEMPTS && failure.meaning != Meaning::Unsent;
            if !worth || spent || Instant::now() >= give_up {
                break Err(StoreError::from(failure));
            }
            pause(attempts).await;
        };
        // A claim that found nothing must not wake others who find nothing, for ever.
        let granted = |answer: &Answer| answer.as_ref().is_ok_and(|claimed| !claimed.grants.is_empty());
        if answers.as_ref().is_ok_and(|answers| answers.iter().any(granted)) {
            self.hints.changed();
        }
        answer(jobs, answers);
        None
    }

    async fn grant(&self, claims: &[&Claim], give_up: Instant) -> Result<Vec<Answer>, Failure> {
        let client = self.writer(give_up).await?;
        let db = self.db(&client);
        let held = self.bounded(self.hold_candidates(&db, claims)).await;
        let (mut session, mut open) = match held {
            Ok(held) => held,
            Err(failure) => {
                self.roll_back(client, &failure).await;
                return Err(failure.unsent());
            }
        };
        let mut promises: Vec<Promise> =
            claims.iter().map(|claim| promise(&mut session, &mut open, claim)).collect();
        session.forget_unused();
        let flush = Flush::of(&mut session, None, self.flush_setting);
        let (extras, more) = self.extras(claims, &promises);
        let ended = Some("COMMIT");
        match self.bounded(flush.send(&db, &self.sql, &session, ended, more)).await {
            Ok((drawn, answers)) => {
                flush.remember(&self.warm, &session, &drawn);
                finish(&mut promises, &session, &drawn);
                let mut told: Vec<Answer> = promises.into_iter().map(|promise| Ok(promise.claimed)).collect();
                add(&mut told, extras, &answers);
                Ok(told)
            }
            Err(failure) => {
                self.roll_back(client, &failure).await;
                Err(failure)
            }
        }
    }

    /// Begins a transaction, holds the rows that are asked for by name, and then the oldest that may be had.
    async fn hold_candidates(
        &self,
        db: &Db<'_>,
        claims: &[&Claim],
    ) -> Result<(Session, Vec<Candidate>), Failure> {
        let begin = begin(self.group_lock_ms());
        let (named, lanes, limit) = wanted(claims);
        let given = self.time.given().map(Timestamp::as_micros);
        let mut calls = vec![Call::new(&self.sql.lock_work).with(texts(&named), Type::TEXT_ARRAY)];
        calls.push(
            Call::new(&self.sql.candidates)
                .with(lanes, Type::TEXT_ARRAY)
                .with(limit, Type::INT8)
                .with(given, Type::INT8),
        );
        calls.push(Call::new(&self.sql.numbers));
        let answers = db.pipeline(Some(&begin), &calls, None).await?;
        let [held, candidates, numbers] = answers.as_slice() else { return Err(short_answer()) };
        let numbers = self.read_numbers(numbers)?;
        let mut session = Session::new(numbers.now, numbers.turn, numbers.floor);
        load_rows(&mut session, &Footprint { work: named, ..Footprint::default() }, &[], &[], held)?;
        let mut open = Vec::with_capacity(candidates.len());
        for row in candidates {
            let (row, stamp) = rows::work(row)?;
            // Claims go by what is ready in truth; the column may lag behind a renewed lease.
            if let Some(ready_at) = lease::ready_at(&row) {
                let (key, lane, priority, seq) = (row.key.clone(), row.lane.clone(), row.priority, row.seq);
                open.push(Candidate { key, lane, priority, ready_at, seq });
            }
            session.load_work(row.key.clone(), Some((row, stamp)));
        }
        Ok((session, open))
    }

    /// Reads that go along with the grants.
    fn extras(&self, claims: &[&Claim], promises: &[Promise]) -> (Vec<Extra>, Vec<Call<'_>>) {
        let (mut extras, mut calls) = (Vec::new(), Vec::new());
        for (index, (claim, promise)) in claims.iter().zip(promises).enumerate() {
            for (grant, Granted { row, .. }) in promise.granted.iter().enumerate() {
                let Some(stream) = row.follow.as_ref().filter(|_| claim.events > 0) else { continue };
                extras.push(Extra::Events(index, grant));
                calls.push(
                    Call::new(&self.sql.following)
                        .with(stream.canonical().to_owned(), Type::TEXT)
                        .with(row.position.map_or(-1, |position| int(position.0)), Type::INT8)
                        .with(int(claim.events as u64), Type::INT8),
                );
            }
            if let Some(Ask { lanes, now }) = &promise.ask {
                extras.push(Extra::Next(index));
                let call = Call::new(&self.sql.next_ready).with(lanes.clone(), Type::TEXT_ARRAY);
                calls.push(call.with(now.map(Timestamp::as_micros), Type::INT8));
            }
        }
        (extras, calls)
    }
}

/// The names, the lanes and the number of rows that claims ask for.
fn wanted(claims: &[&Claim]) -> (Vec<Key>, Vec<String>, i64) {
    let mut named = BTreeSet::new();
    let mut all_lanes = BTreeSet::new();
    let mut rows = 0_usize;
    for claim in claims {
        match &claim.pick {
            Pick::Named { key, .. } => drop(named.insert(key.clone())),
            // A claim of nothing holds nothing: others would pass over it.
            Pick::Lanes { limit: 0, .. } => {}
            Pick::Lanes { lanes, limit } => {
                all_lanes.extend(lanes.iter().map(|lane| lane.as_str().to_owned()));
                rows = rows.saturating_add(*limit);
            }
        }
    }
    (named.into_iter().collect(), all_lanes.into_iter().collect(), int(rows as u64))
}

fn texts_of(lanes: &[Lane]) -> Vec<String> {
    lanes.iter().map(|lane| lane.as_str().to_owned()).collect()
}

/// Grants what a claim can have of what is open.
fn promise(session: &mut Session, open: &mut Vec<Candidate>, claim: &Claim) -> Promise {
    let mut promise = Promise { granted: Vec::new(), claimed: Claimed::default(), ask: None };
    let (owner, ttl, now) = (&claim.owner, claim.ttl, session.now);
    match &claim.pick {
        Pick::Named { key, create } => {
            match claim::grant_named(&mut session.facts, key, create.as_ref(), owner, ttl, now) {
                Ok(granted) => promise.granted.push(granted),
                Err(denied) => promise.claimed.denied = Some(denied),
            }
            open.retain(|candidate| candidate.key != *key);
        }
        Pick::Lanes { lanes, limit: 0 } => promise.ask = Some(Ask { lanes: texts_of(lanes), now: None }),
        Pick::Lanes { lanes, limit } => {
            let mine = open.iter().filter(|candidate| lanes.contains(&candidate.lane));
            let mine: Vec<Candidate> = mine.cloned().collect();
            if mine.is_empty() {
                promise.ask = Some(Ask { lanes: texts_of(lanes), now: Some(now) });
            }
            let chosen = claim::choose(mine, *limit, session.facts.counters.fence);
            for key in &chosen {
                promise.granted.extend(claim::grant_chosen(&mut session.facts, key, owner, ttl, now));
            }
            open.retain(|candidate| !chosen.contains(&candidate.key));
        }
    }
    promise
}

/// Turns promises into grants, with the fences that were drawn.
fn finish(promises: &mut [Promise], session: &Session, drawn: &Drawn) {
    for promise in promises {
        if let Some(Denied::Held(lease)) = &mut promise.claimed.denied {
            lease.fence = drawn.fence(lease.fence, session.turn);
        }
        for Granted { row, taken_over } in promise.granted.drain(..) {
            let row = drawn.work_row(row, session.turn);
            let fence = row.lease.as_ref().map(|lease| lease.fence);
            let grant = |fence| Grant { row, fence, taken_over, events: Vec::new() };
            promise.claimed.grants.extend(fence.map(grant));
        }
    }
}

/// Adds what was read along with the grants. What does not read back fails the claim that it belongs to, and no other.
fn add(told: &mut [Answer], extras: Vec<Extra>, answers: &[Vec<Row>]) {
    for (extra, found) in extras.into_iter().zip(answers) {
        let (Extra::Events(claim, _) | Extra::Next(claim)) = extra;
        let Some(answer) = told.get_mut(claim) else { continue };
        let Ok(claimed) = answer else { continue };
        if let Err(failure) = add_one(claimed, &extra, found) {
            *answer = Err(failure.into());
        }
    }
}

fn add_one(claimed: &mut Claimed, extra: &Extra, found: &[Row]) -> Result<(), Failure> {
    match extra {
        Extra::Events(_, grant) => {
            let events = found.iter().map(rows::event).collect::<Result<Vec<Event>, _>>()?;
            if let Some(grant) = claimed.grants.get_mut(*grant) {
                grant.events = events;
            }
        }
        Extra::Next(_) => {
            let next: Option<i64> = found.first().map(|row| get(row, 0)).transpose()?.flatten();
            claimed.next_at = next.map(Timestamp::from_micros);
        }
    }
    Ok(())
}

/// What a claim is told.
type Answer = Result<Claimed, StoreError>;

fn answer(jobs: Vec<Claiming>, answers: Result<Vec<Answer>, StoreError>) {
    // Nobody listens when the worker went away; its lease ends by itself.
    match answers {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                drop(job.reply.send(answer));
            }
        }
        Err(error) => {
            for job in jobs {
                drop(job.reply.send(Err(error.clone())));
            }
        }
    }
}

//! The proof of the demo: the store's contents after all workers have exited, compared with the parent's
//! own records.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use anyhow::Result;
use serde::Serialize;
use tidelock::prelude::*;
use tidelock::workflow::RunStatus;

use super::expected::Expected;
use super::observed::{self, Entry, Observed};
use super::shop::Shop;
use crate::args::Format;
use crate::output::{self, Tone};

/// The results, each from its own source.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verification {
    /// Whether the demo ran to completion, with no work left.
    whole: bool,
    asked: u64,
    done: u64,
    under_way: u64,
    lost: u64,
    doubled: u64,
    unasked: u64,
    /// Known when all work is completed.
    astray: Option<u64>,
    miscounted: Option<u64>,
    collided: u64,
    stock_takes: u64,
    takes_doubled: u64,
    takes_left_out: u64,
    refills: u64,
    refills_doubled: u64,
    /// Known when all work is completed.
    refills_left_out: Option<u64>,
    kills: u64,
    stops: u64,
    fallen: u64,
    takeovers: u64,
    rerun: u64,
    replayed: u64,
    fenced: u64,
    conflicts: u64,
    retries: u64,
    recognised: u64,
    /// Whether no result was lost and none was duplicated.
    pub(crate) holds: bool,
}

impl Verification {
    /// Collects the numbers from the store and from the parent's tally.
    pub(crate) async fn find(
        store: &SharedStore,
        shop: &Shop,
        tally: &Expected,
        whole: bool,
    ) -> Result<Self> {
        let ledger = Observed::read(&**store, shop).await?;
        let runs = observed::runs(store, shop).await?;
        let (stock_takes, takes_doubled, takes_left_out) = observed::takes(&**store, shop).await?;
        let (told, refills) = (tally.total(), ledger.refills());
        let (mut astray, mut miscounted) = (None, None);
        if whole {
            astray = Some(ledger.astray(store, shop, tally.pieces()).await?);
            miscounted = Some(ledger.miscounted(&**store, shop).await?);
        }
        let proof = Self {
            whole,
            astray,
            miscounted,
            collided: ledger.collided(),
            stock_takes,
            takes_doubled,
            takes_left_out,
            refills: refills.all,
            refills_doubled: refills.doubled,
            refills_left_out: whole.then_some(refills.left_out),
            kills: tally.kills.load(Ordering::Relaxed),
            stops: tally.stops.load(Ordering::Relaxed),
            fallen: tally.fallen.load(Ordering::Relaxed),
            takeovers: ledger.takeovers,
            rerun: ledger.rerun,
            replayed: told.replayed,
            fenced: told.fenced,
            conflicts: ledger.conflicts + tally.conflicts.load(Ordering::Relaxed),
            retries: ledger.retries,
            recognised: tally.recognised.load(Ordering::Relaxed),
            ..Self::of_orders(&ledger, &runs, tally)
        };
        Ok(Self { holds: proof.verdict(), ..proof })
    }

    /// Returns the results of the orders.
    fn of_orders(ledger: &Observed, runs: &BTreeMap<u64, RunStatus>, tally: &Expected) -> Self {
        let receipts = tally.receipts();
        let entry = |number: &u64| ledger.orders.get(number).cloned().unwrap_or_default();
        let ended = |number: &u64| runs.get(number) == Some(&RunStatus::Completed);
        let runs_on = |number: &u64| runs.get(number) == Some(&RunStatus::Running);
        let whole = |entry: Entry| entry.paid > 0 && entry.shipped > 0 && entry.left > 0;
        let done = |number: &&u64| ended(number) && whole(entry(number));
        let lost = |number: &&u64| entry(number).placed == 0 || !(done(number) || runs_on(number));
        Self {
            asked: receipts.len() as u64,
            done: receipts.keys().filter(done).count() as u64,
            under_way: runs.keys().filter(|number| runs_on(number)).count() as u64,
            lost: receipts.keys().filter(lost).count() as u64,
            doubled: ledger.orders.values().filter(|order| order.is_doubled()).count() as u64,
            unasked: ledger.orders.keys().filter(|number| !receipts.contains_key(number)).count() as u64,
            ..Self::default()
        }
    }

    fn verdict(&self) -> bool {
        self.whole && self.is_tried() && self.wrong().next().is_none() && self.done == self.asked
    }

    /// Returns whether the demo proves anything: orders arrived, and at least one worker was killed.
    fn is_tried(&self) -> bool {
        self.asked > 0 && self.kills > 0
    }

    /// Returns the violations.
    fn wrong(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let unknown = |gap: Option<u64>| gap.unwrap_or_default();
        [
            ("lost", self.lost),
            ("doubled", self.doubled),
            ("unasked", self.unasked),
            ("under way", self.under_way),
            ("astray", unknown(self.astray)),
            ("miscounted", unknown(self.miscounted)),
            ("collided", self.collided),
            ("stock takes doubled", self.takes_doubled),
            ("stock takes left out", self.takes_left_out),
            ("refills doubled", self.refills_doubled),
            ("refills left out", unknown(self.refills_left_out)),
            ("fallen", self.fallen),
        ]
        .into_iter()
        .filter(|(_, number)| *number > 0)
    }

    /// Returns the verdict as text.
    fn said(&self) -> (Tone, String) {
        let wrong: Vec<String> = self.wrong().map(|(name, number)| format!("{name} {number}")).collect();
        if self.holds {
            let (done, kills) = (output::number(self.done), output::number(self.kills));
            let text = format!(
                "✓ the proof holds: {done} asked, {done} done, 0 lost, 0 doubled; {kills} workers killed"
            );
            return (Tone::Good, text);
        }
        if !self.whole {
            let text = "not all was done: the demo was stopped, or it took too long; the numbers so far";
            return (Tone::Caution, text.to_owned());
        }
        if wrong.is_empty() && !self.is_tried() {
            let missing = if self.asked == 0 { "no order came in" } else { "no worker was killed" };
            return (Tone::Caution, format!("nothing is proven, because {missing}: give it more --seconds"));
        }
        let wrong = wrong.join(", ");
        (Tone::Bad, format!("✗ the proof does not hold: {wrong}; please report this with the file (--keep)"))
    }

    /// Prints the numbers and the source of each.
    pub(crate) fn print(&self, format: Format) -> Result<()> {
        if format == Format::Json {
            if !self.holds {
                super::notice(self.said().1);
            }
            return output::json(self);
        }
        let mut table = output::table(&["", "number", "where it comes from"], &[1]);
        for (name, number, source) in self.lines() {
            let number = number.map_or_else(|| "?".to_owned(), output::number);
            table.add_row([name.to_owned(), number, source.to_owned()]);
        }
        output::say(table)?;
        let (tone, text) = self.said();
        output::say(output::styled(&text, tone))
    }

    /// Returns the rows of the table. A source has at most 52 characters, so that a row is one line on a
    /// terminal of 80 columns.
    #[rustfmt::skip]
    fn lines(&self) -> [(&'static str, Option<u64>, &'static str); 25] {
        [
            ("asked", Some(self.asked), "receipts: cart emptied and run begun in one commit"),
            ("done", Some(self.done), "of these: run completed, paid, shipped, left a gate"),
            ("under way", Some(self.under_way), "runs that have not ended"),
            ("lost", Some(self.lost), "receipts that are neither done nor under way"),
            ("doubled", Some(self.doubled), "orders with any event of theirs twice in the log"),
            ("unasked", Some(self.unasked), "orders in the log without a receipt"),
            ("astray", self.astray, "pieces whose way from cart to shelf has a gap"),
            ("miscounted", self.miscounted, "sales that the reaction did not count once"),
            ("collided", Some(self.collided), "parcels that left a gate under a stale fence"),
            ("stock takes", Some(self.stock_takes), "fires of the schedule, noted in their commits"),
            ("  doubled", Some(self.takes_doubled), "fires that ran twice"),
            ("  left out", Some(self.takes_left_out), "fires that did not run"),
            ("refills", Some(self.refills), "Received events: each names its RanLow event"),
            ("  doubled", Some(self.refills_doubled), "RanLow events that were answered twice"),
            ("  left out", self.refills_left_out, "RanLow events that were not answered"),
            ("kills", Some(self.kills), "SIGKILLs that the parent sent to workers"),
            ("standstills", Some(self.stops), "workers stopped for longer than their leases"),
            ("fallen", Some(self.fallen), "workers that ended by themselves: none should"),
            ("take-overs", Some(self.takeovers), "in OrderShipped: runs that other workers resumed"),
            ("re-run steps", Some(self.rerun), "in events: steps that a dead worker may have begun"),
            ("replayed", Some(self.replayed), "reported by workers: journal entries, not run again"),
            ("fenced", Some(self.fenced), "reported by workers: runs that they lost to others"),
            ("conflicts", Some(self.conflicts), "carts and shelves that changed: decided again"),
            ("retries", Some(self.retries), "in events: failed attempts, most of them on purpose"),
            ("recognised", Some(self.recognised), "orders sent twice under one id, answered once"),
        ]
    }
}

#[cfg(test)]
mod tests;

//! Suspended reactions: events wait, and no process routes them.
//!
//! A process whose definition was replaced ignores the reaction. When no other process registers the stored one, for example after a
//! rollback of a release, the reaction stops without an error.

use std::time::Duration;

use anyhow::Result;
use tidelock::prelude::*;
use tidelock::reactions::{Operator, ReactionView};

use super::report::Report;
use crate::output;

/// Events that have waited this long without a router mean that the reaction is suspended.
const SUSPENDED: Duration = Duration::from_secs(60);
/// Names that are shown.
const NAMES: usize = 3;

/// Adds the reactions of a store to a report.
pub(crate) async fn check(store: SharedStore, report: &mut Report) -> Result<()> {
    let now = store.now().await?;
    let all = Operator::new(store).reactions().await?;
    let suspended: Vec<_> = all.iter().filter(|view| is_suspended(view, now)).collect();
    if suspended.is_empty() {
        report.ok("reactions", format!("{} registered, none suspended", output::number(all.len() as u64)));
        return Ok(());
    }
    let shown: Vec<_> = suspended.iter().take(NAMES).map(|view| shown(view)).collect();
    let found = format!("{} suspended: {}", suspended.len(), shown.join(", "));
    let next =
        "start a process that registers the stored definition, or the same code with a higher revision";
    report.warn("reactions", found, next);
    Ok(())
}

/// Whether events wait and no process holds the router. A blocked router is reported with the blocked work.
fn is_suspended(view: &ReactionView, now: Timestamp) -> bool {
    let routed = view.until.is_some_and(|until| !until.has_come(now));
    !routed && view.blocked.is_none() && view.lag.behind >= SUSPENDED
}

fn shown(view: &ReactionView) -> String {
    let ReactionView { name, number, revision, lag, .. } = view;
    let (more, events) = (if lag.at_least { "at least " } else { "" }, output::number(lag.events));
    format!(
        "{name} ({more}{events} waiting, the oldest for {}; definition {number}, revision {revision})",
        output::span(lag.behind)
    )
}

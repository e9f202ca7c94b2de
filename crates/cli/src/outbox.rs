//! `tidelock outbox`: messages that wait for delivery, and commands for those that fail.

use anyhow::Result;
use comfy_table::{Cell, Table};
use serde::Serialize;
use tidelock::outbox::{MessageState, MessageView, Outbox};
use tidelock::prelude::*;

use crate::args::{OutboxDiscard, OutboxList, OutboxRetry, OutboxVerb, Source};
use crate::confirm;
use crate::exit::Exit;
use crate::output::{self, Tone, print_report};
use crate::render::{self, Listing};

/// Runs a verb of `outbox`.
pub(crate) async fn run(verb: OutboxVerb) -> Result<Exit> {
    match verb {
        OutboxVerb::List(options) => list(&options).await,
        OutboxVerb::Retry(options) => on(&options.place, async |store| retry(&store, &options).await).await,
        OutboxVerb::Discard(options) => {
            on(&options.place, async |store| discard(&store, &options).await).await
        }
    }
}

/// Returns the outbox of this name. Programs name outboxes in their code, so the library requires a `'static` name. The
/// leaked name lives as long as the command.
fn named(name: &str) -> Outbox {
    Outbox::new(Box::leak(name.to_owned().into_boxed_str()))
}

/// Runs `work` on an existing store, and closes the store whatever the result.
async fn on(place: &Source, work: impl AsyncFnOnce(SharedStore) -> Result<Exit>) -> Result<Exit> {
    let opened = place.open().await?;
    let ended = work(opened.shared()).await;
    opened.close().await;
    ended
}

async fn list(options: &OutboxList) -> Result<Exit> {
    let outbox = named(&options.outbox);
    render::listing(&options.look, &options.pages, async |store, ask| {
        let page = outbox.list(store, ask.page()?).await?;
        let blocked = outbox.count_blocked(store).await?;
        let mut listing =
            Listing::new("messages", page.rows, table).or("nothing waits").fact("blocked", blocked);
        if blocked > 0 {
            listing = listing.note(format!("{} blocked", output::number(blocked)));
            listing.exit = Exit::Blocked;
        }
        Ok(listing.next(page.next.map(|key| key.to_string())))
    })
    .await
}

fn table(messages: &[MessageView]) -> Table {
    let mut table = output::table(&["id", "destination", "in order of", "state", "attempts", "error"], &[4]);
    for message in messages {
        table.add_row([
            output::flat(&message.id).into(),
            output::flat(&message.destination).into(),
            message.in_order_of.as_deref().map(output::flat).unwrap_or_default().into(),
            state(&message.state),
            message.attempts.to_string().into(),
            error(message).into(),
        ]);
    }
    table
}

fn state(state: &MessageState) -> Cell {
    match state {
        MessageState::Due(at) => format!("due {}", output::instant(*at)).into(),
        MessageState::Sending { by, .. } => {
            output::cell(&format!("sent by {}", output::flat(by)), Tone::Good)
        }
        MessageState::Blocked { since, .. } => {
            output::cell(&format!("blocked {}", output::instant(*since)), Tone::Bad)
        }
    }
}

fn error(message: &MessageView) -> String {
    let reason = match &message.state {
        MessageState::Blocked { reason, .. } => Some(reason),
        _ => message.last_error.as_ref(),
    };
    reason.map(|reason| output::flat(reason)).unwrap_or_default()
}

/// The printed report of a change.
#[derive(Debug, Serialize)]
struct Report<'a> {
    outbox: &'a str,
    /// The message, if one was named.
    message: Option<&'a str>,
    /// The number of selected messages, or of lines of messages in order.
    selected: u64,
    changed: u64,
    dry_run: bool,
}

async fn retry(store: &SharedStore, options: &OutboxRetry) -> Result<Exit> {
    let OutboxRetry { outbox: name, message, consent, place } = options;
    let (outbox, shown) = (named(name), output::quoted(&output::flat(name)));
    let report = |selected, changed, dry_run| Report {
        outbox: name,
        message: message.as_deref(),
        selected,
        changed,
        dry_run,
    };
    let meant = match message {
        Some(message) => {
            let found = outbox.find(store, message).await?;
            u64::from(matches!(found.view.state, MessageState::Blocked { .. }))
        }
        None => outbox.count_blocked(store).await?,
    };
    let what = format!("{} blocked in {shown}", output::number(meant));
    if consent.dry_run {
        return print_report(place.output, &report(meant, 0, true), format!("{what} would be sent again"));
    }
    if message.is_none()
        && meant > 0
        && !confirm::agreed(&format!("{what}. Send all of them again?"), consent.yes)?
    {
        return Ok(Exit::Failed);
    }
    let changed = match message {
        Some(message) => {
            outbox.unblock(store, message).await?;
            meant
        }
        None => outbox.unblock_all(store).await?,
    };
    print_report(
        place.output,
        &report(meant, changed, false),
        format!("{} will be sent again", output::number(changed)),
    )
}

async fn discard(store: &SharedStore, options: &OutboxDiscard) -> Result<Exit> {
    let OutboxDiscard { outbox: name, message, consent, place } = options;
    let outbox = named(name);
    let report =
        |changed, dry_run| Report { outbox: name, message: Some(message), selected: 1, changed, dry_run };
    let found = outbox.find(store, message).await?;
    let shown = shown(&found.view);
    if consent.dry_run {
        return print_report(
            place.output,
            &report(0, true),
            format!("{shown} would be removed without being sent"),
        );
    }
    if !confirm::agreed(&format!("Remove {shown} without sending it?"), consent.yes)? {
        return Ok(Exit::Failed);
    }
    outbox.discard_found(store, &found).await?;
    print_report(place.output, &report(1, false), format!("{shown} is removed"))
}

/// Describes a message in a confirmation prompt.
fn shown(view: &MessageView) -> String {
    let name = |text: &str| output::quoted(&output::flat(text));
    match &view.in_order_of {
        Some(line) if view.id.is_empty() => {
            format!("the first message in the order of {}, which does not read,", name(line))
        }
        _ if view.destination.is_empty() => format!("message {}, which does not read,", name(&view.id)),
        _ => format!("message {} to {}", name(&view.id), output::flat(&view.destination)),
    }
}

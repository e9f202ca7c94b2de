//! `tidelock idempotency show`: one idempotency key and its stored response.

use anyhow::Result;
use serde::Serialize;
use tidelock::idempotency::{
    Idempotency, IdempotencyKeyState, IdempotencyKeyView, StorePolicy, StoredResponse,
};

use super::words;
use crate::args::IdempotencyShow;
use crate::exit::Exit;
use crate::output;
use crate::render::{self, Single};

/// The printed report.
#[derive(Debug, Serialize)]
struct Key {
    #[serde(flatten)]
    view: IdempotencyKeyView,
    answer: Option<Shown>,
}

/// A response as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// Whether the body is text; otherwise it is hexadecimal.
    is_text: bool,
}

/// Shows all details of a key.
pub(super) async fn run(options: &IdempotencyShow) -> Result<Exit> {
    render::whole(&options.look, async |store| {
        let (view, kept) = Idempotency::new(store).show(&options.scope, &options.key).await?;
        let answer = match kept {
            Some(StorePolicy::Whole(answer)) => Some(shown(answer)),
            Some(StorePolicy::StatusOnly { .. }) | None => None,
        };
        let key = Key { view, answer };
        let text = text(&key);
        Ok(Single::new(key, text))
    })
    .await
}

fn shown(StoredResponse { status, headers, body }: StoredResponse) -> Shown {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match String::from_utf8(body) {
        Ok(body) => Shown { status, headers, body, is_text: true },
        Err(error) => Shown { status, headers, body: hex(error.into_bytes()), is_text: false },
    }
}

fn text(key: &Key) -> String {
    let view = &key.view;
    let mut facts = vec![
        ("key", output::flat(&view.key)),
        ("scope", output::flat(&view.scope)),
        ("state", words(&view.state)),
        ("request", output::flat(&view.request)),
    ];
    match &view.state {
        IdempotencyKeyState::Stored { at, expires_at, .. } => {
            facts.push(("answered", output::instant(*at)));
            facts.push(("expires", expires_at.map(output::instant).unwrap_or_default()));
        }
        IdempotencyKeyState::InFlight { since, .. } => facts.push(("since", output::instant(*since))),
    }
    facts.retain(|(_, value)| !value.is_empty());
    let mut lines: Vec<String> = facts.iter().map(|(name, value)| format!("{name:<9}  {value}")).collect();
    if let Some(answer) = &key.answer {
        let headers = answer.headers.iter();
        lines.push(String::new());
        lines.extend(headers.map(|(name, value)| format!("{}: {}", output::flat(name), output::flat(value))));
        lines.extend([String::new(), output::escaped(&answer.body)]);
    }
    lines.join("\n")
}

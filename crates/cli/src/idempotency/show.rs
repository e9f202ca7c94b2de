//! `tidelock idempotency show`: one key, and what its request was answered.

use anyhow::Result;
use serde::Serialize;
use tidelock::edge::{Answer, Idempotency, Kept, KeyState, KeyView};

use super::words;
use crate::args::{Format, IdempotencyShow};
use crate::exit::Exit;
use crate::output;

/// What is printed.
#[derive(Debug, Serialize)]
struct Whole {
    #[serde(flatten)]
    view: KeyView,
    answer: Option<Shown>,
}

/// An answer as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// Whether the body is text as it was; otherwise it is in hexadecimal digits.
    is_text: bool,
}

/// Shows all there is about a key.
pub(super) async fn run(keys: &Idempotency, options: &IdempotencyShow) -> Result<Exit> {
    let (view, kept) = keys.show(&options.scope, &options.key).await?;
    let answer = match kept {
        Some(Kept::Whole(answer)) => Some(shown(answer)),
        Some(Kept::StatusOnly { .. }) | None => None,
    };
    let whole = Whole { view, answer };
    match options.place.output {
        Format::Json => output::json(&whole)?,
        Format::Table => tell(&whole)?,
    }
    Ok(Exit::Well)
}

fn shown(Answer { status, headers, body }: Answer) -> Shown {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match String::from_utf8(body) {
        Ok(body) => Shown { status, headers, body, is_text: true },
        Err(error) => Shown { status, headers, body: hex(error.into_bytes()), is_text: false },
    }
}

fn tell(whole: &Whole) -> Result<()> {
    let view = &whole.view;
    let mut facts = vec![
        ("key", output::flat(&view.key)),
        ("scope", output::flat(&view.scope)),
        ("state", words(&view.state)),
        ("request", output::flat(&view.request)),
    ];
    match &view.state {
        KeyState::Stored { at, expires_at, .. } => {
            facts.push(("answered", output::instant(*at)));
            facts.push(("expires", expires_at.map(output::instant).unwrap_or_default()));
        }
        KeyState::InFlight { since, .. } => facts.push(("since", output::instant(*since))),
    }
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        output::say(format!("{name:<9}  {value}"))?;
    }
    if let Some(answer) = &whole.answer {
        output::say("")?;
        for (name, value) in &answer.headers {
            output::say(format!("{}: {}", output::flat(name), output::flat(value)))?;
        }
        output::say("")?;
        output::say(output::escaped(&answer.body))?;
    }
    Ok(())
}
